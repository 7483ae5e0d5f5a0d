"""What the cage and its child say to each other, as bytes on two pipes.

To the child: length of the request (4 bytes), length of the file (8 bytes), the request as JSON, the file's bytes as they are.
From the child: `H` when it is ready; `P` and a page number (4 bytes) while it works; `R`, a length (8 bytes) and the answer as
JSON when it is done, with the bytes of pictures behind it after a NUL, which JSON never holds. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from ingest_worker.parse.ocr import NO_OCR, OcrSettings
from ingest_worker.parse.pictures import Picture, PictureLimits
from shared.documents import Chunk, ChunkKind, Span

READY: Final = b"H"
PAGE: Final = b"P"
ANSWER: Final = b"R"
REQUEST_HEAD: Final = struct.Struct(">IQ")
PAGE_NUMBER: Final = struct.Struct(">I")
ANSWER_LENGTH: Final = struct.Struct(">Q")
_NOTHING: Final = memoryview(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One file to parse and chunk. `cpu_seconds` is the processor time that the job may take, `output_bytes` its answer.

    `passwords` are tried on encrypted files, in order. `pictures`: cut them out too, within these limits.
    """

    path: str
    chunk_tokens: int
    chunk_overlap: int
    cpu_seconds: int
    output_bytes: int
    passwords: tuple[str, ...] = field(default=(), repr=False)
    ocr: OcrSettings = NO_OCR
    pictures: PictureLimits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What came out of a file: its chunks, and what the parser learnt about it.

    `page_count` and `pages_with_text` are None for formats without pages; 0 pages with text means that the file needs OCR.
    `unread` are sentences on parts whose text is missing; `ocr` says what OCR did, or why it did nothing. `pictures` are there
    when they were asked for; None: they could not be cut out.
    """

    chunks: tuple[Chunk, ...]
    title: str | None
    media_type: str
    page_count: int | None
    pages_with_text: int | None
    encoding: str | None
    warnings: tuple[str, ...]
    unread: tuple[str, ...] = ()
    ocr: str | None = None
    pictures: tuple[Picture, ...] | None = ()


def pack_request(request: Request, data: bytes) -> bytes:
    """The bytes before the file's own."""
    head = orjson.dumps(request)
    return REQUEST_HEAD.pack(len(head), len(data)) + head


def unpack_request(head: bytes) -> Request:
    """The request from its JSON."""
    raw = orjson.loads(head)
    ocr = OcrSettings(languages=tuple(raw["ocr"]["languages"]), seconds=raw["ocr"]["seconds"])
    pictures = None if raw["pictures"] is None else PictureLimits(**raw["pictures"])
    return Request(**{**raw, "passwords": tuple(raw["passwords"]), "ocr": ocr, "pictures": pictures})


def pack_parsed(parsed: Parsed, *, chunk_seconds: float = 0.0, pictures: Sequence[Picture] = ()) -> bytes:
    """The answer of a job that went well, without its length; `chunk_seconds` is the part of its time that chunking took.

    `pictures` come apart from `parsed`, which holds none.
    """
    heads = [{**asdict(one), "data": len(one.data), "thumbnail": len(one.thumbnail)} for one in pictures]
    head = orjson.dumps({"parsed": parsed, "rss": resident_bytes(), "chunk_seconds": chunk_seconds, "pictures": heads})
    return head + b"\0" + b"".join(part for one in pictures for part in (one.data, one.thumbnail)) if pictures else head


def pack_error(kind: str, code: str, message: str) -> bytes:
    """The answer of a job that failed; `kind` is the name of the error's class."""
    return orjson.dumps({"error": {"kind": kind, "code": code, "message": message}, "rss": resident_bytes()})


def unpack_answer(answer: bytes) -> tuple[dict[str, Any], memoryview]:
    """The JSON of an answer, and the bytes behind it."""
    end = answer.find(b"\0")
    end = len(answer) if end < 0 else end
    return orjson.loads(memoryview(answer)[:end]), memoryview(answer)[end + 1 :]


def unpack_parsed(raw: dict[str, Any], heads: Sequence[dict[str, Any]] = (), behind: memoryview = _NOTHING) -> Parsed:
    """The value from its JSON; `heads` tell of the pictures whose bytes stand `behind` it.

    Raises:
        ValueError: there are fewer bytes than they tell of.
    """
    pictures = []
    for head in heads:
        sizes = (head["data"], head["thumbnail"])
        if min(sizes) < 0 or sum(sizes) > len(behind):
            raise ValueError("the bytes of a picture are missing")
        data, thumbnail, behind = bytes(behind[: sizes[0]]), bytes(behind[sizes[0] : sum(sizes)]), behind[sum(sizes) :]
        own = {"span": Span(**head["span"]), "section": tuple(head["section"]), "data": data, "thumbnail": thumbnail}
        pictures.append(Picture(**{**head, **own}))
    lists = {name: tuple(raw[name]) for name in ("warnings", "unread")}
    return Parsed(**{**raw, **lists, "chunks": tuple(map(_chunk, raw["chunks"])), "pictures": tuple(pictures)})


def resident_bytes() -> int:
    """The memory of this process that is in RAM (Linux; 0 elsewhere)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - called after each job, by a bare file
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def _chunk(raw: dict[str, Any]) -> Chunk:
    return Chunk(**{**raw, "kind": ChunkKind(raw["kind"]), "section": tuple(raw["section"]), "span": Span(**raw["span"])})
