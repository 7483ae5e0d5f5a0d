"""A request that is too large is told the limit: the SDK refuses it with a bare sentence, of which its clients show nothing."""

from __future__ import annotations

from collections.abc import Callable

from mcp.types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CODE = "request_too_large"


class TellLimit:
    """An ASGI application in front of one that answers 413 to bodies of more than `limit` bytes."""

    def __init__(self, app: ASGIApp, *, limit: int, refused: Callable[[str], None] = lambda _code: None) -> None:
        self._app = app
        self._limit = limit
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and put a JSON-RPC error in the place of a 413."""
        is_refused = False

        async def tell(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == 413:
                is_refused = True
                self._refused(CODE)
                await self._answer()(scope, receive, send)
            elif not is_refused:
                await send(message)

        await self._app(scope, receive, tell)

    def _answer(self) -> JSONResponse:
        # JSON-RPC 2.0, section 5: no id, as the request was not read. Clients show its message whatever the status is.
        message = (
            f"The request is longer than {self._limit:,} bytes and was not read. Ask with a shorter query: a query and a"
            " hypothetical answer may have 10,000 characters each."
        )
        error = {"code": INVALID_REQUEST, "message": message, "data": {"code": CODE, "limit_bytes": self._limit}}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=413)
