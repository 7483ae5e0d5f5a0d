"""The shapes of the public answers. A field of None is unknown or not meaningful, and is left out of the JSON."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Outcome = Literal["ok", "no_match", "index_empty"]
Leg = Literal["keyword", "semantic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the reader of an answer should know."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Another place with the very text of a passage, in the same document or another one."""

    document_id: uuid.UUID
    path: str
    source: str
    namespace: str
    citation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One cited passage. Pages are the PDF's own 1-based index, lines those of the decoded file, rows those of the sheet, all
    inclusive. `page_label` is what is printed on the first page; `attachment` names a file inside the document. `also_in` are
    other places of the text, a few at most; of a passage of several neighbours those of the one that was found."""

    chunk_id: uuid.UUID
    document_id: uuid.UUID
    path: str
    source: str
    namespace: str
    text: str
    citation: str
    kind: Literal["text", "table", "code", "caption"]
    score: float
    score_kind: Literal["rrf", "rerank"]
    matched_by: tuple[Leg, ...]
    high_confidence: bool
    version: int
    last_indexed: datetime
    url: str | None = None
    title: str | None = None
    section: str | None = None
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
    language: str | None = None
    symbol: str | None = None
    source_modified: datetime | None = None
    tags: tuple[str, ...] | None = None
    warnings: tuple[Notice, ...] | None = None
    also_in: tuple[Copy, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unindexed:
    """Documents of one state (`queued`, `failed`, `needs_ocr`, `partial`) that a search could not look into, or not whole: how
    many, and the first few paths."""

    state: str
    documents: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What `search_documents` answers. `tokens_used` counts the passages with what is written around them. `unindexed` is there
    where nothing was found and something could not be looked into."""

    search_id: str
    query: str
    outcome: Outcome
    results: tuple[Passage, ...]
    tokens_used: int
    dropped: int
    index_version: int
    pending_in_scope: int
    stale: bool
    warming: bool
    warnings: tuple[Notice, ...]
    message: str | None = None
    next_cursor: str | None = None
    newest_sweep: datetime | None = None
    unindexed: tuple[Unindexed, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSummary:
    """A document as it is listed."""

    document_id: uuid.UUID
    path: str
    source: str
    namespace: str
    state: str
    searchable: bool
    chunk_count: int
    title: str | None = None
    url: str | None = None
    served_version: int | None = None
    latest_version: int | None = None
    last_indexed: datetime | None = None
    source_modified: datetime | None = None
    changed_at: datetime | None = None
    tags: tuple[str, ...] | None = None
    reason_code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of a document's text with its place."""

    chunk_id: uuid.UUID
    text: str
    citation: str
    kind: Literal["text", "table", "code", "caption"]
    section: str | None = None
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
    language: str | None = None
    symbol: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """What `read_document` answers: pieces in reading order. Overlaps between neighbours are written once."""

    document: DocumentSummary
    version: int
    pieces: tuple[Piece, ...]
    tokens_used: int
    dropped: int
    index_version: int
    warnings: tuple[Notice, ...]
    message: str | None = None
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAnswer:
    """What `list_documents` answers, by namespace, source and path."""

    documents: tuple[DocumentSummary, ...]
    index_version: int
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source in sight."""

    name: str
    type: str
    documents: int
    paused: bool
    stale: bool
    namespace: str | None = None
    newest_sweep: datetime | None = None
    sweep_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStatus:
    """What is known of one path: its stage and the reason for it. What is invisible is unknown."""

    path: str
    known: bool
    documents: tuple[DocumentSummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """What `index_status` answers."""

    documents: int
    by_state: dict[str, int]
    chunks: int
    pending: int
    index_version: int
    stale: bool
    warming: bool
    sources: tuple[SourceStatus, ...]
    warnings: tuple[Notice, ...]
    newest_sweep: datetime | None = None
    embedding_model: str | None = None
    path: PathStatus | None = None


def as_json(value: object) -> Any:
    """The value in JSON's types: fields of None left out, ids as text, times in UTC with `Z`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: as_json(part) for name, part in pairs if part is not None}
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace(".000+", "+").replace("+00:00", "Z")
        case uuid.UUID():
            return str(value)
        case dict():
            return {str(name): as_json(part) for name, part in value.items()}
        case tuple() | list():
            return [as_json(part) for part in value]
    return value
