"""Jobs whose worker is gone: the attempt counts, and the reason names how it ended when that is known."""

from __future__ import annotations

import random
import signal
from typing import Any

import structlog
from psycopg import Connection

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import LostJob
from shared.documents import JobState

log = structlog.get_logger(__name__)

UNKNOWN = "ended, or hung,"
CUT_OFF = "lost PostgreSQL"


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
