"""Numbers of the queue and of documents that `/metrics` shows beside the screen of state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue.batches import Waiting, waiting
from ingest_worker.catalogue.ledger import Total, totals_by_kind
from ingest_worker.catalogue.overview import Status, read_status
from ingest_worker.catalogue.work_totals import read_totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Jobs of the sources of one type that are not over, by state; `oldest_due_seconds` is how long the one that is due longest
    has waited, 0.0 when none is due."""

    source_type: str
    by_state: dict[str, int]
    oldest_due_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What one scrape shows. `dead` counts jobs that were given up by the code of their error, `reasons` documents by state and
    reason code, `totals` is what `ingest_worker.work` counted, `spent` what paid services took today (UTC), `without_vector`
    counts passages that are found by their words alone, by reason, and `batches` tells of contexts that come in batches."""

    status: Status
    queues: tuple[Queue, ...]
    dead: dict[str, int]
    reasons: dict[tuple[str, str], int]
    totals: dict[tuple[str, str, str], float]
    spent: Sequence[Total]
    without_vector: dict[str, int]
    batches: Waiting
    now: float


_LIVE = ("queued", "running", "retrying")
_TYPES: LiteralString = "SELECT DISTINCT type FROM docwell.source ORDER BY type"
_QUEUES: LiteralString = """
    SELECT s.type, j.state, count(*),
           extract(epoch FROM now() - min(j.next_run_at) FILTER (WHERE j.state <> 'running' AND j.next_run_at <= now()))::float8
    FROM docwell.job j JOIN docwell.source s USING (source_id)
    WHERE j.state IN ('queued', 'running', 'retrying')
    GROUP BY s.type, j.state
"""
_DEAD: LiteralString = "SELECT coalesce(error_code, ''), count(*) FROM docwell.job WHERE state = 'dead' GROUP BY 1"
_REASONS: LiteralString = "SELECT state, reason_code, count(*) FROM docwell.document WHERE reason_code IS NOT NULL GROUP BY 1, 2"


_WITHOUT_VECTOR: LiteralString = """
    SELECT w.reason_code, count(*) FROM docwell.without_vector w JOIN docwell.embedding_space s USING (space_id)
    WHERE s.state = 'active' GROUP BY 1
"""


def read_measures(connection: Connection[Any]) -> Measures:
    """All of it; the rows of one statement are of one moment."""
    status = read_status(connection, with_costs=False)
    live = {type_: dict.fromkeys(_LIVE, 0) for (type_,) in connection.execute(_TYPES).fetchall()}
    oldest = dict.fromkeys(live, 0.0)
    for type_, state, count, age in connection.execute(_QUEUES).fetchall():
        live.setdefault(type_, dict.fromkeys(_LIVE, 0))[state] = count
        oldest[type_] = max(oldest.get(type_, 0.0), age or 0.0)
    row = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone()
    return Measures(
        status=status,
        queues=tuple(
            Queue(source_type=type_, by_state=by_state, oldest_due_seconds=oldest[type_]) for type_, by_state in live.items()
        ),
        dead=dict(connection.execute(_DEAD).fetchall()),
        reasons={(state, code): count for state, code, count in connection.execute(_REASONS).fetchall()},
        totals=read_totals(connection),
        spent=totals_by_kind(connection, days=1),
        batches=waiting(connection),
        without_vector=dict(connection.execute(_WITHOUT_VECTOR).fetchall()),
        now=float(row[0]) if row else 0.0,
    )
