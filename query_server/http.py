"""MCP over stateless HTTP, with health and metrics beside it, behind a check of host, origin and token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from query_server.access import LOCAL, NOBODY, Principal, authenticate
from query_server.server import DocwellServer
from query_server.service import SearchService
from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError
from shared.loopback import is_loopback

PATH = "/mcp"
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

Authenticate = Callable[[str], Principal | None]

_principal: ContextVar[Principal] = ContextVar("docwell_principal", default=NOBODY)


def require_tokens(settings: Settings) -> None:
    """Refuse to serve others without a token.

    Raises:
        ConfigurationError: the address is open to others and no token is set.
    """
    if not is_loopback(settings.mcp_host) and not settings.mcp_tokens:
        raise ConfigurationError(
            f"The MCP server would listen on {settings.mcp_host}, where others can reach it, without a token. Set"
            " DOCWELL_MCP_TOKENS, or DOCWELL_MCP_HOST=127.0.0.1.",
            code="token_required",
        )


class Gate:
    """Lets a request in by host, origin and token; for everything but the health of the process.

    Without tokens (`authenticate` is None) whoever reaches the loopback address is the local principal.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], authenticate: Authenticate | None) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refuse_address(headers)
        if refusal is None and self._authenticate is not None:
            principal = self._identify(headers)
            refusal = None if principal is not None else _unauthorised(bool(headers.get("authorization")))
        else:
            principal = LOCAL
        if refusal is not None or principal is None:
            await (refusal or _unauthorised(False))(scope, receive, send)
            return
        held = _principal.set(principal)
        try:
            await self._app(scope, receive, send)
        finally:
            _principal.reset(held)

    def _refuse_address(self, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if _name_of(f"//{host}") not in self._hosts:
            return JSONResponse(
                {
                    "error": "host_not_allowed",
                    "message": f"The host {host!r} is not allowed. Add it to DOCWELL_MCP_ALLOWED_HOSTS.",
                },
                status_code=421,
            )
        origin = headers.get("origin")
        if origin is not None and _name_of(origin) not in self._hosts:
            return JSONResponse(
                {
                    "error": "origin_not_allowed",
                    "message": f"The origin {origin!r} is not allowed. Add its host to DOCWELL_MCP_ALLOWED_HOSTS.",
                },
                status_code=403,
            )
        return None

    def _identify(self, headers: Headers) -> Principal | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self._authenticate is None or scheme.lower() != "bearer" or not token.strip():
            return None
        return self._authenticate(token.strip())


def _name_of(url: str) -> str:
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return f"[{name}]" if ":" in name else name.lower()


def _unauthorised(given: bool) -> Response:
    error = ', error="invalid_token"' if given else ""
    return JSONResponse(
        {"error": "unauthorized", "message": "Send `Authorization: Bearer <token>` with a token of this server."},
        status_code=401,
        headers={"WWW-Authenticate": f'Bearer realm="docwell"{error}'},
    )


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter("docwell_mcp_calls", "Tool calls.", ["tool", "outcome"], registry=self.registry)
        self._seconds = Histogram(
            "docwell_mcp_call_seconds",
            "Duration of a tool call.",
            ["tool"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )

    def observe(self, tool: str, outcome: str, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)


def make_app(service: SearchService, settings: Settings, *, authenticate: Authenticate | None = None) -> ASGIApp:
    """The whole HTTP application. `authenticate` maps a token to its principal; by default the bootstrap tokens do."""
    metrics = Metrics()
    server = DocwellServer(service, principal=_principal.get, observe=metrics.observe)
    hosts = [*LOOPBACK_NAMES, *settings.mcp_allowed_hosts]
    app: Starlette = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        # The gate in front has a message that helps; it checks the same.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=settings.mcp_host,
    )
    app.router.routes.extend(_beside(service, metrics))
    return Gate(app, hosts=hosts, authenticate=authenticate or _bootstrap(settings))


def _bootstrap(settings: Settings) -> Authenticate | None:
    tokens = [token.get_secret_value() for token in settings.mcp_tokens]
    return (lambda token: authenticate(token, tokens)) if tokens else None


def _beside(service: SearchService, metrics: Metrics) -> list[Route]:
    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_request: Request) -> Response:
        try:
            await run_in_threadpool(service.namespaces, principal=NOBODY)
        except DocwellError as error:
            return JSONResponse({"ready": False, "code": error.code, "message": str(error)}, status_code=503)
        return JSONResponse({"ready": True})

    async def show_metrics(_request: Request) -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", show_metrics, methods=["GET"]),
    ]
