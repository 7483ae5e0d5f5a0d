"""The usage log in the database: events as they are folded in, and what they add up to."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from shared.usage import UsageEvent

# In the order in which an erasure takes them, so that neither waits for the other while it is waited for.
_HOLD_DOCUMENTS: LiteralString = """
    SELECT document_id FROM docwell.document WHERE document_id = ANY (%s) ORDER BY document_id FOR KEY SHARE
"""
_ADD_EVENTS: LiteralString = """
    INSERT INTO docwell.usage_event
        (stream_id, at, kind, principal, outcome, milliseconds, search_id, namespace, source, continued, query)
    SELECT * FROM unnest(%(stream_ids)s::text[], %(at)s::timestamptz[], %(kinds)s::text[], %(principals)s::text[],
                         %(outcomes)s::text[], %(milliseconds)s::real[], %(search_ids)s::text[], %(namespaces)s::text[],
                         %(sources)s::text[], %(continued)s::boolean[], %(queries)s::text[])
    ORDER BY 1
    ON CONFLICT (stream_id) DO NOTHING
    RETURNING stream_id
"""
_ADD_PASSAGES: LiteralString = """
    INSERT INTO docwell.usage_passage (stream_id, ordinal, document_id, chunk_id)
    SELECT * FROM unnest(%(stream_ids)s::text[], %(ordinals)s::integer[], %(documents)s::uuid[], %(chunks)s::uuid[])
"""


def add_events(connection: Connection[Any], events: Mapping[str, UsageEvent]) -> int:
    """Add events by the id that the stream gave them; returns how many were new. One that is there already changes nothing.

    Of a document that is gone nothing is noted, nor the question that led to it: it may have been erased. A read of one is none.
    """
    named = {document for event in events.values() for document, _ in event.passages}
    there = {row[0] for row in connection.execute(_HOLD_DOCUMENTS, (list(named),)).fetchall()}
    kept = {stream_id: event for stream_id, event in events.items() if not _only_of_gone(event, there)}
    values: dict[str, Any] = {
        "stream_ids": list(kept),
        "at": [event.at for event in kept.values()],
        "kinds": [event.kind for event in kept.values()],
        "principals": [event.principal for event in kept.values()],
        "outcomes": [event.outcome for event in kept.values()],
        "milliseconds": [event.milliseconds for event in kept.values()],
        "search_ids": [event.search_id for event in kept.values()],
        "namespaces": [event.namespace for event in kept.values()],
        "sources": [event.source for event in kept.values()],
        "continued": [event.continued for event in kept.values()],
        "queries": [event.query if all(one in there for one, _ in event.passages) else None for event in kept.values()],
    }
    new = [row[0] for row in connection.execute(_ADD_EVENTS, values).fetchall()]
    rows = [(stream_id, ordinal, *passage) for stream_id in new for ordinal, passage in _held(kept[stream_id], there)]
    if rows:
        stream_ids, ordinals, documents, chunks = zip(*rows, strict=True)
        passages = {
            "stream_ids": list(stream_ids),
            "ordinals": list(ordinals),
            "documents": list(documents),
            "chunks": list(chunks),
        }
        connection.execute(_ADD_PASSAGES, passages)
    return len(new)


def _only_of_gone(event: UsageEvent, there: Collection[uuid.UUID]) -> bool:
    return event.kind == "read" and bool(event.passages) and not any(document in there for document, _ in event.passages)


def _held(event: UsageEvent, there: Collection[uuid.UUID]) -> Iterator[tuple[int, tuple[uuid.UUID, uuid.UUID]]]:
    return ((ordinal, passage) for ordinal, passage in enumerate(event.passages) if passage[0] in there)


_EXPIRE: LiteralString = """
    DELETE FROM docwell.usage_event WHERE stream_id IN (
        SELECT stream_id FROM docwell.usage_event WHERE at < now() - make_interval(days => %(days)s) LIMIT %(most)s
    )
"""


def expire(connection: Connection[Any], *, days: int, most: int = 10_000) -> int:
    """Remove events that are older, at most so many; returns how many went."""
    return connection.execute(_EXPIRE, {"days": days, "most": most}).rowcount


_FORGET_QUERIES: LiteralString = """
    UPDATE docwell.usage_event SET query = NULL
    WHERE query IS NOT NULL AND stream_id IN (SELECT stream_id FROM docwell.usage_passage WHERE document_id = %(document)s)
"""
_FORGET_READS: LiteralString = """
    DELETE FROM docwell.usage_event
    WHERE kind = 'read' AND stream_id IN (SELECT stream_id FROM docwell.usage_passage WHERE document_id = %(document)s)
"""
_FORGET_PASSAGES: LiteralString = "DELETE FROM docwell.usage_passage WHERE document_id = %(document)s"


def forget(connection: Connection[Any], document_id: uuid.UUID) -> int:
    """Remove a document from the log: its reads, its passages, and the text of the questions that led to it. Returns the number
    of its passages."""
    values = {"document": document_id}
    connection.execute(_FORGET_QUERIES, values)
    count = connection.execute("SELECT count(*) FROM docwell.usage_passage WHERE document_id = %(document)s", values).fetchone()
    connection.execute(_FORGET_READS, values)
    connection.execute(_FORGET_PASSAGES, values)
    return int(count[0]) if count else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be reported: since when, and of which namespace and source."""

    since: datetime
    namespace: str | None = None
    source: str | None = None
    limit: int | None = None

    @property
    def values(self) -> dict[str, Any]:
        """As the statements take it."""
        return {"since": self.since, "namespace": self.namespace, "source": self.source, "limit": self.limit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Calls of the period; where a namespace or source is asked for, those that were kept to it and those whose answers hold a
    document of it. `first_at` is when the log begins, whatever is asked for."""

    searches: int
    answered: int
    without_match: int
    empty: int
    failed: int
    reads: int
    first_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedDocument:
    """How many searches returned a document, how often it was read, and when last."""

    document_id: uuid.UUID
    source: str
    namespace: str
    path: str
    returned: int
    read: int
    last_used: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedDocument:
    """A document that could be found all the time and was not."""

    document_id: uuid.UUID
    source: str
    namespace: str
    path: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Searches without a match that asked the same; `query` is None where the log holds no texts."""

    query: str | None
    searches: int
    last_asked: datetime


# A search that ran out of further passages did match.
_TOTALS: LiteralString = """
    SELECT count(*) FILTER (WHERE kind = 'search') AS searches,
           count(*) FILTER (WHERE kind = 'search' AND (outcome = 'ok' OR outcome = 'no_match' AND continued)) AS answered,
           count(*) FILTER (WHERE kind = 'search' AND outcome = 'no_match' AND NOT continued) AS without_match,
           count(*) FILTER (WHERE kind = 'search' AND outcome = 'index_empty') AS empty,
           count(*) FILTER (WHERE kind = 'search' AND outcome NOT IN ('ok', 'no_match', 'index_empty')) AS failed,
           count(*) FILTER (WHERE kind = 'read' AND outcome = 'ok') AS reads,
           (SELECT min(at) FROM docwell.usage_event) AS first_at
    FROM docwell.usage_event e
    WHERE at >= %(since)s
      AND ((%(namespace)s::text IS NULL OR e.namespace = %(namespace)s) AND (%(source)s::text IS NULL OR e.source = %(source)s)
           OR EXISTS (SELECT 1 FROM docwell.usage_passage p
                      JOIN docwell.document d USING (document_id)
                      JOIN docwell.source s USING (source_id)
                      JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
                      WHERE p.stream_id = e.stream_id
                        AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
                        AND (%(source)s::text IS NULL OR s.name = %(source)s)))
"""
_USED: LiteralString = """
    SELECT d.document_id, s.name AS source, n.name AS namespace, d.path, used.returned, used.read, used.last_used
    FROM (
        SELECT p.document_id, count(DISTINCT e.stream_id) FILTER (WHERE e.kind = 'search') AS returned,
               count(DISTINCT e.stream_id) FILTER (WHERE e.kind = 'read') AS read, max(e.at) AS last_used
        FROM docwell.usage_event e JOIN docwell.usage_passage p USING (stream_id)
        WHERE e.at >= %(since)s
        GROUP BY p.document_id
    ) AS used
    JOIN docwell.document d USING (document_id)
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE (%(namespace)s::text IS NULL OR n.name = %(namespace)s) AND (%(source)s::text IS NULL OR s.name = %(source)s)
    ORDER BY used.returned + used.read DESC, used.last_used DESC, d.path, d.document_id
    LIMIT %(limit)s
"""
# Of a document with many versions the first ones are gone; then it counts as searchable since it came.
_UNUSED: LiteralString = """
    SELECT d.document_id, s.name AS source, n.name AS namespace, d.path, d.created_at
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE d.searchable AND d.created_at < %(since)s
      AND (SELECT min(v.published_at) < %(since)s OR min(v.number) > 1 FROM docwell.version v
           WHERE v.document_id = d.document_id AND v.published_at IS NOT NULL)
      AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s) AND (%(source)s::text IS NULL OR s.name = %(source)s)
      AND NOT EXISTS (SELECT 1 FROM docwell.usage_passage p JOIN docwell.usage_event e USING (stream_id)
                      WHERE p.document_id = d.document_id AND e.at >= %(since)s)
    ORDER BY d.created_at, d.path, d.document_id
    LIMIT %(limit)s
"""
_UNANSWERED: LiteralString = """
    SELECT query, count(*) AS searches, max(at) AS last_asked
    FROM docwell.usage_event
    WHERE at >= %(since)s AND kind = 'search' AND outcome = 'no_match' AND NOT continued
      AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s) AND (%(source)s::text IS NULL OR source = %(source)s)
    GROUP BY query
    ORDER BY searches DESC, last_asked DESC, query
    LIMIT %(limit)s
"""


def read_totals(connection: Connection[Any], asked: Asked) -> Totals:
    """How many calls there were."""
    with connection.cursor(row_factory=class_row(Totals)) as cursor:
        found = cursor.execute(_TOTALS, asked.values).fetchone()
    if found is None:
        raise AssertionError("an aggregate has a row")
    return found


def used_documents(connection: Connection[Any], asked: Asked) -> Sequence[UsedDocument]:
    """The documents that were returned or read, those used most first."""
    with connection.cursor(row_factory=class_row(UsedDocument)) as cursor:
        return cursor.execute(_USED, asked.values).fetchall()


def unused_documents(connection: Connection[Any], asked: Asked) -> Sequence[UnusedDocument]:
    """The documents that were searchable before the period began and that no answer of it holds, oldest first."""
    with connection.cursor(row_factory=class_row(UnusedDocument)) as cursor:
        return cursor.execute(_UNUSED, asked.values).fetchall()


def unanswered(connection: Connection[Any], asked: Asked) -> Sequence[Unanswered]:
    """Searches that found nothing, the most frequent first; of those kept to a namespace or source where one is asked for."""
    with connection.cursor(row_factory=class_row(Unanswered)) as cursor:
        return cursor.execute(_UNANSWERED, asked.values).fetchall()
