"""What a search looks at, measured: audiences, sizes, statistics and freshness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.filters import Filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The visible part of the index that the filters leave.

    `versions` are those of the audiences, in their order. `chunks` and `terms` are BM25's statistics: of the audiences, whatever
    the document filters. `searched` is how many chunks the filters leave at most: one in several documents can count several
    times, and those of other kinds count too. `documents` are those that can be found, 0 where they were not counted; `unread`
    those of which no text, or not all of it, could be read. `index_version` rises with every change in sight. `sources` and
    `namespaces` are the names of those in sight, by number; `confined` are sources whose text goes to no paid service.
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
    sources: Mapping[int, str] = field(default_factory=dict)
    namespaces: Mapping[int, str] = field(default_factory=dict)
    confined: frozenset[int] = frozenset()

    @property
    def average_length(self) -> float:
        """Terms of an average chunk, 0.0 of an empty index."""
        return self.terms / self.chunks if self.chunks else 0.0

    @property
    def empty(self) -> bool:
        """Nothing that could be found."""
        return self.searched == 0


# `state` stands in the conditions, not in a FILTER: the index on (audience_id, state) then reads the few that wait, and the
# number of all documents costs nothing. Names come along, since the policies of these tables cost more than the rows.
_MEASURE: LiteralString = """
    WITH audiences AS MATERIALIZED (
        SELECT a.audience_id, a.version, a.chunk_count, a.term_total, n.namespace_id, n.name
        FROM docwell.audience a JOIN docwell.namespace n USING (namespace_id)
        WHERE %(namespace)s::text IS NULL OR n.name = %(namespace)s
        ORDER BY a.audience_id
    ), listed AS MATERIALIZED (
        SELECT coalesce(array_agg(audience_id), '{}') AS ids, array_agg(version) AS versions,
               coalesce(sum(chunk_count), 0)::bigint AS chunks, coalesce(sum(term_total), 0)::bigint AS terms,
               array_agg(namespace_id) AS namespaces, array_agg(name) AS names
        FROM audiences
    ), sources AS MATERIALIZED (
        SELECT array_agg(s.source_id) AS ids, array_agg(s.name) AS names,
               array_agg(s.source_id) FILTER (WHERE NOT s.enrich) AS confined,
               array_agg(s.newest_sweep) FILTER (
                   WHERE s.type = 'folder'
                     AND (%(source)s::text IS NULL OR s.name = %(source)s)
                     AND (%(namespace)s::text IS NULL OR s.namespace_id IN (SELECT namespace_id FROM audiences))
               ) AS sweeps
        FROM docwell.source s
    )
    SELECT listed.ids, listed.versions, listed.chunks, listed.terms, listed.namespaces, listed.names,
           sources.ids, sources.names, sources.confined, sources.sweeps,
"""
_WAITING: LiteralString = """
    (SELECT count(*) FROM docwell.document d
     WHERE d.audience_id = ANY ((SELECT ids FROM listed)::integer[]) AND d.state IN ('queued', 'indexing')
"""
_UNREAD: LiteralString = """
    (SELECT count(*) FROM docwell.document d
     WHERE d.audience_id = ANY ((SELECT ids FROM listed)::integer[]) AND d.state IN ('needs_ocr', 'partial', 'failed')
"""
_SERVED: LiteralString = """
    (SELECT ARRAY[count(*), coalesce(sum(d.chunk_count), 0)] FROM docwell.document d
     WHERE d.audience_id = ANY ((SELECT ids FROM listed)::integer[]) AND d.searchable
"""


def measure(
    connection: Connection[Any], filters: Filters, *, now: datetime, rescan_seconds: float, count_documents: bool = False
) -> Scope:
    """Measure the scope in the connection's snapshot, in one statement.

    The newest sweep of several folders is the oldest of theirs: that is what can be promised of all. It is stale after three
    intervals without a complete one. Counting the documents of an index that nothing narrows reads a row for each.
    """
    narrowed = filters.narrows_documents
    counted = narrowed or count_documents
    on: LiteralString = filters.on_documents
    served: LiteralString = _SERVED + on + ")" if counted else "NULL"
    statement: LiteralString = _MEASURE + _WAITING + on + ")," + _UNREAD + on + ")," + served + " FROM listed CROSS JOIN sources"
    values = {"namespace": filters.namespace or None, "source": filters.source or None, **filters.parameters}
    (row,) = connection.execute(statement, values).fetchall()
    audiences, versions, chunks, terms, namespaces, names, source_ids, source_names, confined, sweeps, pending, unread, found = (
        row
    )
    sweeps = sweeps or []
    complete = bool(sweeps) and None not in sweeps
    newest = min(sweeps) if complete else None
    return Scope(
        audiences=tuple(audiences),
        versions=tuple(versions or ()),
        index_version=sum(versions or ()),
        chunks=chunks,
        terms=terms,
        searched=int(found[1]) if narrowed else chunks,
        documents=int(found[0]) if counted else 0,
        pending=pending,
        unread=unread,
        newest_sweep=newest,
        stale=bool(sweeps) and (newest is None or (now - newest).total_seconds() > 3 * rescan_seconds),
        narrowed=narrowed,
        sources=dict(zip(source_ids or (), source_names or (), strict=True)),
        namespaces=dict(zip(namespaces or (), names or (), strict=True)),
        confined=frozenset(confined or ()),
    )
