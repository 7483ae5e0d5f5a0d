"""A request's body, taken in as it comes: hashed and compressed on the way, never more of it than the limit."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from ingest_worker.api.problems import Malformed, TooLarge

_BATCH = 1024 * 1024
"""Bytes that are hashed and compressed at a time, off the event loop."""

_DRAINED = 64 * 1024 * 1024
"""Bytes of a body that is too long which are read and thrown away, so that the client sees the answer and no broken pipe."""

_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What came: `content` is zlib, `sha256` and `size` are those of the bytes in it."""

    content: bytes
    sha256: bytes
    size: int


class Taker:
    """Compresses and hashes bytes that come in pieces."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._zlib = zlib.compressobj(_LEVEL)
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        """The next piece."""
        self._sha256.update(data)
        self._pieces.append(self._zlib.compress(data))
        self._size += len(data)

    def body(self) -> Body:
        """All that came."""
        self._pieces.append(self._zlib.flush())
        return Body(content=b"".join(self._pieces), sha256=self._sha256.digest(), size=self._size)


def pack(data: bytes) -> Body:
    """A body that is in memory already."""
    taker = Taker()
    taker.take(data)
    return taker.body()


async def take_body(request: Request, *, max_bytes: int) -> Body:
    """The whole body, at most `max_bytes`.

    Raises:
        TooLarge: it is longer.
        Malformed: the client went away, or the length it announced is no number.
    """
    taker = Taker()
    waiting = bytearray()
    async for piece in _limited(request, max_bytes):
        waiting += piece
        if len(waiting) >= _BATCH:
            await run_in_threadpool(taker.take, bytes(waiting))
            waiting.clear()
    return await run_in_threadpool(_finished, taker, bytes(waiting))


def _finished(taker: Taker, rest: bytes) -> Body:
    taker.take(rest)
    return taker.body()


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The whole body as bytes.

    Raises:
        TooLarge, Malformed: as `take_body`.
    """
    data = bytearray()
    async for piece in _limited(request, max_bytes):
        data += piece
    return bytes(data)


async def _limited(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdecimal()):
        raise Malformed("Content-Length is no number.", code="bad_length")
    # Who asks before sending (Expect: 100-continue) is answered before anything is sent.
    if int(announced) > max_bytes and request.headers.get("expect", "").lower() == "100-continue":
        raise _too_large(max_bytes)
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
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The body has more than {max_bytes:,} bytes, the limit (DOCWELL_MAX_BYTES).", code="too_large")
