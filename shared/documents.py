"""Documents on their way through the system, as frozen values: elements, chunks, and the states they end in."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class DocumentState(StrEnum):
    """What became of a document; the names are public."""

    QUEUED = "queued"
    INDEXING = "indexing"
    INDEXED = "indexed"
    PARTIAL = "partial"
    NEEDS_OCR = "needs_ocr"
    SKIPPED = "skipped"
    FAILED = "failed"
    EXCLUDED = "excluded"
    DELETED = "deleted"


class JobState(StrEnum):
    """Where a job stands; the names are public."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class ElementKind(StrEnum):
    """What a parser saw."""

    HEADING = "heading"
    TEXT = "text"
    TABLE = "table"
    CODE = "code"


class ChunkKind(StrEnum):
    """What a chunk holds; the names are public (`kind` of a search result)."""

    TEXT = "text"
    TABLE = "table"
    CODE = "code"
    CAPTION = "caption"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where something stands in its file. All numbers are 1-based and inclusive; what is not known is None, never guessed.

    `page_*` is the PDF's own page index, `page_label` what is printed on the first of these pages (`iv`). `line_*` counts lines
    of the decoded file. `slide` is a presentation's slide, `sheet` a workbook's sheet by name, `row_*` rows of a sheet or of a
    table of separated values as a spreadsheet numbers them. `attachment` names the file inside this one that all of this is
    about (`offer.docx`, or `forwarded.eml > offer.docx`).
    """

    page_start: int | None = None
    page_end: int | None = None
    page_label: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    slide: int | None = None
    sheet: str | None = None
    row_start: int | None = None
    row_end: int | None = None
    attachment: str | None = None

    @property
    def part(self) -> tuple[str | None, str | None, int | None]:
        """The part of the file that this stands in: its attachment, sheet and slide. A chunk never holds text of two parts."""
        return self.attachment, self.sheet, self.slide

    def union(self, other: Span) -> Span:
        """The smallest span that holds both. Of two parts none is named."""

        def low(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else min(a, b)

        def high(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else max(a, b)

        page_start = low(self.page_start, other.page_start)
        return Span(
            page_start=page_start,
            page_end=high(self.page_end, other.page_end),
            page_label=self.page_label if self.page_start == page_start else other.page_label,
            line_start=low(self.line_start, other.line_start),
            line_end=high(self.line_end, other.line_end),
            slide=self.slide if self.slide == other.slide else None,
            sheet=self.sheet if self.sheet == other.sheet else None,
            row_start=low(self.row_start, other.row_start),
            row_end=high(self.row_end, other.row_end),
            attachment=self.attachment if self.attachment == other.attachment else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One piece of a parsed document, in reading order.

    `level` is a heading's depth from 1. `language` is a code block's or source file's language (`python`), when known.
    A table's `text` is Markdown with its header row first. Source code is one CODE element that holds the whole file.
    """

    kind: ElementKind
    text: str
    span: Span = Span()
    level: int | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDocument:
    """What a parser made of a file's bytes.

    `page_count` and `pages_with_text` are None for formats without pages (slides and pictures count as pages). `is_source` marks
    a file of source code, whose one element goes through the syntax tree. `encoding` names the codec that decoded the bytes.
    `warnings` are sentences for people; `unread` are those on parts whose text is missing, which make the document partial.
    `ocr` says what OCR did for pages without text, or why it did nothing.
    """

    elements: tuple[Element, ...]
    media_type: str
    title: str | None = None
    is_source: bool = False
    page_count: int | None = None
    pages_with_text: int | None = None
    encoding: str | None = None
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    ocr: str | None = None


_CONTENT_NAMESPACE = b"docwell.chunk.1\0"
_INPUT_NAMESPACE = b"docwell.input.1\0"


def _digest(namespace: bytes, *parts: str) -> uuid.UUID:
    digest = hashlib.sha256(namespace)
    for part in parts:
        raw = part.encode("utf-8")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return uuid.UUID(bytes=digest.digest()[:16])


_CAPTION_MARK = "[Caption of a picture, written by "


def caption_text(model: str, said: str) -> str:
    """The text of a caption: its first line tells who wrote it, so that nobody takes it for the document's own words."""
    return f"{_CAPTION_MARK}{' '.join(model.split())}]\n{said}"


def said_in_caption(text: str) -> str:
    """What the model said, of a text that `caption_text` made."""
    first, end, rest = text.partition("\n")
    return rest if end and first.startswith(_CAPTION_MARK) else text


@dataclass(frozen=True, kw_only=True)  # no slots: the digests are computed once and kept
class Chunk:
    """A passage: its content, which makes its identity, and its place, which does not.

    `section` is the heading path from the outermost heading in, `symbol` the dotted path of a unit of code
    (`Invoice.cancel`). `tokens` counts `text` with the bundled tokenizer. `context` says where the passage stands in its
    document, when a model was asked: it is searched with the passage, not shown with it, and is no part of its identity.
    """

    kind: ChunkKind
    text: str
    tokens: int
    section: tuple[str, ...] = ()
    symbol: str | None = None
    language: str | None = None
    span: Span = Span()
    context: str | None = None

    @property
    def section_text(self) -> str | None:
        """The heading path as people read it: `Billing > Cancelling`."""
        return " > ".join(self.section) or None

    @cached_property
    def chunk_id(self) -> uuid.UUID:
        """The same content has the same id on every machine, wherever it stands."""
        return _digest(_CONTENT_NAMESPACE, self.kind, self.section_text or "", self.symbol or "", self.language or "", self.text)

    @property
    def embedded_text(self) -> str:
        """What is embedded and made into terms: the context, the heading path or symbol, then the passage.

        Of a caption that is what the model said, without the line that tells people so.
        """
        heading = self.symbol or self.section_text
        text = said_in_caption(self.text) if self.kind is ChunkKind.CAPTION else self.text
        return "\n".join(part for part in (self.context, heading, text) if part)

    @cached_property
    def input_id(self) -> uuid.UUID:
        """The key of the chunk's vector: the embedded input of this chunk. No two chunks share one, so one can go alone."""
        return _digest(_INPUT_NAMESPACE, str(self.chunk_id), self.embedded_text)
