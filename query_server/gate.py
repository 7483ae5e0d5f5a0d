"""Who gets in: the check of host, origin, token and rate in front of everything but the health of the process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from query_server.access import LOCAL, NOBODY, Principal
from query_server.authentication import Authenticate, InsufficientScope
from query_server.rate import RateLimit
from shared.errors import DocwellError
from shared.tracing import continued

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
METADATA_PATHS = frozenset({"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"})

principal_in_force: ContextVar[Principal] = ContextVar("docwell_principal", default=NOBODY)
"""Who asks, within a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What the gate lets through. `hosts` are names without a port; `origins` are whole (`https://app.example.com`), and pages of
    the hosts themselves may ask too. Where no token is `required`, whoever brings none is the local principal. `metadata` is the
    address of the protected resource's metadata, where an issuer is configured."""

    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    required: bool = False
    metadata: str | None = None


class Gate:
    """An ASGI application in front of another."""

    def __init__(
        self,
        app: ASGIApp,
        doors: Doors,
        authenticate: Authenticate,
        rate: RateLimit,
        *,
        refused: Callable[[str], None] = lambda _code: None,
    ) -> None:
        self._app = app
        self._doors = doors
        self._authenticate = authenticate
        self._rate = rate
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its principal, or refuse it."""
        if scope["type"] != "http" or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        entered: Principal | Refusal | None = self._refuse_address(headers)
        if entered is None:
            entered = NOBODY if scope["path"] in METADATA_PATHS else await self._identify(headers)
        if isinstance(entered, Refusal):
            self._refused(entered.code)
            await entered(scope, receive, send)
            return
        held = principal_in_force.set(entered)
        try:
            with continued(headers):
                await self._app(scope, receive, send)
        finally:
            principal_in_force.reset(held)

    def _refuse_address(self, headers: Headers) -> Refusal | None:
        host = headers.get("host", "")
        if _name_of(f"//{host}") not in self._doors.hosts:
            return Refusal(
                421, "host_not_allowed", f"The host {host[:100]!r} is not allowed. Add it to DOCWELL_MCP_ALLOWED_HOSTS."
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self._doors.origins and _name_of(origin) not in self._doors.hosts:
            return Refusal(
                403,
                "origin_not_allowed",
                f"Pages of {origin[:100]!r} may not ask. Add the origin to DOCWELL_MCP_ALLOWED_ORIGINS.",
            )
        return None

    async def _identify(self, headers: Headers) -> Principal | Refusal:
        authorization = headers.get("authorization", "")
        if not authorization:
            return self._unauthorised() if self._doors.required else LOCAL
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return self._unauthorised('error="invalid_request"')
        try:
            principal = await run_in_threadpool(self._authenticate, token.strip())
        except InsufficientScope as error:
            return self._forbidden(error.needed)
        except DocwellError as error:
            return Refusal(503, error.code, str(error), headers={"Retry-After": "1"})
        if principal is None:
            return self._unauthorised('error="invalid_token"')
        wait = self._rate.wait(principal.name)
        if wait > 0:
            return Refusal(
                429,
                "too_many_calls",
                "This token asks more often than DOCWELL_MCP_CALLS_PER_MINUTE allows. Try again later.",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        return principal

    def _unauthorised(self, *parts: str) -> Refusal:
        return Refusal(
            401,
            "unauthorized",
            "Send `Authorization: Bearer <token>` with a token of this server.",
            headers={"WWW-Authenticate": self._challenge(*parts)},
        )

    def _forbidden(self, needed: Sequence[str]) -> Refusal:
        challenge = self._challenge('error="insufficient_scope"', f'scope="{" ".join(needed)}"')
        message = f"The token lacks the scope {' '.join(needed)}."
        return Refusal(403, "insufficient_scope", message, headers={"WWW-Authenticate": challenge})

    def _challenge(self, *parts: str) -> str:
        """RFC 6750, with the address of RFC 9728's metadata."""
        metadata = [f'resource_metadata="{self._doors.metadata}"'] if self._doors.metadata else []
        return ", ".join(['Bearer realm="docwell"', *parts, *metadata])


def _name_of(url: str) -> str:
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return f"[{name}]" if ":" in name else name.lower()


class Refusal(JSONResponse):
    """Why a request does not get in."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__({"error": code, "message": message}, status_code=status, headers=headers)
        self.code = code
