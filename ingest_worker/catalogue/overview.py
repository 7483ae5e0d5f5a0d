"""The state of the whole: sources with their documents, and one screen of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue import ledger
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.delivery_listing import DeliveryCounts, count_deliveries
from ingest_worker.catalogue.ledger import Total
from shared.documents import DocumentState, JobState

COST_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A source with its documents by state; `namespace` is None where each request names its own.

    `watched`: its watcher gave a sign of life within half a minute; `watch_mode` is `native` or `poll`, None while its folder is
    away, and `watch_notice` what a person should know of it. `sweep_requested` is a request that was not answered yet.
    `sweep_counts` are those of the newest sweep, complete or not; `left_out` counts entries that it did not take, and
    `held_deletes` documents whose files are gone and that wait for a person's word.
    """

    name: str
    type: str
    namespace: str | None
    root: str | None
    tags: list[str]
    readers: list[str] | None
    max_bytes: int | None
    paused: bool
    removed_at: datetime | None
    watched: bool
    watch_mode: str | None
    watch_notice: str | None
    newest_sweep: datetime | None
    sweep_error: str | None
    sweep_requested: datetime | None
    sweep_counts: dict[str, int]
    left_out: int
    held_deletes: int
    approved_at: datetime | None
    documents: int
    searchable: int
    by_state: dict[str, int]
    created_at: datetime


_SOURCES: LiteralString = """
    SELECT s.name, s.type, n.name AS namespace, s.root, s.tags, s.readers, s.max_bytes, s.paused, s.removed_at,
           coalesce(s.watcher_seen > now() - interval '30 seconds', false) AS watched, s.watch_mode, s.watch_notice,
           s.newest_sweep, s.sweep_error, s.sweep_requested, s.sweep_counts, s.left_out, s.held_deletes, s.approved_at,
           coalesce(counted.documents, 0) AS documents, coalesce(counted.searchable, 0) AS searchable,
           coalesce(counted.by_state, '{}') AS by_state, s.created_at
    FROM docwell.source s
    LEFT JOIN docwell.namespace n USING (namespace_id)
    LEFT JOIN (
        SELECT source_id, sum(documents) FILTER (WHERE state <> 'deleted')::bigint AS documents,
               sum(searchable)::bigint AS searchable, jsonb_object_agg(state, documents) AS by_state
        FROM (SELECT source_id, state, count(*) AS documents, count(*) FILTER (WHERE searchable) AS searchable
              FROM docwell.document GROUP BY source_id, state) AS states
        GROUP BY source_id
    ) AS counted ON counted.source_id = s.source_id
    WHERE (%(name)s::text IS NULL OR s.name = %(name)s)
      AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
      -- What was taken out is shown as long as something of it is in the index.
      AND (s.removed_at IS NULL OR %(name)s::text IS NOT NULL OR coalesce(counted.searchable, 0) > 0)
    ORDER BY s.name
"""


def list_sources(connection: Connection[Any], *, namespace: str | None = None) -> list[SourceRow]:
    """All sources by name, or those of one namespace. Deleted documents stand in `by_state` alone."""
    with connection.cursor(row_factory=class_row(SourceRow)) as cursor:
        return cursor.execute(_SOURCES, {"name": None, "namespace": namespace}).fetchall()


def get_source(connection: Connection[Any], name: str) -> SourceRow:
    """One source.

    Raises:
        Unknown: there is none of this name.
    """
    with connection.cursor(row_factory=class_row(SourceRow)) as cursor:
        found = cursor.execute(_SOURCES, {"name": name, "namespace": None}).fetchone()
    if found is None:
        raise Unknown(f"There is no source {name!r}. `docwell sources list` shows all.", code="unknown_source")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCounts:
    """How many documents there are; `total` leaves deleted ones out."""

    total: int
    searchable: int
    by_state: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs there are. `oldest_due_seconds` is how long the one that is due longest has waited."""

    by_state: dict[str, int]
    due: int
    oldest_due_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpace:
    """The embedding model whose vectors are searched."""

    provider: str
    model: str
    dimension: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCounts:
    """A namespace: its documents that are not deleted, its searchable chunks, and a number that every change raises."""

    name: str
    documents: int
    chunks: int
    index_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One screen of state. `chunks` are those that searches find; `database_bytes` is the whole database's size; `costs` are
    those of the last thirty days, by day, source, kind and model.
    """

    documents: DocumentCounts
    jobs: JobCounts
    sources: tuple[SourceRow, ...]
    namespaces: tuple[NamespaceCounts, ...]
    chunks: int
    embedding: EmbeddingSpace | None
    database_bytes: int
    schema_version: int
    deliveries: DeliveryCounts
    costs: tuple[Total, ...] = ()


_DOCUMENTS: LiteralString = "SELECT state, count(*), count(*) FILTER (WHERE searchable) FROM docwell.document GROUP BY state"
_JOBS: LiteralString = """
    SELECT state, count(*), count(*) FILTER (WHERE is_due),
           extract(epoch FROM now() - min(next_run_at) FILTER (WHERE is_due))::float8
    FROM (SELECT state, next_run_at, state IN ('queued', 'retrying') AND next_run_at <= now() AS is_due FROM docwell.job) AS j
    GROUP BY state
"""
_NAMESPACES: LiteralString = """
    SELECT n.name, (SELECT count(*) FROM docwell.document d WHERE d.namespace_id = n.namespace_id AND d.state <> 'deleted')
               AS documents,
           coalesce(sum(a.chunk_count), 0)::bigint AS chunks, coalesce(sum(a.version), 0)::bigint AS index_version
    FROM docwell.namespace n LEFT JOIN docwell.audience a USING (namespace_id)
    GROUP BY n.namespace_id ORDER BY n.name
"""
_SPACE: LiteralString = "SELECT provider, model, dimension, fingerprint FROM docwell.embedding_space WHERE state = 'active'"
_FACTS: LiteralString = "SELECT pg_database_size(current_database()), (SELECT max(version) FROM docwell.migration)"


def count_documents(connection: Connection[Any]) -> DocumentCounts:
    """Documents by state, with a zero for each state that none is in."""
    rows = connection.execute(_DOCUMENTS).fetchall()
    by_state = {state.value: 0 for state in DocumentState} | {state: count for state, count, _ in rows}
    return DocumentCounts(
        total=sum(count for state, count, _ in rows if state != "deleted"),
        searchable=sum(searchable for _, _, searchable in rows),
        by_state=by_state,
    )


def count_jobs(connection: Connection[Any]) -> JobCounts:
    """Jobs by state, with a zero for each state that none is in, and what is due."""
    rows = connection.execute(_JOBS).fetchall()
    ages = [age for *_, age in rows if age is not None]
    return JobCounts(
        by_state={state.value: 0 for state in JobState} | {state: count for state, count, *_ in rows},
        due=sum(due for _, _, due, _ in rows),
        oldest_due_seconds=round(max(ages), 3) if ages else None,
    )


def count_namespaces(connection: Connection[Any]) -> list[NamespaceCounts]:
    """Every namespace with what it holds."""
    with connection.cursor(row_factory=class_row(NamespaceCounts)) as cursor:
        return cursor.execute(_NAMESPACES).fetchall()


def active_embedding(connection: Connection[Any]) -> EmbeddingSpace | None:
    """The embedding space that searches use; None before the first document was embedded."""
    with connection.cursor(row_factory=class_row(EmbeddingSpace)) as cursor:
        return cursor.execute(_SPACE).fetchone()


def read_status(connection: Connection[Any], *, with_costs: bool = True) -> Status:
    """One screen of state, all from one snapshot; without costs where nobody looks at them."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        namespaces = count_namespaces(connection)
        size, schema = connection.execute(_FACTS).fetchone() or (0, 0)
        return Status(
            documents=count_documents(connection),
            jobs=count_jobs(connection),
            sources=tuple(list_sources(connection)),
            namespaces=tuple(namespaces),
            chunks=sum(one.chunks for one in namespaces),
            embedding=active_embedding(connection),
            database_bytes=size,
            schema_version=schema,
            deliveries=count_deliveries(connection),
            costs=tuple(ledger.totals_by_day(connection, days=COST_DAYS)) if with_costs else (),
        )
