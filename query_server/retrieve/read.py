"""A document's text in order, whole or around a place."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, LiteralString, cast

from psycopg import Connection
from psycopg.rows import class_row

from query_server.answers import DocumentSummary, Notice, Piece, ReadAnswer
from query_server.cursor import Cursor, CursorExpired, decode_cursor, question_hash
from query_server.retrieve.budget import MARK, cost, cut_text, take
from query_server.retrieve.citation import cite
from query_server.retrieve.extraction import read_notices
from query_server.retrieve.listing import find_document
from query_server.retrieve.overlap import without_overlap
from query_server.retrieve.ranges import ranges_said, read_ranges
from query_server.retrieve.window import part_of
from shared.documents import Span
from shared.errors import PermanentError

NEIGHBOURS = 1
"""Chunks before and after the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A document and, if wanted, a place in it: pages or lines (1-based, inclusive), or a chunk with its neighbours.

    Where a file has slides instead of pages, or rows instead of lines, these are meant.
    """

    document_id: uuid.UUID
    page_start: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    chunk_id: uuid.UUID | None = None
    max_tokens: int = 8000
    cursor: str = ""

    def __post_init__(self) -> None:
        """A range that ends before it begins is a mistake of whoever asks, not an empty answer."""
        for what, start, end in (
            ("page", self.page_start, self.page_end),
            ("line", self.line_start, self.line_end),
        ):
            if start is not None and end is not None and end < start:
                raise PermanentError(f"{what}_end {end} lies before {what}_start {start}.", code="bad_argument")

    @property
    def question(self) -> str:
        """What a cursor is bound to."""
        return question_hash(self.document_id, self.page_start, self.page_end, self.line_start, self.line_end, self.chunk_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    ordinal: int
    chunk_id: uuid.UUID
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
    kind: str
    text: str
    section: str | None
    symbol: str | None
    language: str | None
    tokens: int


_CHUNKS: LiteralString = """
    WITH asked AS (
        SELECT place.ordinal FROM docwell.version_chunk place JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE d.document_id = %(document)s AND place.chunk_id = %(chunk)s
    )
    SELECT place.ordinal, place.chunk_id, place.page_start, place.page_end, place.page_label, place.line_start,
           place.line_end, place.slide, place.sheet, place.row_start, place.row_end, place.attachment,
           c.kind, c.text, c.section, c.symbol, c.language, c.tokens
    FROM docwell.document d
    JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
    JOIN docwell.chunk c ON c.audience_id = place.audience_id AND c.chunk_id = place.chunk_id
    WHERE d.document_id = %(document)s
      AND (%(chunk)s::uuid IS NULL
           OR EXISTS (SELECT 1 FROM asked WHERE abs(asked.ordinal - place.ordinal) <= %(neighbours)s))
      AND (%(page_start)s::integer IS NULL OR coalesce(place.page_end, place.page_start, place.slide) >= %(page_start)s)
      AND (%(page_end)s::integer IS NULL OR coalesce(place.page_start, place.slide) <= %(page_end)s)
      AND (%(line_start)s::integer IS NULL
           OR coalesce(place.line_end, place.line_start, place.row_end, place.row_start) >= %(line_start)s)
      AND (%(line_end)s::integer IS NULL OR coalesce(place.line_start, place.row_start) <= %(line_end)s)
    ORDER BY place.ordinal
"""
_INDEX_VERSION: LiteralString = """
    SELECT a.version FROM docwell.audience a JOIN docwell.document d USING (audience_id) WHERE d.document_id = %s
"""


def read_document(connection: Connection[Any], request: ReadRequest) -> ReadAnswer:
    """The text of the served version, as far as it was asked for and fits.

    Raises:
        PermanentError: `not_found`, there is no such document in sight.
        CursorExpired: another version is served since the cursor was made.
    """
    document = find_document(connection, request.document_id)
    if document is None:
        raise PermanentError(
            f"There is no document {request.document_id}. Take document_id from search_documents or list_documents.",
            code="not_found",
        )
    version = document.served_version or 0
    cursor = decode_cursor(request.cursor, request.question)
    if cursor is not None and cursor.index_version != version:
        raise CursorExpired
    rows = _chunks(connection, request)
    start = min(cursor.offset, len(rows)) if cursor is not None else 0
    wanted = rows[start:]
    taken = take(
        [cost(row.tokens, document.path, row.section) for row in wanted], [row.tokens for row in wanted], request.max_tokens
    )
    shown = wanted[: taken.count]
    reached = start + taken.count
    notices = read_notices(connection, request.document_id)
    index_version = connection.execute(_INDEX_VERSION, (request.document_id,)).fetchone()
    return ReadAnswer(
        document=document,
        version=version,
        pieces=tuple(_pieces(request, document.path, shown, rows[start - 1].text if start else "", taken.cut)),
        tokens_used=taken.tokens,
        dropped=taken.dropped,
        next_cursor=(
            Cursor(question=request.question, index_version=version, offset=reached).encode() if reached < len(rows) else None
        ),
        index_version=index_version[0] if index_version is not None else 0,
        warnings=(*_warnings(taken.cut is not None), *notices),
        message=None if rows else _nothing(connection, request, document),
    )


def _chunks(connection: Connection[Any], request: ReadRequest) -> list[_Row]:
    values = {
        "document": request.document_id,
        "chunk": request.chunk_id,
        "neighbours": NEIGHBOURS,
        "page_start": request.page_start,
        "page_end": request.page_end,
        "line_start": request.line_start,
        "line_end": request.line_end,
    }
    with connection.cursor(row_factory=class_row(_Row)) as cursor:
        return cursor.execute(_CHUNKS, values, prepare=False).fetchall()


def _pieces(request: ReadRequest, path: str, rows: Sequence[_Row], before: str, cut: int | None) -> list[Piece]:
    pieces = []
    for row in rows:
        if cut is not None:
            text = cut_text(row.text, row.tokens, cut)
            begins, ends = 0, len(text.removesuffix(MARK))
        else:
            text = without_overlap(before, row.text).lstrip("\n")
            begins, ends = len(row.text) - len(text), len(row.text)
        # A caption stands between passages that go on behind it.
        before = before if row.kind == "caption" else row.text
        whole = Span(**{field.name: getattr(row, field.name) for field in fields(Span)})
        span = part_of(whole, row.text, begins, ends, is_table=row.kind == "table")
        if not text.strip() or (begins and _is_outside(request, span)):
            continue
        pieces.append(
            Piece(
                chunk_id=row.chunk_id,
                text=text,
                citation=cite(path, span, row.section, row.kind),
                kind=cast('Literal["text", "table", "code", "caption"]', row.kind),
                section=row.section,
                **asdict(span),
                language=row.language,
                symbol=row.symbol,
            )
        )
    return pieces


def _is_outside(request: ReadRequest, span: Span) -> bool:
    """Whether what is left of a passage without its overlap holds none of the lines that were asked for."""
    if request.chunk_id is not None or span.line_start is None or span.line_end is None:
        return False
    first, last = request.line_start, request.line_end
    return (first is not None and span.line_end < first) or (last is not None and span.line_start > last)


def _warnings(cut: bool) -> tuple[Notice, ...]:
    if not cut:
        return ()
    return (Notice(code="text_cut", message="The passage is longer than max_tokens and was cut. Ask with a larger max_tokens."),)


def _nothing(connection: Connection[Any], request: ReadRequest, document: DocumentSummary) -> str:
    if document.searchable and request.chunk_id is not None:
        return "The version that is served has no such passage there. Take chunk_id from search_documents, or read by range."
    if document.searchable:
        return f"The document has no text in that range. {ranges_said(read_ranges(connection, request.document_id))}"
    return f"The document has no text that can be read now: it is {document.state}." + (
        f" {document.reason}" if document.reason else ""
    )
