"""The worker: Celery prefork processes, each of which claims job rows and runs them until none is due."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import structlog
from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready
from psycopg_pool import PoolTimeout

from ingest_worker.batch import Ended, Pace, run_jobs
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.celery_app import make_app
from ingest_worker.jobs.table import ClaimedJob, LeaseLost
from ingest_worker.jobs.wake import WORK
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools
from shared.config import Settings
from shared.database import check_schema, connect, first_line, open_pool
from shared.documents import JobState
from shared.embedding.open import import_embedder, open_embedder
from shared.embedding.protocol import Embedder
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError

log = structlog.get_logger(__name__)

_LONGEST_TURN_SECONDS = 30.0
"""After this long a woken process gives Celery its turn back, so that shutting down and recycling never wait long."""

_CLAIMED_AT_ONCE = 16
"""First attempts of one source that are claimed together; they share a call to the embedder and a commit."""

_LONGEST_BATCH_SECONDS = 5.0
"""After this long, what was claimed together and not begun goes back to the queue."""

_PR_SET_PDEATHSIG = 1


class Worker:
    """One prefork process: its tools, opened and closed with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = worker_name(os.getppid(), os.getpid())
        self._pace = Pace()
        self._left_behind = False
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        if settings.database_url is None:
            raise PermanentError("No database is set. Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
        # Unchecked: a connection that died is noticed by the claim, before there is a job to lose.
        self._pool = open_pool(
            settings.database_url.get_secret_value(), name="docwell-worker", size=3, check=False, autocommit=True
        )
        self._cage = ParserCage(
            CageLimits(
                timeout_seconds=settings.parse_timeout_seconds,
                memory_bytes=settings.parse_memory_bytes,
                passwords=tuple(password.get_secret_value() for password in settings.document_passwords),
            )
        )
        self._embedder: Embedder | None = None

    def warm(self) -> None:
        """Begin what takes long before the first document comes; waits for nothing."""
        self._cage.warm()

    def close(self) -> None:
        """End the parser's process and the connections."""
        self._cage.close()
        self._pool.close()

    def work(self, *, clock: Callable[[], float] = time.monotonic) -> int:
        """Claim and run jobs until none is due or the turn is over; returns how many were run."""
        done = 0
        until = clock() + _LONGEST_TURN_SECONDS
        while clock() < until:
            try:
                with self._pool.connection() as connection:
                    if self._left_behind:
                        jobs.hand_back(connection, self._name)
                        self._left_behind = False
                    claimed = jobs.claim(
                        connection, worker=self._name, lease_seconds=self._settings.job_lease_seconds, limit=_CLAIMED_AT_ONCE
                    )
                if not claimed:
                    break
                done += self._run(claimed, clock)
            except (psycopg.OperationalError, PoolTimeout) as error:
                self._left_behind = True
                log.warning("database_unreachable", error=first_line(error), cure="Jobs wait for it, and go on by themselves.")
                break
        return done

    def _run(self, claimed: Sequence[ClaimedJob], clock: Callable[[], float]) -> int:
        """Run these jobs, with their leases kept alive, to their ends in the job table; returns how many ended."""
        began = clock()
        tools = Tools(settings=self._settings, pool=self._pool, cage=self._cage, embedder=self._open_embedder)
        held = {job.job_id: job for job in claimed}
        with self._heartbeat(held):
            for ended in run_jobs(claimed, tools, self._pace, enough=lambda: clock() - began > _LONGEST_BATCH_SECONDS):
                self._record(ended, clock() - began)
                del held[ended.job.job_id]
        if held:
            # Another worker may be idle: what was not begun goes back rather than wait here behind slow documents.
            with self._pool.connection() as connection:
                jobs.hand_back(connection, self._name, list(held))
        return len(claimed) - len(held)

    def _record(self, ended: Ended, seconds: float) -> None:
        job, outcome = ended.job, ended.outcome
        with structlog.contextvars.bound_contextvars(job=str(job.job_id), document=str(job.document_id)):
            if isinstance(outcome, JobReport):
                _log_done(outcome, seconds)
            elif isinstance(outcome, LeaseLost):
                log.info("lease_lost")
            elif isinstance(outcome, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
                self._fail(job, TransientError(f"Two publishers met: {first_line(outcome)}.", code="conflict"))
            elif isinstance(outcome, DocwellError):
                self._fail(job, outcome)
            else:
                log.error("job_crashed", exc_info=outcome)
                self._fail(job, TransientError(f"{type(outcome).__name__}: {outcome}", code="internal_error"))

    def _open_embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = open_embedder(self._settings)
        return self._embedder

    def _fail(self, job: ClaimedJob, error: DocwellError) -> None:
        permanent = isinstance(error, PermanentError)
        delay = jobs.retry_delay(job.attempts, rng=self._rng, retry_after=getattr(error, "retry_after", None))
        try:
            with self._pool.connection() as connection, connection.transaction():
                state = jobs.fail(connection, job, code=error.code, error=str(error), permanent=permanent, delay_seconds=delay)
                catalogue.record_failure(
                    connection,
                    job.document_id,
                    state="failed" if state is JobState.DEAD else "queued",
                    code=error.code,
                    reason=str(error),
                    permanent=permanent,
                )
        except LeaseLost:
            log.info("lease_lost")
            return
        log.warning("job_failed", state=state.value, code=error.code, error=str(error), attempt=job.attempts)

    @contextmanager
    def _heartbeat(self, held: Mapping[uuid.UUID, ClaimedJob]) -> Iterator[None]:
        """Keep the leases of these jobs, which shrink as they end."""
        stop = threading.Event()
        lease = self._settings.job_lease_seconds

        def beat() -> None:
            while not stop.wait(lease / 3):
                try:
                    with self._pool.connection() as connection:
                        jobs.renew(connection, list(held.values()), lease_seconds=lease)
                except (psycopg.Error, PoolTimeout) as error:
                    log.warning("heartbeat_missed", error=first_line(error))

        thread = threading.Thread(target=beat, name="lease-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def worker_name(*pids: int) -> str:
    """The name of a worker by its main process, and of one of its processes by that and its own."""
    return ":".join((socket.gethostname(), *map(str, pids)))


def _log_done(report: JobReport, seconds: float) -> None:
    log.info(
        "job_done",
        result=report.result,
        chunks=report.chunks,
        embedded=report.embedded,
        seconds=round(seconds, 3),
        rerun=report.rerun,
    )


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def make_worker_app(settings: Settings) -> Celery:
    """The Celery application with the one task there is."""
    app = make_app(settings)
    worker: list[Worker] = []

    def work() -> None:
        worker[0].work()

    app.task(work, name=WORK, ignore_result=True)

    def begin(**_: object) -> None:
        die_with_parent()
        worker.append(Worker(settings))
        worker[0].warm()

    def end(**_: object) -> None:
        while worker:
            worker.pop().close()

    worker_process_init.connect(begin, weak=False)
    worker_process_shutdown.connect(end, weak=False)
    return app


def run_worker(settings: Settings, *, ready_file: Path | None = None) -> int:
    """Run the worker in the foreground until SIGTERM or SIGINT; returns the exit code."""
    if settings.database_url is not None:
        with (
            open_pool(settings.database_url.get_secret_value(), name="docwell-worker", size=1) as pool,
            pool.connection() as connection,
        ):
            check_schema(connection)
    app = make_worker_app(settings)
    import_embedder(settings)  # before the fork, once for all children
    # Celery warns of root because of pickle, which is not accepted here; parsers run caged.
    warnings.filterwarnings("ignore", category=SecurityWarning)

    def ready(**_: object) -> None:
        if ready_file is not None:
            ready_file.touch()

    worker_ready.connect(ready, weak=False)
    concurrency = settings.worker_concurrency or os.cpu_count() or 1
    celery_worker = app.Worker(
        pool="prefork",
        concurrency=concurrency,
        loglevel="WARNING",
        optimization="fair",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        task_events=False,
        quiet=True,
    )
    try:
        celery_worker.start()
    finally:
        _hand_back(settings)
    return int(celery_worker.exitcode or 0)


def _hand_back(settings: Settings) -> None:
    """The children are gone: what they held goes on at the next start, at once."""
    if settings.database_url is None:
        return
    try:
        with connect(settings.database_url.get_secret_value(), name="docwell-worker", autocommit=True) as connection:
            jobs.hand_back(connection, worker_name(os.getpid()))
    except (ServiceUnavailable, psycopg.Error) as error:
        log.warning("jobs_not_handed_back", error=str(error), cure="Their leases run out by themselves.")
