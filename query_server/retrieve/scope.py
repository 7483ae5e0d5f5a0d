"""What a search looks at, measured: audiences, sizes, statistics and freshness."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.filters import DOCUMENT_FILTER, Filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The visible part of the index that the filters leave.

    `versions` are those of the audiences, in their order. `chunks` and `terms` are BM25's statistics: of the audiences, whatever
    the document filters. `searched` counts the chunks that the filters leave, a chunk in several documents several times;
    `unread` documents of which no text, or not all of it, could be read. `index_version` rises with every change in sight.
    """

    audiences: tuple[int, ...]
    versions: tuple[int, ...]
    index_version: int
    chunks: int
    terms: int
    searched: int
    documents: int
    pending: int
    unread: int
    newest_sweep: datetime | None
    stale: bool
    narrowed: bool

    @property
    def average_length(self) -> float:
        """Terms of an average chunk, 0.0 of an empty index."""
        return self.terms / self.chunks if self.chunks else 0.0

    @property
    def empty(self) -> bool:
        """Nothing that could be found."""
        return self.searched == 0


_AUDIENCES: LiteralString = """
    SELECT a.audience_id, a.version, a.chunk_count, a.term_total
    FROM docwell.audience a JOIN docwell.namespace n USING (namespace_id)
    WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s
    ORDER BY a.audience_id
"""
_DOCUMENTS: LiteralString = f"""
    SELECT count(*) FILTER (WHERE d.searchable), coalesce(sum(d.chunk_count) FILTER (WHERE d.searchable), 0)::bigint,
           count(*) FILTER (WHERE d.state IN ('queued', 'indexing')),
           count(*) FILTER (WHERE d.state IN ('needs_ocr', 'partial', 'failed'))
    FROM docwell.document d
    WHERE d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
"""
_SWEEPS: LiteralString = """
    SELECT s.newest_sweep FROM docwell.source s LEFT JOIN docwell.namespace n USING (namespace_id)
    WHERE s.type = 'folder'
      AND (%(source)s::text IS NULL OR s.name = %(source)s)
      AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
"""


def measure(connection: Connection[Any], filters: Filters, *, now: datetime, rescan_seconds: float) -> Scope:
    """Measure the scope in the connection's snapshot.

    The newest sweep of several folders is the oldest of theirs: that is what can be promised of all. It is stale after three
    intervals without a complete one.
    """
    narrowing = {"namespace": filters.namespace or None, "source": filters.source or None}
    rows = connection.execute(_AUDIENCES, narrowing).fetchall()
    audiences = [row[0] for row in rows]
    documents, searched, pending, unread = _count(connection, filters, audiences)
    sweeps = [row[0] for row in connection.execute(_SWEEPS, narrowing).fetchall()]
    complete = bool(sweeps) and None not in sweeps
    newest = min(sweeps) if complete else None
    return Scope(
        audiences=tuple(audiences),
        versions=tuple(row[1] for row in rows),
        index_version=sum(row[1] for row in rows),
        chunks=sum(row[2] for row in rows),
        terms=sum(row[3] for row in rows),
        searched=searched,
        documents=documents,
        pending=pending,
        unread=unread,
        newest_sweep=newest,
        stale=bool(sweeps) and (newest is None or (now - newest).total_seconds() > 3 * rescan_seconds),
        narrowed=filters.narrows_documents,
    )


def _count(connection: Connection[Any], filters: Filters, audiences: Sequence[int]) -> tuple[int, int, int, int]:
    values = {"audiences": list(audiences), **filters.parameters}
    row = connection.execute(_DOCUMENTS, values, prepare=False).fetchone()
    return (int(row[0]), int(row[1]), int(row[2]), int(row[3])) if row is not None else (0, 0, 0, 0)
