"""Jobs as people and scripts look at them, and what they may ask of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.asking import Filters, Page, Unknown, cut, read_cursor, time_key, uuid_key, write_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job. `next_run_at` is known only while it waits; `rerun` says that it runs once more when it ends.

    `version` is the one that a rollback serves again.
    """

    job_id: uuid.UUID
    document_id: uuid.UUID
    source: str
    namespace: str
    path: str
    kind: str
    version: int | None
    state: str
    result: str | None
    attempts: int
    max_attempts: int
    rerun: bool
    next_run_at: datetime | None
    error_code: str | None
    last_error: str | None
    worker: str | None
    lease_until: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


_JOB: LiteralString = """
    SELECT j.job_id, j.document_id, s.name AS source, n.name AS namespace, d.path, j.kind, j.version, j.state, j.result,
           j.attempts, j.max_attempts, j.rerun, CASE WHEN j.state IN ('queued', 'retrying') THEN j.next_run_at END AS next_run_at,
           j.error_code, j.last_error, j.worker, j.lease_until, j.created_at, j.started_at, j.finished_at
    FROM docwell.job j
    JOIN docwell.document d USING (document_id)
    JOIN docwell.source s ON s.source_id = j.source_id
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
"""
_LIST: LiteralString = (
    _JOB
    + """
    WHERE (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
      AND (%(source)s::text IS NULL OR s.name = %(source)s)
      AND (%(states)s::text[] IS NULL OR j.state = ANY (%(states)s))
      AND (%(since)s::timestamptz IS NULL OR greatest(j.created_at, j.started_at, j.finished_at) >= %(since)s)
      AND (%(path)s::text IS NULL OR d.path ~ %(path)s)
      AND (%(document)s::uuid IS NULL OR j.document_id = %(document)s)
      AND (%(after_time)s::timestamptz IS NULL OR (j.created_at, j.job_id) < (%(after_time)s, %(after_id)s::uuid))
    ORDER BY j.created_at DESC, j.job_id DESC
    LIMIT %(limit)s
"""
)


def list_jobs(
    connection: Connection[Any], filters: Filters, *, limit: int | None = None, cursor: str | None = None
) -> Page[JobRow]:
    """Jobs, newest first: all of them, or `limit` after `cursor`. `since` asks for what was made, begun or ended since then.

    Raises:
        BadQuestion: the cursor is none of this list.
    """
    after_time, after_id = (None, None) if cursor is None else read_cursor(cursor, 2)
    values = {
        **filters.bound(),
        "after_time": None if after_time is None else time_key(after_time),
        "after_id": None if after_id is None else uuid_key(after_id),
        "limit": None if limit is None else limit + 1,
    }
    with connection.cursor(row_factory=class_row(JobRow)) as rows:
        found, more = cut(rows.execute(_LIST, values).fetchall(), limit)
    return Page(rows=found, next_cursor=write_cursor(found[-1].created_at, found[-1].job_id) if more else None)


def get_job(connection: Connection[Any], job_id: uuid.UUID) -> JobRow:
    """One job.

    Raises:
        Unknown: there is none of this id.
    """
    with connection.cursor(row_factory=class_row(JobRow)) as cursor:
        found = cursor.execute(_JOB + " WHERE j.job_id = %s", (job_id,)).fetchone()
    if found is None:
        raise unknown_job(job_id)
    return found


def unknown_job(job_id: uuid.UUID) -> Unknown:
    """The error for a job that is not there."""
    return Unknown(f"There is no job {str(job_id)!r}. `docwell jobs list` shows all.", code="unknown_job")


_ACTED_UPON: LiteralString = """
    SELECT j.job_id, j.state, d.state AS document_state, live.job_id AS other
    FROM docwell.job j JOIN docwell.document d USING (document_id)
    LEFT JOIN docwell.job live ON live.document_id = j.document_id AND live.job_id <> j.job_id
        AND live.state IN ('queued', 'running', 'retrying')
    WHERE j.job_id = ANY (%s)
"""


def why_not_retry(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Of these jobs those that cannot be tried again, each with the reason as a sentence."""
    reasons: dict[uuid.UUID, str] = {}
    for job_id, state, document_state, other in connection.execute(_ACTED_UPON, (list(jobs),)).fetchall():
        if state not in {"dead", "retrying", "cancelled"}:
            reasons[job_id] = f"Job {job_id} is {state}; only dead, retrying and cancelled jobs can be tried again."
        elif document_state == "deleted":
            reasons[job_id] = f"The document of job {job_id} is deleted. It comes back with its file, or when it is pushed again."
        elif document_state == "excluded":
            reasons[job_id] = f"The document of job {job_id} is excluded. Take it back with `docwell documents include`."
        elif other is not None:
            reasons[job_id] = f"Job {job_id} has a successor that is under way: {other}."
    return reasons


def why_not_cancel(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Of these jobs those that have ended already, each with a sentence that says so."""
    return {
        job_id: f"Job {job_id} is {state} already; only queued, running and retrying jobs can be cancelled."
        for job_id, state, *_ in connection.execute(_ACTED_UPON, (list(jobs),)).fetchall()
        if state not in {"queued", "running", "retrying"}
    }
