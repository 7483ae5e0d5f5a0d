"""Jobs whose worker is gone: the attempt counts, and the reason names how it ended when that is known.

Those that PostgreSQL's full disk cut off wait until there is room, and keep their attempts.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import structlog
from psycopg import Connection

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import LostJob
from shared.database import is_full, why_away
from shared.documents import JobState

log = structlog.get_logger(__name__)

UNKNOWN = "ended, or hung,"
CUT_OFF = "lost PostgreSQL"

_ROOM_SECONDS = 30.0
"""After this long it is tried whether the disk has room again."""


def how_it_ended(exit_status: int) -> str:
    """A process's end in words, from its exit status as `Popen.returncode` gives it."""
    if exit_status >= 0:
        return f"ended with exit status {exit_status}"
    try:
        name = signal.Signals(-exit_status).name
    except ValueError:
        name = f"signal {-exit_status}"
    hint = " (mostly this is the system, which ran out of memory)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def take_back(connection: Connection[Any], job: LostJob, how: str, *, rng: random.Random) -> JobState:
    """Record, in the caller's transaction, that a job's worker went; it is tried again, or was the last attempt."""
    reason = (
        f"The worker {job.worker} {how} while it worked on this document (attempt {job.attempts} of {job.max_attempts})."
        " If the document is at fault, mend or exclude it, then use `docwell jobs retry`."
    )
    delay = jobs.retry_delay(job.attempts, rng=rng)
    state = jobs.fail(connection, job, code="worker_lost", error=reason, permanent=False, delay_seconds=delay)
    catalogue.record_failure(
        connection,
        job.document_id,
        state="failed" if state is JobState.DEAD else "queued",
        code="worker_lost",
        reason=reason,
        permanent=False,
    )
    log.warning("worker_lost", job=str(job.job_id), state=state.value, worker=job.worker, how=how)
    return state


def cut_off(connection: Connection[Any], job: LostJob, error: Exception, *, rng: random.Random) -> JobState:
    """Record, in the caller's transaction, that this error of PostgreSQL's interrupted a job.

    A full disk is no document's doing: the job waits. Any other end may have been, so the attempt counts.
    """
    if not is_full(error):
        return take_back(connection, job, CUT_OFF, rng=rng)
    reason = why_away(error)
    jobs.postpone(connection, job, code="database_full", error=reason, delay_seconds=_ROOM_SECONDS * (0.5 + rng.random() / 2))
    catalogue.record_failure(connection, job.document_id, state="queued", code="database_full", reason=reason, permanent=False)
    return JobState.QUEUED
