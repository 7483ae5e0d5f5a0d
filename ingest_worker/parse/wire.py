"""What the cage and its child say to each other, as bytes on two pipes.

To the child: length of the request (4 bytes), length of the file (8 bytes), the request as JSON, the file's bytes as they are.
From the child: `H` when it is ready; `P` and a page number (4 bytes) while it works; `R`, a length (8 bytes) and the answer as
JSON when it is done. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from ingest_worker.parse.ocr import NO_OCR, OcrSettings
from shared.documents import Chunk, ChunkKind, Span

READY: Final = b"H"
PAGE: Final = b"P"
ANSWER: Final = b"R"
REQUEST_HEAD: Final = struct.Struct(">IQ")
PAGE_NUMBER: Final = struct.Struct(">I")
ANSWER_LENGTH: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One file to parse and chunk. `cpu_seconds` is the processor time that the job may take, `output_bytes` its answer.

    `passwords` are tried on encrypted files, in order.
    """

    path: str
    chunk_tokens: int
    chunk_overlap: int
    cpu_seconds: int
    output_bytes: int
    passwords: tuple[str, ...] = field(default=(), repr=False)
    ocr: OcrSettings = NO_OCR


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What came out of a file: its chunks, and what the parser learnt about it.

    `page_count` and `pages_with_text` are None for formats without pages; 0 pages with text means that the file needs OCR.
    `unread` are sentences on parts whose text is missing; `ocr` says what OCR did, or why it did nothing.
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


def pack_request(request: Request, data: bytes) -> bytes:
    """The bytes before the file's own."""
    head = orjson.dumps(request)
    return REQUEST_HEAD.pack(len(head), len(data)) + head


def unpack_request(head: bytes) -> Request:
    """The request from its JSON."""
    raw = orjson.loads(head)
    ocr = OcrSettings(languages=tuple(raw["ocr"]["languages"]), seconds=raw["ocr"]["seconds"])
    return Request(**{**raw, "passwords": tuple(raw["passwords"]), "ocr": ocr})


def pack_parsed(parsed: Parsed, *, chunk_seconds: float = 0.0) -> bytes:
    """The answer of a job that went well, without its length; `chunk_seconds` is the part of its time that chunking took."""
    return orjson.dumps({"parsed": parsed, "rss": resident_bytes(), "chunk_seconds": chunk_seconds})


def pack_error(kind: str, code: str, message: str) -> bytes:
    """The answer of a job that failed; `kind` is the name of the error's class."""
    return orjson.dumps({"error": {"kind": kind, "code": code, "message": message}, "rss": resident_bytes()})


def unpack_parsed(raw: dict[str, Any]) -> Parsed:
    """The value from its JSON."""
    return Parsed(
        **{**raw, "chunks": tuple(map(_chunk, raw["chunks"])), "warnings": tuple(raw["warnings"]), "unread": tuple(raw["unread"])}
    )


def resident_bytes() -> int:
    """The memory of this process that is in RAM (Linux; 0 elsewhere)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - called after each job, by a bare file
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0


def _chunk(raw: dict[str, Any]) -> Chunk:
    return Chunk(**{**raw, "kind": ChunkKind(raw["kind"]), "section": tuple(raw["section"]), "span": Span(**raw["span"])})
