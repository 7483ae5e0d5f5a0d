"""Documents as people and scripts look at them: lists, one with its facts, its versions, its chunks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.asking import Filters, Page, Unknown, bad_cursor, cut, read_cursor, uuid_key, write_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRow:
    """A document with its facts.

    `size` (bytes), `sha256`, `media_type` and the page counts are those of the version that was read last; it is served only
    when `served_version` equals `latest_version`. `pinned_version` is the one that a person rolled back to. `readers` are the
    document's own, else its source's; None: open.
    """

    document_id: uuid.UUID
    source: str
    namespace: str
    path: str
    title: str | None
    url: str | None
    tags: list[str]
    metadata: dict[str, Any]
    readers: list[str] | None
    state: str
    reason_code: str | None
    reason: str | None
    searchable: bool
    served_version: int | None
    latest_version: int | None
    pinned_version: int | None
    chunk_count: int
    size: int | None
    sha256: bytes | None
    media_type: str | None
    page_count: int | None
    pages_with_text: int | None
    source_modified: datetime | None
    last_indexed: datetime | None
    created_at: datetime
    changed_at: datetime


_DOCUMENT: LiteralString = """
    SELECT d.document_id, s.name AS source, n.name AS namespace, d.path, d.title, d.url, d.tags, d.metadata,
           coalesce(d.readers, s.readers) AS readers, d.state, d.reason_code, d.reason, d.searchable, d.served_version,
           d.latest_version, d.pinned_version, d.chunk_count, d.size, d.sha256, v.media_type, v.page_count, v.pages_with_text,
           d.source_modified, d.last_indexed, d.created_at, d.changed_at
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    LEFT JOIN docwell.version v ON v.document_id = d.document_id AND v.number = d.latest_version
"""
# Byte order by the operators of the index on path; every filter that is not set falls away when the statement is planned.
_LIST: LiteralString = (
    _DOCUMENT
    + """
    WHERE (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
      AND (%(source)s::text IS NULL OR s.name = %(source)s)
      AND (%(states)s::text[] IS NULL OR d.state = ANY (%(states)s))
      AND (%(since)s::timestamptz IS NULL OR d.changed_at >= %(since)s)
      AND (%(path)s::text IS NULL OR d.path ~ %(path)s)
      AND (%(document)s::uuid IS NULL OR d.document_id = %(document)s)
      AND (%(after_path)s::text IS NULL OR d.path ~>=~ %(after_path)s)
      AND (%(after_path)s::text IS NULL OR d.path ~>~ %(after_path)s OR d.document_id > %(after_id)s::uuid)
    ORDER BY d.path USING ~<~, d.document_id
    LIMIT %(limit)s
"""
)


def list_documents(
    connection: Connection[Any], filters: Filters, *, limit: int | None = None, cursor: str | None = None
) -> Page[DocumentRow]:
    """Documents in byte order of their paths: all of them, or `limit` after `cursor`.

    `since` asks for what changed since then.

    Raises:
        BadQuestion: the cursor is none of this list.
    """
    after_path, after_id = (None, None) if cursor is None else read_cursor(cursor, 2)
    values = {
        **filters.bound(),
        "after_path": after_path,
        "after_id": None if after_id is None else uuid_key(after_id),
        "limit": None if limit is None else limit + 1,
    }
    with connection.cursor(row_factory=class_row(DocumentRow)) as rows:
        found, more = cut(rows.execute(_LIST, values).fetchall(), limit)
    return Page(rows=found, next_cursor=write_cursor(found[-1].path, found[-1].document_id) if more else None)


def get_document(connection: Connection[Any], document_id: uuid.UUID) -> DocumentRow:
    """One document.

    Raises:
        Unknown: there is none of this id.
    """
    with connection.cursor(row_factory=class_row(DocumentRow)) as cursor:
        found = cursor.execute(_DOCUMENT + " WHERE d.document_id = %s", (document_id,)).fetchone()
    if found is None:
        raise unknown_document(str(document_id))
    return found


def facts(row: DocumentRow) -> dict[str, Any]:
    """A document's facts by their names."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def unknown_document(name: str, hint: str = "") -> Unknown:
    """The error for a document that is not there."""
    return Unknown(f"There is no document {name!r}.{hint or ' `docwell documents list` shows all.'}", code="unknown_document")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One version of a document. `served` marks the one that searches find."""

    number: int
    served: bool
    state: str
    reason_code: str | None
    reason: str | None
    sha256: bytes
    size: int
    source_modified: datetime | None
    media_type: str | None
    title: str | None
    encoding: str | None
    page_count: int | None
    pages_with_text: int | None
    chunk_count: int
    warnings: list[str]
    fingerprint: str
    created_at: datetime
    published_at: datetime | None


_VERSIONS: LiteralString = """
    SELECT v.number, v.version_id IS NOT DISTINCT FROM d.served_version_id AS served, v.state, v.reason_code, v.reason, v.sha256,
           v.size, v.source_modified, v.media_type, v.title, v.encoding, v.page_count, v.pages_with_text, v.chunk_count,
           v.warnings, v.fingerprint, v.created_at, v.published_at
    FROM docwell.version v JOIN docwell.document d USING (document_id)
    WHERE v.document_id = %s
    ORDER BY v.number DESC
"""


def list_versions(connection: Connection[Any], document_id: uuid.UUID) -> list[VersionRow]:
    """The versions that are kept, newest first."""
    with connection.cursor(row_factory=class_row(VersionRow)) as cursor:
        return cursor.execute(_VERSIONS, (document_id,)).fetchall()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """A chunk and its place: pages, lines, slides and rows are 1-based and inclusive, None when not known."""

    ordinal: int
    chunk_id: uuid.UUID
    kind: str
    section: str | None
    symbol: str | None
    language: str | None
    page_start: int | None
    page_end: int | None
    page_label: str | None
    line_start: int | None
    line_end: int | None
    slide: int | None
    sheet: str | None
    row_start: int | None
    row_end: int | None
    attachment: str | None
    tokens: int
    text: str


_CHUNKS: LiteralString = """
    SELECT place.ordinal, c.chunk_id, c.kind, c.section, c.symbol, c.language, place.page_start, place.page_end,
           place.page_label, place.line_start, place.line_end, place.slide, place.sheet, place.row_start, place.row_end,
           place.attachment, c.tokens, c.text
    FROM docwell.document d
    JOIN docwell.version v ON v.document_id = d.document_id AND v.number = coalesce(%(version)s::integer, d.served_version)
    JOIN docwell.version_chunk place ON place.version_id = v.version_id
    JOIN docwell.chunk c ON c.audience_id = place.audience_id AND c.chunk_id = place.chunk_id
    WHERE d.document_id = %(document)s AND place.ordinal > %(after)s
    ORDER BY place.ordinal
    LIMIT %(limit)s
"""


def stream_chunks(connection: Connection[Any], document_id: uuid.UUID, *, version: int | None = None) -> Iterator[ChunkRow]:
    """The chunks of the served version, or of version number `version`, in reading order; streamed, however many there are."""
    values = {"document": document_id, "version": version, "after": -1, "limit": None}
    with (
        connection.transaction(),
        connection.cursor(name="document_chunks", row_factory=class_row(ChunkRow)) as cursor,
    ):
        cursor.itersize = 500
        cursor.execute(_CHUNKS, values)
        yield from cursor


def page_chunks(
    connection: Connection[Any], document_id: uuid.UUID, *, limit: int, version: int | None = None, cursor: str | None = None
) -> Page[ChunkRow]:
    """`limit` chunks after `cursor`.

    Raises:
        BadQuestion: the cursor is none of this list.
    """
    after = -1 if cursor is None else _ordinal(read_cursor(cursor, 1)[0])
    values = {"document": document_id, "version": version, "after": after, "limit": limit + 1}
    with connection.cursor(row_factory=class_row(ChunkRow)) as rows:
        found, more = cut(rows.execute(_CHUNKS, values).fetchall(), limit)
    return Page(rows=found, next_cursor=write_cursor(found[-1].ordinal) if more else None)


def _ordinal(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_cursor()
    return int(text)
