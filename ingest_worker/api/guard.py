"""Who may ask: bearer tokens, and without any, this machine alone, also against pages in its browsers."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ingest_worker.api.problems import problem
from shared.config import Settings
from shared.errors import ConfigurationError
from shared.loopback import is_loopback

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def check_binding(settings: Settings) -> None:
    """Refuses to serve the network without a token.

    Raises:
        ConfigurationError: the host is not the loopback and no token is set.
    """
    if not settings.api_tokens and not is_loopback(settings.api_host):
        raise ConfigurationError(
            f"DOCWELL_API_HOST is {settings.api_host!r}, which others can reach, and DOCWELL_API_TOKENS is not set: everybody"
            " could write documents. Set a token, or bind to 127.0.0.1.",
            code="token_missing",
        )


class Guard:
    """ASGI middleware. With tokens each request but those for `OPEN_PATHS` needs one.

    Without tokens the server is bound to the loopback, and a browser on this machine is the one way in for strangers: a name
    of theirs may resolve to 127.0.0.1 (DNS rebinding), and their pages may post here. So the Host must be a name of the
    loopback, and so must be the Origin, where there is one.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self._app = app
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        refusal = None
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = self._needs_token(scope, headers) if self._tokens else _is_foreign(headers)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _needs_token(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        if scope["path"] in OPEN_PATHS:
            return None
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not credentials.strip():
            return problem(
                401,
                "A bearer token is needed: `Authorization: Bearer …`, one of DOCWELL_API_TOKENS.",
                code="token_missing",
                headers={"WWW-Authenticate": 'Bearer realm="docwell"'},
            )
        given = credentials.strip().encode("utf-8", "surrogateescape")
        # Every token is compared, each in constant time, so that the answer's time tells nothing.
        if sum(hmac.compare_digest(given, token) for token in self._tokens) == 0:
            return problem(
                401,
                "The bearer token is none of DOCWELL_API_TOKENS.",
                code="token_invalid",
                headers={"WWW-Authenticate": 'Bearer realm="docwell", error="invalid_token"'},
            )
        return None


def _is_foreign(headers: Headers) -> ASGIApp | None:
    host = headers.get("host", "")
    if _hostname("//" + host) not in _LOOPBACK_NAMES:
        return problem(
            421,
            f"This server answers to localhost alone, not to {host[:100]!r}. To serve other names set DOCWELL_API_TOKENS.",
            code="foreign_host",
        )
    origin = headers.get("origin")
    if origin is not None and _hostname(origin) not in _LOOPBACK_NAMES:
        return problem(403, f"Pages of {origin[:100]!r} may not use this server.", code="foreign_origin")
    return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
