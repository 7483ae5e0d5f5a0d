"""A request's body, taken in as it comes: hashed and compressed on the way, never more of it than the limit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from ingest_worker.api.problems import Malformed, TooLarge
from ingest_worker.intake.packing import Body, Taker

_BATCH = 1024 * 1024
"""Bytes that are hashed and compressed at a time, off the event loop."""

_DRAINED = 64 * 1024 * 1024
"""Bytes of a body that is too long which are read and thrown away, so that the client sees the answer and no broken pipe."""


async def take_body(request: Request, *, max_bytes: int) -> Body:
    """The whole body, at most `max_bytes`.

    Raises:
        TooLarge: it is longer.
        Malformed: the client went away, or the length it announced is no number.
    """
    taker = Taker()
    waiting = bytearray()
    async for piece in limited(request, max_bytes):
        waiting += piece
        if len(waiting) >= _BATCH:
            await run_in_threadpool(taker.take, bytes(waiting))
            waiting.clear()
    return await run_in_threadpool(_finished, taker, bytes(waiting))


def _finished(taker: Taker, rest: bytes) -> Body:
    taker.take(rest)
    return taker.body()


async def read_body(request: Request, *, max_bytes: int, limit: str = "DOCWELL_MAX_BYTES") -> bytes:
    """The whole body as bytes. `limit` is where the limit comes from.

    Raises:
        TooLarge, Malformed: as `take_body`.
    """
    data = bytearray()
    async for piece in limited(request, max_bytes, limit=limit):
        data += piece
    return bytes(data)


async def limited(request: Request, max_bytes: int, *, limit: str = "DOCWELL_MAX_BYTES") -> AsyncIterator[bytes]:
    """The pieces of a body as they come. `limit` is where the limit comes from.

    Raises:
        TooLarge, Malformed: as `take_body`.
    """
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdecimal()):
        raise Malformed("Content-Length is no number.", code="bad_length")
    # Who asks before sending (Expect: 100-continue) is answered before anything is sent.
    if int(announced) > max_bytes and request.headers.get("expect", "").lower() == "100-continue":
        raise too_large(max_bytes, limit)
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > max_bytes + _DRAINED:
                break
            if size <= max_bytes and int(announced) <= max_bytes:
                yield piece
    except ClientDisconnect:
        raise Malformed("The body ended early.", code="disconnected") from None
    if size > max_bytes:
        raise too_large(max_bytes, limit)


def too_large(max_bytes: int, limit: str) -> TooLarge:
    """A body beyond the limit."""
    return TooLarge(f"The body has more than {max_bytes:,} bytes, the limit ({limit}).", code="too_large")
