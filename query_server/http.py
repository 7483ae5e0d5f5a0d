"""MCP over stateless HTTP, with health and metrics beside it, behind the gate."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from mcp.server.transport_security import TransportSecuritySettings
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from query_server.access import NOBODY
from query_server.admission import Busy
from query_server.authentication import Authenticate, make_authenticate
from query_server.gate import METADATA_PATHS, Doors, Gate, principal_in_force
from query_server.metrics import Metrics
from query_server.oversize import TellLimit
from query_server.rate import RateLimit
from query_server.server import DocwellServer
from query_server.service import SearchService
from query_server.tools import Record
from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError
from shared.loopback import is_loopback

PATH = "/mcp"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

LARGEST_REQUEST = 256 * 1024
"""Bytes of a request's body: a query and a hypothetical answer of 10,000 characters each, written in the widest way."""

CORS_SECONDS = 600


def require_tokens(settings: Settings, stored: Callable[[], bool]) -> None:
    """Refuse to serve others without a token. `stored` tells whether `docwell tokens` made one that holds.

    Raises:
        ConfigurationError: the address is open to others and no token can be had.
    """
    if not is_loopback(settings.mcp_host) and not settings.mcp_tokens and settings.mcp_jwks_url is None and not stored():
        raise ConfigurationError(
            f"The MCP server would listen on {settings.mcp_host}, where others can reach it, without a token. Make one with"
            " `docwell tokens create NAME`, set DOCWELL_MCP_TOKENS or DOCWELL_MCP_JWKS_URL, or DOCWELL_MCP_HOST=127.0.0.1.",
            code="token_required",
        )


def make_app(
    service: SearchService,
    settings: Settings,
    *,
    authenticate: Authenticate | None = None,
    metrics: Metrics | None = None,
    record: Record | None = None,
) -> ASGIApp:
    """The whole HTTP application. `authenticate` maps a token to its principal, by default as the settings say; `record` is the
    usage log, if there is one."""
    authenticate = authenticate or make_authenticate(settings, service.credential)
    metrics = metrics or Metrics(lambda: service.pool)
    service.watch(metrics.searched)
    server = DocwellServer(service, principal=principal_in_force.get, observe=metrics.observe, record=record)
    app: Starlette = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=LARGEST_REQUEST,
        # The gate in front has a message that helps; it checks the same.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=settings.mcp_host,
    )
    app.router.routes.extend(_beside(service, settings, metrics))
    told = TellLimit(app, limit=LARGEST_REQUEST, refused=metrics.refused)
    gate = Gate(told, _doors(settings), authenticate, RateLimit(settings.mcp_calls_per_minute), refused=metrics.refused)
    if not settings.mcp_allowed_origins:
        return gate
    return CORSMiddleware(
        gate,
        allow_origins=settings.mcp_allowed_origins,
        allow_methods=["POST", "GET", "DELETE"],
        allow_headers=["*"],
        expose_headers=["WWW-Authenticate", "MCP-Protocol-Version", "Retry-After"],
        max_age=CORS_SECONDS,
    )


def _doors(settings: Settings) -> Doors:
    return Doors(
        hosts=frozenset(host.lower() for host in (*LOOPBACK_NAMES, *settings.mcp_allowed_hosts)),
        origins=frozenset(settings.mcp_allowed_origins),
        required=bool(settings.mcp_tokens) or settings.mcp_jwks_url is not None or not is_loopback(settings.mcp_host),
        metadata=_metadata_url(settings) if settings.mcp_jwks_url is not None else None,
    )


def resource_url(settings: Settings) -> str:
    """How clients reach the server: what the configuration says, else the address that it listens on."""
    return settings.mcp_public_url or f"http://{settings.mcp_host}:{settings.mcp_port}{PATH}"


def _metadata_url(settings: Settings) -> str:
    parts = urlsplit(resource_url(settings))
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path.rstrip('/')}"


def _beside(service: SearchService, settings: Settings, metrics: Metrics) -> list[Route]:
    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_request: Request) -> Response:
        try:
            await run_in_threadpool(service.namespaces, principal=NOBODY)
        except Busy:  # it works, and others have their turn: a balancer that took it out would load the rest
            return JSONResponse({"ready": True})
        except DocwellError as error:
            return JSONResponse({"ready": False, "code": error.code, "message": str(error)}, status_code=503)
        return JSONResponse({"ready": True})

    async def show_metrics(_request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def metadata(_request: Request) -> Response:
        """RFC 9728, section 3."""
        return JSONResponse(
            {
                "resource": resource_url(settings),
                "resource_name": "Docwell",
                "authorization_servers": [settings.mcp_issuer],
                "scopes_supported": list(settings.mcp_required_scopes),
                "bearer_methods_supported": ["header"],
            }
        )

    routes = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", show_metrics, methods=["GET"]),
    ]
    if settings.mcp_jwks_url is not None:
        routes += [Route(path, metadata, methods=["GET"]) for path in sorted(METADATA_PATHS)]
    return routes
