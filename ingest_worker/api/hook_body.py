"""Bodies of the generic webhook: taken in while their signature is computed, on disk when they are large, and cut into parts."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from ingest_worker.api.body import limited, too_large
from ingest_worker.api.problems import Malformed
from ingest_worker.catalogue.asking import BadQuestion
from ingest_worker.intake.packing import Body, Taker
from shared.errors import TransientError

IN_MEMORY = 1024 * 1024
"""Bytes of a body that are held in memory; what is longer goes to a temporary file."""

ROOM = 1024 * 1024
"""Bytes that an event may take beside its document."""

LARGE_AT_ONCE = 8
"""Bodies beyond `IN_MEMORY` that are taken in at a time: nobody has proved who they are before their last byte."""

SECONDS = 300.0
"""Within which a body must have come."""

_PIECE = 256 * 1024
_MOST_PARTS = 16


class Busy(TransientError):
    """Too many large bodies at once."""


async def receive(
    request: Request, take: Callable[[bytes], None], *, max_bytes: int, large: asyncio.Semaphore
) -> tempfile.SpooledTemporaryFile[bytes]:
    """The body as a file, at its beginning; `take` gets each piece. The caller closes it.

    Raises:
        TooLarge: longer than `max_bytes`.
        Malformed: it ended early, or took longer than five minutes.
        Busy: it is large, and others are already on their way.
    """
    file: tempfile.SpooledTemporaryFile[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - the caller's
    holds = False
    try:
        waiting = bytearray()
        size = 0
        async with asyncio.timeout(SECONDS):
            async for piece in limited(request, max_bytes):
                size += len(piece)
                if size > IN_MEMORY and not holds:
                    await _enter(large)
                    holds = True
                waiting += piece
                if len(waiting) >= IN_MEMORY:
                    await run_in_threadpool(_keep, file, take, bytes(waiting))
                    waiting.clear()
        _keep(file, take, bytes(waiting))
        file.seek(0)
    except TimeoutError:
        file.close()
        raise Malformed(f"The body did not come within {SECONDS:.0f} seconds.", code="too_slow") from None
    except BaseException:
        file.close()
        raise
    finally:
        if holds:
            large.release()
    return file


async def _enter(large: asyncio.Semaphore) -> None:
    if large.locked():
        raise Busy("Too many large documents are on their way. Try again in a moment.", code="busy")
    await large.acquire()


def _keep(file: IO[bytes], take: Callable[[bytes], None], data: bytes) -> None:
    take(data)
    file.write(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a form holds: the event's JSON, and the document with the media type that its part names."""

    event: bytes
    file: Body | None = None
    media_type: str = ""


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a form (`multipart/form-data`), None for another type.

    Raises:
        Malformed: it is a form and names none.
    """
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        return None
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 200:
        raise Malformed("The Content-Type names no boundary of the form.", code="bad_form")
    return boundary


def cut(file: IO[bytes], boundary: bytes, *, max_bytes: int) -> Parts:
    """Read a form: a part `event` (JSON) and at most one part `file` of at most `max_bytes`.

    Raises:
        Malformed: it is no form, or ends early.
        BadQuestion: a part is missing, comes twice, or is none of these.
        TooLarge: a part is too long.
    """
    reader = _Reader(boundary, max_bytes)
    try:
        while piece := file.read(_PIECE):
            reader.parser.write(piece)
    except MultipartParseError as error:
        raise Malformed(f"The form cannot be read: {error}.", code="bad_form") from None
    if not reader.ended:
        raise Malformed("The form ends early: its last boundary is missing.", code="bad_form")
    if reader.event is None:
        raise BadQuestion("The form has no part `event` with the JSON of the event.", code="no_event")
    return Parts(
        event=bytes(reader.event), file=None if reader.taker is None else reader.taker.body(), media_type=reader.media_type
    )


class _Reader:
    """Follows the parser through the form."""

    def __init__(self, boundary: bytes, max_bytes: int) -> None:
        self.event: bytearray | None = None
        self.taker: Taker | None = None
        self.media_type = ""
        self.ended = False
        self._max_bytes = max_bytes
        self._size = 0
        self._parts = 0
        self._part = ""
        self._name = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._named,
                "on_part_data": self._data,
                "on_end": self._end,
            },
        )

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise BadQuestion(f"The form has more than {_MOST_PARTS} parts.", code="bad_form")
        self._headers.clear()

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _named(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._part = options.get(b"name", b"").decode("utf-8", "replace")
        if self._part == "event" and self.event is None:
            self.event = bytearray()
        elif self._part == "file" and self.taker is None:
            self.taker = Taker()
            kind, _ = parse_options_header(self._headers.get(b"content-type"))
            self.media_type = kind.decode("ascii", "replace").lower()
        else:
            raise BadQuestion(
                f"The form has a part {self._part[:50]!r} that is not expected there: one `event` and one `file`.",
                code="bad_form",
            )

    def _data(self, data: bytes, start: int, end: int) -> None:
        piece = data[start:end]
        if self._part == "file" and self.taker is not None:
            self._size += len(piece)
            if self._size > self._max_bytes:
                raise too_large(self._max_bytes, "DOCWELL_MAX_BYTES")
            self.taker.take(piece)
        elif self.event is not None:
            self.event += piece
            if len(self.event) > ROOM:
                raise too_large(ROOM, "of the part `event`")

    def _end(self) -> None:
        self.ended = True
