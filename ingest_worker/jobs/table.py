"""The job table: one live job for each document, leases, back-off and dead letters. All its SQL stands here."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from shared.documents import JobState
from shared.errors import DocwellError

RETRY_BASE_SECONDS = 2.0
RETRY_CAP_SECONDS = 600.0

BULK_FROM = 20
"""So many documents at once come from a copy or a sweep, not from a person who waits for one."""
BULK_HANDICAP_SECONDS = 600.0
"""How far behind single documents of its source a bulk one stands in the queue: later ones go first, but not for ever."""


class LeaseLost(DocwellError):
    """Another worker holds this job now, or a person cancelled it: what was done here must not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that this worker holds until `lease_until`; `attempts` counts this one already."""

    job_id: uuid.UUID
    document_id: uuid.UUID
    kind: str
    attempts: int
    max_attempts: int
    lease_token: uuid.UUID
    lease_until: datetime


def retry_delay(attempts: int, *, rng: random.Random, retry_after: float | None = None) -> float:
    """Seconds to wait before the next attempt: doubling from 2 s to 10 min, half of it by chance; at least `retry_after`."""
    backoff = min(RETRY_CAP_SECONDS, RETRY_BASE_SECONDS * 2.0 ** min(attempts - 1, 30))
    jittered = backoff * (0.5 + rng.random() / 2)
    return max(jittered, retry_after or 0.0)


_ENQUEUE = """
    INSERT INTO docwell.job AS job (document_id, source_id, kind, version, max_attempts, bulk, next_run_at, place)
    SELECT d.document_id, d.source_id, %(kind)s, %(version)s, %(attempts)s, %(bulk)s, now() + make_interval(secs => %(delay)s),
           now() + make_interval(secs => %(delay)s + %(handicap)s)
    FROM docwell.document d
    WHERE d.document_id = ANY (%(documents)s)
    ORDER BY d.document_id
    ON CONFLICT (document_id) WHERE state IN ('queued', 'running', 'retrying') DO UPDATE SET
        rerun = job.rerun OR job.state = 'running',
        rerun_kind = CASE WHEN job.state <> 'running' OR (excluded.kind = 'rollback' AND job.rerun_kind = 'ingest')
                          THEN job.rerun_kind ELSE excluded.kind END,
        kind = CASE WHEN job.state = 'running' OR (excluded.kind = 'rollback' AND job.kind = 'ingest')
                    THEN job.kind ELSE excluded.kind END,
        version = coalesce(excluded.version, job.version),
        state = CASE WHEN job.state = 'retrying' THEN 'queued' ELSE job.state END,
        attempts = CASE WHEN job.state = 'retrying' THEN 0 ELSE job.attempts END,
        next_run_at = CASE WHEN job.state = 'running' THEN job.next_run_at
                           ELSE least(job.next_run_at, excluded.next_run_at) END,
        place = CASE WHEN job.state = 'running' THEN excluded.place ELSE least(job.place, excluded.place) END,
        bulk = job.bulk AND excluded.bulk
    RETURNING document_id, job_id
"""


def enqueue(
    connection: Connection[Any],
    documents: Sequence[uuid.UUID],
    *,
    kind: str = "ingest",
    version: int | None = None,
    max_attempts: int = 5,
    delay_seconds: float = 0.0,
    bulk: bool = False,
) -> dict[uuid.UUID, uuid.UUID]:
    """One live job for each document: `{document_id: job_id}`.

    A job that waits is enough, since it reads what is there when it runs; one that runs is marked to run again. Many at once
    are bulk, and what is said to be one of many: they stand behind single documents of their source. The newest request
    decides what the job does, but that an ingest that waits serves the version of a rollback too.
    """
    bulk = bulk or len(documents) >= BULK_FROM
    values = {
        "documents": list(documents),
        "kind": kind,
        "version": version,
        "attempts": max_attempts,
        "delay": delay_seconds,
        "bulk": bulk,
        "handicap": BULK_HANDICAP_SECONDS if bulk else 0.0,
    }
    return dict(connection.execute(_ENQUEUE, values).fetchall())


# Sources take turns: the one with the fewest running jobs, then the one that waited longest. So neither ten thousand files of
# one source nor slow files of another keep a third one waiting.
_TURNS = """
    SELECT s.source_id
    FROM docwell.source s
    CROSS JOIN LATERAL (
        SELECT place FROM docwell.job j
        WHERE j.source_id = s.source_id AND j.state IN ('queued', 'retrying') AND j.next_run_at <= now()
        ORDER BY place LIMIT 1
    ) AS first
    ORDER BY (SELECT count(*) FROM docwell.job r WHERE r.source_id = s.source_id AND r.state = 'running'), s.turn_at, first.place
"""
# Only first attempts go together: what ended its worker once is tried alone, and takes no other job with it.
_CLAIM = """
    WITH first AS MATERIALIZED (
        SELECT job_id, bulk, kind = 'ingest' AND attempts = 0 AS together FROM docwell.job
        WHERE source_id = %(source)s AND state IN ('queued', 'retrying') AND next_run_at <= now()
        ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED
    ), others AS MATERIALIZED (
        SELECT job_id FROM docwell.job
        WHERE source_id = %(source)s AND state = 'queued' AND next_run_at <= now() AND kind = 'ingest' AND attempts = 0
          AND bulk = (SELECT bulk FROM first WHERE together) AND job_id <> (SELECT job_id FROM first)
        ORDER BY place LIMIT %(more)s FOR UPDATE SKIP LOCKED
    ), turn AS (
        UPDATE docwell.source SET turn_at = clock_timestamp() WHERE source_id = %(source)s AND EXISTS (SELECT FROM first)
    )
    UPDATE docwell.job SET
        state = 'running', attempts = attempts + 1, lease_token = gen_random_uuid(),
        lease_until = now() + make_interval(secs => %(lease)s), worker = %(worker)s, started_at = now(),
        rerun = false, rerun_kind = NULL
    WHERE job_id IN (SELECT job_id FROM first UNION ALL SELECT job_id FROM others)
    RETURNING job_id, document_id, kind, attempts, max_attempts, lease_token, lease_until
"""


def claim(connection: Connection[Any], *, worker: str, lease_seconds: float, limit: int = 1) -> list[ClaimedJob]:
    """Take up to `limit` jobs of one source that are due, and count the attempt before any work starts; [] when none is due."""
    values = {"worker": worker, "lease": lease_seconds, "more": limit - 1}
    for (source_id,) in connection.execute(_TURNS).fetchall():
        with connection.cursor(row_factory=class_row(ClaimedJob)) as cursor:
            claimed = cursor.execute(_CLAIM, {**values, "source": source_id}).fetchall()
        if claimed:  # else others took them between the two statements
            return claimed
    return []


_RENEW = """
    UPDATE docwell.job SET lease_until = now() + make_interval(secs => %(lease)s)
    FROM unnest(%(jobs)s::uuid[], %(tokens)s::uuid[]) AS held (job_id, lease_token)
    WHERE job.job_id = held.job_id AND job.lease_token = held.lease_token AND job.state = 'running'
"""


def renew(connection: Connection[Any], held: Sequence[ClaimedJob], *, lease_seconds: float) -> int:
    """Extend the leases that are still ours; returns how many are."""
    return connection.execute(_RENEW, {**_leases(held), "lease": lease_seconds}).rowcount


def _leases(held: Sequence[ClaimedJob]) -> dict[str, Any]:
    return {"jobs": [job.job_id for job in held], "tokens": [job.lease_token for job in held]}


_FENCE = """
    SELECT job.job_id FROM docwell.job
    JOIN unnest(%(jobs)s::uuid[], %(tokens)s::uuid[]) AS held (job_id, lease_token) USING (job_id, lease_token)
    WHERE job.state = 'running'
    ORDER BY job.job_id
    FOR UPDATE OF job
"""


def fence(connection: Connection[Any], *held: ClaimedJob) -> None:
    """Hold the rows of these jobs for this transaction, so that only the holder of a lease writes.

    Raises:
        LeaseLost: one of the leases is ours no more.
    """
    ours = {row[0] for row in connection.execute(_FENCE, _leases(held)).fetchall()}
    for job in held:
        if job.job_id not in ours:
            raise LeaseLost(f"The lease of job {job.job_id} was lost.", code="lease_lost")


_SUCCEED = """
    UPDATE docwell.job SET
        state = CASE WHEN rerun THEN 'queued' ELSE 'succeeded' END,
        kind = CASE WHEN rerun THEN coalesce(rerun_kind, kind) ELSE kind END,
        attempts = CASE WHEN rerun THEN 0 ELSE attempts END,
        next_run_at = CASE WHEN rerun THEN now() ELSE next_run_at END,
        result = ended.result, chunks = ended.chunks, embedded = ended.embedded, finished_at = now(),
        error_code = NULL, last_error = NULL, lease_token = NULL, lease_until = NULL
    FROM unnest(%(jobs)s::uuid[], %(tokens)s::uuid[], %(results)s::text[], %(chunks)s::integer[], %(embedded)s::integer[])
        AS ended (job_id, lease_token, result, chunks, embedded)
    WHERE job.job_id = ended.job_id AND job.lease_token = ended.lease_token AND job.state = 'running'
    RETURNING job.job_id, rerun
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """How a job ended: its public `result`, the chunks of the version that it published, and how many had to be embedded."""

    job: ClaimedJob
    result: str
    chunks: int | None = None
    embedded: int | None = None


def succeed_all(connection: Connection[Any], ended: Sequence[Success]) -> set[uuid.UUID]:
    """End these jobs in the caller's transaction; returns those that something changed for meanwhile: they are queued again.

    Raises:
        LeaseLost: one of the leases is ours no more.
    """
    values = {
        **_leases([one.job for one in ended]),
        "results": [one.result for one in ended],
        "chunks": [one.chunks for one in ended],
        "embedded": [one.embedded for one in ended],
    }
    reruns = dict(connection.execute(_SUCCEED, values).fetchall())
    for one in ended:
        if one.job.job_id not in reruns:
            raise LeaseLost(f"The lease of job {one.job.job_id} was lost.", code="lease_lost")
    return {job for job, rerun in reruns.items() if rerun}


def succeed(
    connection: Connection[Any], job: ClaimedJob, result: str, *, chunks: int | None = None, embedded: int | None = None
) -> bool:
    """`succeed_all` for one job: True when it is queued to run again."""
    return bool(succeed_all(connection, [Success(job=job, result=result, chunks=chunks, embedded=embedded)]))


def run_again(connection: Connection[Any], held: Sequence[ClaimedJob]) -> None:
    """Let jobs that the caller holds run once more when they end, since they are not done; a deletion alone comes before that."""
    connection.execute(
        "UPDATE docwell.job SET rerun = true, rerun_kind = CASE rerun_kind WHEN 'delete' THEN 'delete' ELSE kind END"
        " WHERE job_id = ANY (%s)",
        ([job.job_id for job in held],),
    )


# An ingest that did not come to its end is still to be done when a rollback is; it serves the old version first.
_FAIL = """
    UPDATE docwell.job SET
        state = CASE WHEN rerun THEN 'queued' WHEN %(again)s THEN 'retrying' ELSE 'dead' END,
        kind = CASE WHEN NOT rerun OR (kind, rerun_kind) = ('ingest', 'rollback') THEN kind ELSE coalesce(rerun_kind, kind) END,
        attempts = CASE WHEN rerun THEN 0 ELSE attempts END,
        next_run_at = CASE WHEN rerun THEN now() ELSE now() + make_interval(secs => %(delay)s) END,
        place = CASE WHEN rerun THEN place ELSE now() + make_interval(secs => %(delay)s) END,
        result = CASE WHEN %(again)s THEN NULL ELSE 'failed' END,
        error_code = %(code)s, last_error = %(error)s,
        finished_at = CASE WHEN %(again)s THEN NULL ELSE now() END,
        lease_token = NULL, lease_until = NULL
    WHERE job_id = %(job)s AND lease_token = %(token)s AND state = 'running'
    RETURNING state
"""


def fail(
    connection: Connection[Any], job: ClaimedJob, *, code: str, error: str, permanent: bool, delay_seconds: float
) -> JobState:
    """Record a failed attempt: back to waiting, or dead when it is permanent or was the last attempt.

    Raises:
        LeaseLost: the lease is ours no more.
    """
    again = not permanent and job.attempts < job.max_attempts
    values = {
        "job": job.job_id,
        "token": job.lease_token,
        "code": code,
        "error": error[:2000],
        "again": again,
        "delay": delay_seconds,
    }
    row = connection.execute(_FAIL, values).fetchone()
    if row is None:
        raise LeaseLost(f"The lease of job {job.job_id} was lost.", code="lease_lost")
    return JobState(row[0])


_POSTPONE = """
    UPDATE docwell.job SET
        state = 'queued', attempts = CASE WHEN rerun THEN 0 ELSE attempts - 1 END,
        kind = CASE WHEN (kind, rerun_kind) = ('ingest', 'rollback') THEN kind ELSE coalesce(rerun_kind, kind) END,
        rerun = false, rerun_kind = NULL, next_run_at = now() + make_interval(secs => %(delay)s),
        error_code = %(code)s, last_error = %(error)s, lease_token = NULL, lease_until = NULL
    WHERE job_id = %(job)s AND lease_token = %(token)s AND state = 'running'
    RETURNING 1
"""


def postpone(connection: Connection[Any], job: ClaimedJob, *, code: str, error: str, delay_seconds: float) -> None:
    """Queue a job again for later, with the reason: the document is not at fault, so no attempt is counted.

    Raises:
        LeaseLost: the lease is ours no more.
    """
    values = {"job": job.job_id, "token": job.lease_token, "code": code, "error": error[:2000], "delay": delay_seconds}
    if connection.execute(_POSTPONE, values).fetchone() is None:
        raise LeaseLost(f"The lease of job {job.job_id} was lost.", code="lease_lost")


_HAND_BACK = """
    WITH back AS (
        UPDATE docwell.job SET
            state = 'queued', attempts = CASE WHEN rerun THEN 0 ELSE attempts - 1 END,
            kind = CASE WHEN (kind, rerun_kind) = ('ingest', 'rollback') THEN kind ELSE coalesce(rerun_kind, kind) END,
            rerun = false, rerun_kind = NULL, next_run_at = now(), lease_token = NULL, lease_until = NULL
        WHERE state = 'running' AND (worker = %(worker)s OR starts_with(worker, %(worker)s || ':'))
          AND (%(jobs)s::uuid[] IS NULL OR job_id = ANY (%(jobs)s))
        RETURNING document_id
    ), noted AS (
        UPDATE docwell.document d SET state = 'queued' FROM back
        WHERE d.document_id = back.document_id AND d.state = 'indexing'
    )
    SELECT count(*) FROM back
"""


def hand_back(connection: Connection[Any], worker: str, jobs: Sequence[uuid.UUID] | None = None) -> int:
    """Queue again what this worker, or a process below it, holds (all, or these `jobs`), and has not worked on to its end.

    Nobody's fault, so no attempt is counted.
    """
    values = {"worker": worker, "jobs": None if jobs is None else list(jobs)}
    row = connection.execute(_HAND_BACK, values).fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostJob(ClaimedJob):
    """A running job whose lease ran out, or whose worker is known to be gone."""

    worker: str | None


_EXPIRED = """
    SELECT job_id, document_id, kind, attempts, max_attempts, lease_token, lease_until, worker
    FROM docwell.job
    WHERE state = 'running' AND lease_until < now()
    ORDER BY lease_until
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
"""


def expired(connection: Connection[Any], *, limit: int = 100) -> list[LostJob]:
    """Running jobs whose lease ran out, held for this transaction."""
    with connection.cursor(row_factory=class_row(LostJob)) as cursor:
        return cursor.execute(_EXPIRED, {"limit": limit}).fetchall()


_HELD_BY = """
    SELECT job_id, document_id, kind, attempts, max_attempts, lease_token, lease_until, worker
    FROM docwell.job
    WHERE state = 'running' AND worker = ANY (%s)
    ORDER BY job_id
    FOR UPDATE
"""


def held_by(connection: Connection[Any], workers: Sequence[str]) -> list[LostJob]:
    """The running jobs of these workers, which are known to be gone, held for this transaction."""
    with connection.cursor(row_factory=class_row(LostJob)) as cursor:
        return cursor.execute(_HELD_BY, (list(workers),)).fetchall()


def holders(connection: Connection[Any], worker_prefix: str) -> list[str]:
    """The names of the workers that hold running jobs and begin like this."""
    rows = connection.execute(
        "SELECT DISTINCT worker FROM docwell.job WHERE state = 'running' AND starts_with(worker, %s)", (worker_prefix,)
    ).fetchall()
    return [row[0] for row in rows]


_DUE = (
    "SELECT count(*) FROM (SELECT 1 FROM docwell.job WHERE state IN ('queued', 'retrying') AND next_run_at <= now() LIMIT %s) d"
)


def due(connection: Connection[Any], *, cap: int) -> int:
    """How many jobs are due now, counted up to `cap`."""
    row = connection.execute(_DUE, (cap,)).fetchone()
    return int(row[0]) if row else 0
