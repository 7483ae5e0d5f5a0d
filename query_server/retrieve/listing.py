"""Documents and sources as they are listed, and the state of the index."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import dict_row

from query_server.answers import DocumentSummary, ListAnswer, Notice, PathStatus, SourceStatus, StatusAnswer
from query_server.cursor import Cursor, decode_cursor, question_hash
from query_server.retrieve.filters import EVERYTHING, LISTED_FILTER, Filters
from query_server.retrieve.scope import Scope, measure
from query_server.retrieve.semantic import active_space
from shared.errors import PermanentError
from shared.text import normalise_path

MOST_AT_A_PATH = 20

NOT_TOLD = "It could not be looked through, or not whole. `docwell sources show` tells whoever runs Docwell why."
"""In place of a source's error, to those who do not see everything: it may name files and pages that they may not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """Documents to list: those that fit the filters, in this state, changed at or after this time."""

    filters: Filters = EVERYTHING
    state: str = ""
    changed_since: datetime | None = None
    limit: int = 50
    cursor: str = ""

    @property
    def question(self) -> str:
        """What a cursor is bound to."""
        return question_hash(self.filters, self.state, self.changed_since)


_COLUMNS: LiteralString = """
    SELECT d.document_id, d.path, s.name AS source, n.name AS namespace, d.state, d.searchable, d.chunk_count, d.title, d.url,
           d.served_version, d.latest_version, d.last_indexed, d.source_modified, d.changed_at, nullif(d.tags, '{}') AS tags,
           d.reason_code, d.reason
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
"""
# Pages follow the order of names, so what is published meanwhile neither repeats nor skips a document.
_LIST: LiteralString = f"""
    {_COLUMNS}
    WHERE (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
      AND (CASE WHEN %(state)s::text IS NULL THEN d.state <> 'deleted' ELSE d.state = %(state)s END)
      AND (%(since)s::timestamptz IS NULL OR d.changed_at >= %(since)s)
      AND {LISTED_FILTER}
      AND (%(after)s::uuid IS NULL OR (n.name, s.name, d.path, d.document_id) > (
          SELECT n.name, s.name, d.path, d.document_id
          FROM docwell.document d JOIN docwell.source s USING (source_id)
          JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
          WHERE d.document_id = %(after)s))
    ORDER BY n.name, s.name, d.path, d.document_id
    LIMIT %(limit)s
"""
_ONE: LiteralString = f"{_COLUMNS} WHERE d.document_id = %(document)s AND d.state <> 'deleted'"
_AT_PATH: LiteralString = f"""
    {_COLUMNS}
    WHERE d.state <> 'deleted' AND (d.path = %(path)s OR right(d.path, length(%(path)s) + 1) = '/' || %(path)s)
    ORDER BY d.path <> %(path)s, n.name, s.name, d.path LIMIT %(limit)s
"""
_BY_STATE: LiteralString = """
    SELECT d.state, count(*) FROM docwell.document d WHERE d.state <> 'deleted' GROUP BY d.state ORDER BY d.state
"""
_SOURCES: LiteralString = """
    SELECT s.name, s.type, s.paused, n.name AS namespace, s.newest_sweep, s.sweep_error,
           (SELECT count(*) FROM docwell.document d WHERE d.source_id = s.source_id AND d.state <> 'deleted') AS documents
    FROM docwell.source s LEFT JOIN docwell.namespace n USING (namespace_id)
    ORDER BY s.name
"""
_NAMESPACES: LiteralString = """
    SELECT n.name, n.description FROM docwell.namespace n ORDER BY n.name
"""


def _summary(row: dict[str, Any]) -> DocumentSummary:
    tags = row.pop("tags")
    return DocumentSummary(**row, tags=tuple(tags) if tags is not None else None)


def find_document(connection: Connection[Any], document_id: uuid.UUID) -> DocumentSummary | None:
    """The document, None when it is not there or not in sight."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_ONE, {"document": document_id}).fetchone()
    return None if row is None else _summary(row)


def list_documents(connection: Connection[Any], request: ListRequest, *, now: datetime, rescan_seconds: float) -> ListAnswer:
    """A page of documents by namespace, source and path.

    Raises:
        PermanentError: `bad_cursor`.
    """
    cursor = decode_cursor(request.cursor, request.question)
    after = _document_of(cursor)
    values = {
        "namespace": request.filters.namespace or None,
        "state": request.state or None,
        "since": request.changed_since,
        "after": after,
        "limit": request.limit + 1,
        **request.filters.parameters,
    }
    scope = measure(connection, request.filters, now=now, rescan_seconds=rescan_seconds)
    with connection.cursor(row_factory=dict_row) as cursor_:
        rows = cursor_.execute(_LIST, values, prepare=False).fetchall()
    shown = [_summary(row) for row in rows[: request.limit]]
    more = len(rows) > request.limit
    return ListAnswer(
        documents=tuple(shown),
        index_version=scope.index_version,
        next_cursor=(
            Cursor(question=request.question, index_version=0, offset=shown[-1].document_id.int).encode() if more else None
        ),
    )


def _document_of(cursor: Cursor | None) -> uuid.UUID | None:
    """A listing's cursor holds the last document that was shown, as a number."""
    if cursor is None:
        return None
    try:
        return uuid.UUID(int=cursor.offset)
    except ValueError:
        raise PermanentError("The cursor is damaged. Pass next_cursor on exactly as it was given.", code="bad_cursor") from None


def index_status(
    connection: Connection[Any], path: str, *, now: datetime, rescan_seconds: float, warming: bool, errors: bool
) -> StatusAnswer:
    """The state of all that is in sight and, for a path, the stage of each document there and the reason for it. `errors`: see
    `list_sources`."""
    scope = measure(connection, EVERYTHING, now=now, rescan_seconds=rescan_seconds)
    by_state = {str(state): int(count) for state, count in connection.execute(_BY_STATE).fetchall()}
    space = active_space(connection)
    return StatusAnswer(
        documents=sum(by_state.values()),
        by_state=by_state,
        chunks=scope.chunks,
        pending=scope.pending,
        index_version=scope.index_version,
        newest_sweep=scope.newest_sweep,
        stale=scope.stale,
        warming=warming,
        embedding_model=space.model if space is not None else None,
        sources=list_sources(connection, now=now, rescan_seconds=rescan_seconds, errors=errors),
        warnings=tuple(_warnings(by_state, scope)),
        path=_at_path(connection, path) if path else None,
    )


def list_sources(connection: Connection[Any], *, now: datetime, rescan_seconds: float, errors: bool) -> tuple[SourceStatus, ...]:
    """The sources in sight by name; with `errors` what their newest sweeps met, else only that it was something."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_SOURCES).fetchall()
    for row in rows:
        if not errors and row["sweep_error"] is not None:
            row["sweep_error"] = NOT_TOLD
    return tuple(SourceStatus(**row, stale=_is_stale(row, now, rescan_seconds)) for row in rows)


def list_namespaces(connection: Connection[Any]) -> list[tuple[str, str | None]]:
    """Names and descriptions of the namespaces in sight."""
    return [(row[0], row[1]) for row in connection.execute(_NAMESPACES).fetchall()]


def _is_stale(row: dict[str, Any], now: datetime, rescan_seconds: float) -> bool:
    if row["type"] != "folder":
        return False
    newest: datetime | None = row["newest_sweep"]
    return newest is None or (now - newest).total_seconds() > 3 * rescan_seconds


def _at_path(connection: Connection[Any], path: str) -> PathStatus:
    wanted = normalise_path(path.strip())
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_AT_PATH, {"path": wanted, "limit": MOST_AT_A_PATH}).fetchall()
    return PathStatus(path=path, known=bool(rows), documents=tuple(map(_summary, rows)))


def _warnings(by_state: dict[str, int], scope: Scope) -> list[Notice]:
    sentences = {
        "needs_ocr": "Pictures without text, which cannot be searched until they are read by OCR: {}.",
        "partial": "Searchable only in part, since some pages have no text: {}.",
        "failed": "Could not be indexed: {}; list_documents with state=failed gives the reasons.",
    }
    found = [
        Notice(code=state, message=sentence.format(by_state[state]))
        for state, sentence in sentences.items()
        if by_state.get(state)
    ]
    if scope.stale:
        found.append(Notice(code="stale", message="At least one folder was not completely looked through for a long time."))
    return found
