"""The running MCP server, as a client of it sees it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from infra.ask.conversation import READ, SEARCH, ToolAnswer
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable

if TYPE_CHECKING:
    from anthropic.types import ToolParam

_SECONDS = 60.0


class Server:
    """See `conversation.Knowledge`. Arguments in `fixed` stand whatever the model says."""

    def __init__(self, client: Client, tools: Sequence[ToolParam], url: str, fixed: Mapping[str, Any]) -> None:
        self._client = client
        self._tools = tools
        self._url = url
        self._fixed = fixed

    @property
    def tools(self) -> Sequence[ToolParam]:
        """See `conversation.Knowledge.tools`."""
        return self._tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """See `conversation.Knowledge.call`."""
        given = {**arguments, **(self._fixed if name == SEARCH else {})}
        try:
            result = await self._client.call_tool(name, given)
        except (MCPError, httpx2.HTTPError, OSError) as error:
            raise _away(self._url, error) from error
        if not result.is_error:
            return ToolAnswer(content=dict(result.structured_content or {}))
        text = "".join(block.text for block in result.content if block.type == "text")
        return ToolAnswer(content=_error_in(text), is_error=True)


@asynccontextmanager
async def open_server(url: str, token: str | None, *, fixed: Mapping[str, Any] | None = None) -> AsyncIterator[Server]:
    """The server at this address.

    Raises:
        ServiceUnavailable: nothing answers there.
        ConfigurationError: it wants another token.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as held:
        await _look(url, headers)
        http = await held.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=_SECONDS))
        try:
            client = await held.enter_async_context(Client(streamable_http_client(url, http_client=http)))
            listed = (await client.list_tools()).tools
        except (MCPError, httpx2.HTTPError, OSError) as error:
            raise _away(url, error) from error
        tools: list[ToolParam] = [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.input_schema}
            for tool in listed
            if tool.name in {SEARCH, READ}
        ]
        if len(tools) != 2:
            raise ConfigurationError(f"What answers at {url} has no {SEARCH} and {READ}: it is no Docwell.", code="no_docwell")
        yield Server(client, tools, url, fixed or {})


async def _look(url: str, headers: Mapping[str, str]) -> None:
    """One request before the session: its refusal can be told from a server that is not there."""
    body = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS) as http:
            sent = {**headers, "Accept": "application/json, text/event-stream"}
            response = await http.post(url, json=body, headers=sent)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise _away(url, error) from error
    if response.status_code in (401, 403, 421):
        said = _message_in(response)
        raise ConfigurationError(
            f"The MCP server at {url} lets nobody in this way (HTTP {response.status_code}{said}). Set DOCWELL_ASK_TOKEN.",
            code="unauthorized",
        )
    if response.status_code >= 500:
        raise _away(url, RuntimeError(f"HTTP {response.status_code}"))


def _message_in(response: httpx2.Response) -> str:
    try:
        return f": {response.json()['message']}".removesuffix(".")
    except (ValueError, KeyError, TypeError):
        return ""


def _error_in(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return {"message": text or "The call failed."}
    return found if isinstance(found, dict) else {"message": text}


def _away(url: str, error: BaseException) -> DocwellError:
    return ServiceUnavailable(
        f"The MCP server at {url} cannot be reached ({error}). Start it with `make run` or `docwell up`, or name it in"
        " DOCWELL_ASK_MCP_URL.",
        code="mcp_unavailable",
    )
