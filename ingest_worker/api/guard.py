"""Who may ask: bearer tokens, and without any, this machine alone, also against pages in its browsers."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ingest_worker.api.caller import KEY, LOCAL, Caller
from ingest_worker.api.problems import problem, unavailable
from shared.config import Settings
from shared.credentials import Credential
from shared.errors import ConfigurationError, DocwellError
from shared.loopback import is_loopback

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
WEBHOOKS = "/v1/webhooks/"
"""Below this every sender proves itself by a secret of its own, under whatever name a proxy passes it on."""
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Find = Callable[[str], Credential | None]
"""What a stored token stands for; None for one that does not hold."""


def check_binding(settings: Settings, stored: Callable[[], bool]) -> None:
    """Refuses to serve the network without a token. `stored` tells whether `docwell tokens` made one that holds.

    Raises:
        ConfigurationError: the host is not the loopback and no token can be had.
    """
    if not settings.api_tokens and not is_loopback(settings.api_host) and not stored():
        raise ConfigurationError(
            f"DOCWELL_API_HOST is {settings.api_host!r}, which others can reach, and there is no token: everybody could write"
            " documents. Make one with `docwell tokens create NAME --scope ingest`, set DOCWELL_API_TOKENS, or bind to"
            " 127.0.0.1.",
            code="token_missing",
        )


class Guard:
    """ASGI middleware. Where a token is `required` each request but those for `OPEN_PATHS` and webhooks needs one.

    Elsewhere the server is bound to the loopback, and a browser on this machine is the one way in for strangers: a name
    of theirs may resolve to 127.0.0.1 (DNS rebinding), and their pages may post here. So the Host must be a name of the
    loopback, and so must be the Origin, where there is one.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[str], find: Find, *, required: bool) -> None:
        self._app = app
        self._tokens = [token.encode() for token in tokens]
        self._find = find
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its caller, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["path"].startswith(WEBHOOKS):
            scope[KEY] = LOCAL
            await self._app(scope, receive, send)
            return
        refusal = None if self._required else _is_foreign(headers)
        entered = refusal if refusal is not None else await self._identify(scope["path"], headers)
        if isinstance(entered, Caller):
            scope[KEY] = entered
            await self._app(scope, receive, send)
        else:
            await entered(scope, receive, send)

    async def _identify(self, path: str, headers: Headers) -> Caller | ASGIApp:
        if path in OPEN_PATHS:
            return LOCAL
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        given = credentials.strip()
        if scheme.lower() != "bearer" or not given:
            if not self._required:
                return LOCAL
            return problem(
                401,
                "A bearer token is needed: `Authorization: Bearer …`, one of `docwell tokens` or of DOCWELL_API_TOKENS.",
                code="token_missing",
                headers={"WWW-Authenticate": 'Bearer realm="docwell"'},
            )
        raw = given.encode("utf-8", "surrogateescape")
        # Every token is compared, each in constant time, so that the answer's time tells nothing.
        if sum(hmac.compare_digest(raw, token) for token in self._tokens):
            return Caller(name="bootstrap")
        return await self._stored(given)

    async def _stored(self, token: str) -> Caller | ASGIApp:
        try:
            found = await run_in_threadpool(self._find, token)
        except DocwellError as error:
            return unavailable(str(error), code=error.code)
        if found is None:
            return problem(
                401,
                "The bearer token does not hold: it is unknown, has expired or was revoked.",
                code="token_invalid",
                headers={"WWW-Authenticate": 'Bearer realm="docwell", error="invalid_token"'},
            )
        if found.scope == "search":
            return problem(
                403,
                f"The token {found.name!r} is made for searching. Make one with `docwell tokens create NAME --scope ingest`.",
                code="insufficient_scope",
                headers={"WWW-Authenticate": 'Bearer realm="docwell", error="insufficient_scope", scope="ingest"'},
            )
        return Caller(name=found.name, namespaces=None if found.namespaces is None else frozenset(found.namespaces))


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
