"""The MCP server, and its two ways to be reached."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable
from typing import Any

import anyio
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS
from mcp.types import Tool as ToolDescription

from query_server.access import LOCAL, Principal
from query_server.assembly import make_service
from query_server.metrics import Metrics
from query_server.resources import add_resources
from query_server.service import SearchService
from query_server.spending import QuerySpending
from query_server.tools import Observe, Record, make_tools
from query_server.usage import UsageLog
from shared.collector import leave_alone_what_is_loaded
from shared.config import Settings
from shared.errors import DocwellError
from shared.usage import require_address

INSTRUCTIONS = (
    "Docwell holds the user's own documents. Search them before you answer what they may cover, cite the passages that you use"
    " as they are given (`[file, page 3]`), and say so when nothing is found."
)

NAMESPACES_WITHIN_SECONDS = 1.0
"""How long a list of tools waits for the database to name the namespaces; without it they are simply not named."""

MOST_NAMED = 20

MOST_REMEMBERED = 1_000
"""Kinds of principals whose namespaces are remembered, by what they may see."""

log = logging.getLogger(__name__)


def _no_principal() -> Principal:
    return LOCAL


class DocwellServer(MCPServer[None]):
    """The server over a service. Its search tool names the namespaces that the caller may see."""

    def __init__(
        self,
        service: SearchService,
        *,
        principal: Callable[[], Principal] = _no_principal,
        observe: Observe | None = None,
        record: Record | None = None,
    ) -> None:
        super().__init__(
            "docwell",
            title="Docwell",
            description="Cited passages from your documents, read only.",
            instructions=INSTRUCTIONS,
            version=importlib.metadata.version("docwell"),
            tools=list(make_tools(service, principal, observe, record=record)),
            log_level="WARNING",
        )
        self._service = service
        self._principal = principal
        self._named: dict[tuple[frozenset[str] | None, frozenset[str] | None], str] = {}
        add_resources(self, service, principal)

    async def get_prompt(self, name: str, arguments: Any = None, context: Any = None) -> Any:  # noqa: ARG002 - the SDK's signature
        """There are no prompts; the SDK alone would answer an unknown one with an internal error."""
        raise MCPError(INVALID_PARAMS, f"There is no prompt {name!r}: this server has none.")

    async def list_tools(self) -> list[ToolDescription]:
        """The tools, with the namespaces in sight. While the database is slow or away they are those that were named last:
        clients keep descriptions, and a model's prompt that changes costs its cache."""
        tools = await super().list_tools()
        who = self._principal()
        sentence = None
        with anyio.move_on_after(NAMESPACES_WITHIN_SECONDS):
            sentence = await anyio.to_thread.run_sync(self._namespaces, who, abandon_on_cancel=True)
        if sentence is None:
            sentence = self._named.get((who.namespaces, who.names), "")
        elif len(self._named) < MOST_REMEMBERED or (who.namespaces, who.names) in self._named:
            self._named[who.namespaces, who.names] = sentence
        if not sentence:
            return tools
        return [
            tool.model_copy(update={"description": f"{tool.description} {sentence}"}) if tool.name == "search_documents" else tool
            for tool in tools
        ]

    def _namespaces(self, who: Principal) -> str | None:
        """A sentence, empty where nothing is in sight; None when it cannot be known."""
        try:
            found = self._service.namespaces(principal=who)
        except DocwellError as error:
            log.warning("The namespaces cannot be named: %s", error)
            return None
        named = [f"{name} ({description})" if description else name for name, description in found[:MOST_NAMED]]
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return f"Namespaces: {', '.join(named)}{more}." if named else ""


def run_stdio(settings: Callable[[], Settings]) -> None:
    """Serve one client over stdin and stdout until it leaves.

    `initialize` is answered before the settings are looked up, a model is loaded or a database is asked. The SDK keeps the
    real stdout for itself, so that a stray print cannot break a frame.
    """
    # A client that closed our stderr must not end us through a log line.
    logging.raiseExceptions = False
    service = make_service(settings, patient=False)
    usage = UsageLog(settings)
    server = DocwellServer(service, record=usage.record)

    async def serve() -> None:
        service.warm()
        leave_alone_what_is_loaded()
        await server.run_stdio_async()

    try:
        anyio.run(serve)
    finally:
        usage.close()
        service.close()


def run_http(settings: Settings) -> None:
    """Serve over HTTP until a signal ends it.

    Raises:
        ConfigurationError: the address is open to others and no token is set, or the usage log has no place to go to.
    """
    import uvicorn

    from query_server.http import make_app, require_tokens

    require_address(settings)
    spending = QuerySpending(lambda: settings, count=lambda model, use: metrics.spent(model, use))
    service = make_service(lambda: settings, patient=False, spending=spending)
    metrics = Metrics(lambda: service.pool, untold=lambda: spending.untold)
    usage = UsageLog(lambda: settings, count=metrics.usage) if settings.usage_log != "off" else None
    try:
        require_tokens(settings, service.has_tokens)
        service.warm()
        leave_alone_what_is_loaded()
        uvicorn.run(
            make_app(service, settings, metrics=metrics, record=None if usage is None else usage.record),
            host=settings.mcp_host,
            port=settings.mcp_port,
            log_config=None,
            access_log=False,
            http="h11",  # httptools, which would be taken where it is installed, reads headers without an end
            timeout_graceful_shutdown=5,
        )
    finally:
        if usage is not None:
            usage.close()
        service.close()
