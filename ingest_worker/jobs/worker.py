"""The worker: Celery prefork processes, each of which claims job rows and runs them until none is due."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import structlog
from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import worker_process_init, worker_process_shutdown, worker_ready, worker_shutting_down
from psycopg import Connection
from psycopg_pool import PoolTimeout

from ingest_worker.batch import Ended, Pace, run_jobs
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.work_totals import add_totals
from ingest_worker.enrich.caption_step import Captioner
from ingest_worker.enrich.step import Enricher
from ingest_worker.intake.push import confine_pushed
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.celery_app import WORK, make_app
from ingest_worker.jobs.held import Held
from ingest_worker.jobs.identity import is_gone, neighbours, worker_name
from ingest_worker.jobs.keeper import Keeper, ReportingPool
from ingest_worker.jobs.lane import Lane
from ingest_worker.jobs.lost import cut_off
from ingest_worker.jobs.table import ClaimedJob, LeaseLost
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.parse.fingerprint import ocr_settings
from ingest_worker.pipeline import JobReport, Tools
from ingest_worker.reindexing.fill import fill_some
from ingest_worker.spaces import Models
from ingest_worker.work import JOBS_FINISHED, Work
from shared.config import Settings
from shared.database import check_schema, connect, first_line, open_pool
from shared.documents import JobState
from shared.embedding.open import import_embedder, open_embedder
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError, DocwellError, PermanentError, Postponed, ServiceUnavailable, TransientError
from shared.tracing import close_tracing, configure_tracing, emit

log = structlog.get_logger(__name__)

_LONGEST_TURN_SECONDS = 30.0
"""After this long a woken process gives Celery its turn back, so that shutting down and recycling never wait long."""

_CLAIMED_AT_ONCE = 16
"""First attempts of one source that are claimed together; they share a call to the embedder and a commit."""

_LONGEST_BATCH_SECONDS = 5.0
"""After this long, what was claimed together and not begun goes back to the queue."""

_LONGEST_STATEMENT_MS = 600_000
"""Taking out a document of a hundred thousand passages is one statement, and it may meet a busy disk."""

_LOOK_SECONDS = 2.0
"""How often, on average, an idle process looks for jobs that nobody woke it for: Redis is away, or was emptied."""

_LONGEST_OUTAGE_SECONDS = 60.0
"""A job that waits for something that is away, the embedder or a folder, is tried again after this long at most."""

_PR_SET_PDEATHSIG = 1


class Worker:
    """One prefork process: its tools, opened and closed with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = worker_name(os.getppid(), os.getpid())
        self._pace = Pace()
        self._confined = False
        self._left_behind: psycopg.OperationalError | None = None
        self._outages = 0
        self._books = Work()
        self._rng = random.Random()  # noqa: S311 - jitter, no secret
        # Unchecked: a connection that died is noticed by the claim, before there is a job to lose.
        self._pool = open_pool(
            _database_url(settings),
            name="docwell-worker",
            size=4,
            check=False,
            autocommit=True,
            statement_timeout_ms=_LONGEST_STATEMENT_MS,
        )
        self._lane = Lane(self._pool, processes=_processes(settings))
        self._cage = ParserCage(
            CageLimits(
                timeout_seconds=settings.parse_timeout_seconds,
                memory_bytes=settings.parse_memory_bytes,
                passwords=tuple(password.get_secret_value() for password in settings.document_passwords),
                ocr=ocr_settings(settings),
            )
        )
        self._embedder: Embedder | None = None
        self._enricher = Enricher()
        self._captioner = Captioner()
        self._models = Models()
        self._turn = threading.Lock()
        self._closing = threading.Event()

    def begin(self) -> None:
        """Warm what takes long before the first document comes, and look for jobs by itself from now on; waits for nothing."""
        self._cage.warm()
        threading.Thread(target=self._look_out, name="lookout", daemon=True).start()

    def close(self) -> None:
        """End the parser's process and the connections, unless a job is under way: that ends with this process."""
        self._closing.set()
        if self._turn.acquire(blocking=False):
            for one in (self._cage, self._pool, self._enricher, self._captioner, self._models, self._embedder):
                close = getattr(one, "close", None)
                if close is not None:
                    close()

    def work(self, *, clock: Callable[[], float] = time.monotonic) -> int:
        """Claim and run jobs until none is due or the turn is over; returns how many were run."""
        with self._turn:
            return self._work(clock)

    def _look_out(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS * self._rng.uniform(0.75, 1.25)):
            if self._turn.acquire(blocking=False):
                try:
                    self._work(time.monotonic)
                except Exception:
                    log.exception("lookout_failed")
                finally:
                    self._turn.release()

    def _work(self, clock: Callable[[], float]) -> int:
        done = 0
        until = clock() + _LONGEST_TURN_SECONDS
        while clock() < until and not self._closing.is_set():
            try:
                with self._pool.connection() as connection:
                    if not self._confined:
                        confine_pushed(connection, self._settings)
                        self._confined = True
                    if self._left_behind is not None:
                        self._pick_up(connection, self._left_behind)
                        self._left_behind = None
                    claimed = jobs.claim(
                        connection, worker=self._name, lease_seconds=self._settings.job_lease_seconds, limit=_CLAIMED_AT_ONCE
                    )
                if not claimed:
                    if self._fill():
                        continue
                    break
                done += self._run(claimed, clock)
            except (psycopg.OperationalError, PoolTimeout) as error:
                self._left_behind = self._left_behind or error
                log.warning("database_unreachable", error=first_line(error), cure="Jobs wait for it, and go on by themselves.")
                break
        return done

    def _fill(self) -> bool:
        """Where no job is due, go on with a reindex for one batch."""
        return fill_some(self._pool, self._models, self._open_embedder, self._settings, self._books)

    def _pick_up(self, connection: Connection[Any], error: psycopg.OperationalError) -> None:
        """What PostgreSQL's going interrupted is tried again."""
        with connection.transaction():
            for job in jobs.held_by(connection, [self._name]):
                cut_off(connection, job, error, rng=self._rng)

    def _run(self, claimed: Sequence[ClaimedJob], clock: Callable[[], float]) -> int:
        """Run these jobs, with their leases kept alive, to their ends in the job table; returns how many ended."""
        began = clock()
        tools = Tools(
            settings=self._settings,
            pool=self._pool,
            cage=self._cage,
            embedder=self._open_embedder,
            work=self._books,
            enricher=self._enricher,
            captioner=self._captioner,
            models=self._models,
        )
        held = Held(claimed, pool=self._pool, worker=self._name, lease_seconds=self._settings.job_lease_seconds)
        self._outages += 1
        done = 0

        def enough() -> bool:
            return clock() - began > _LONGEST_BATCH_SECONDS

        with held.kept(patience_seconds=_LONGEST_BATCH_SECONDS):
            for ended in run_jobs(claimed, tools, self._pace, enough=enough, take=held.begin, lane=self._lane):
                if held.end(ended.job):
                    self._record(ended, clock() - began)
                    done += 1
        self._keep_books()
        return done

    def _keep_books(self) -> None:
        """Add up what was done, for `/metrics`."""
        taken = self._books.take()
        try:
            with self._pool.connection() as connection:
                add_totals(connection, taken)
        except (psycopg.Error, PoolTimeout) as error:
            # No job hangs on it, and the next batch brings it along.
            self._books.put_back(taken)
            log.warning("totals_not_kept", error=first_line(error))

    def _finished(self, job: ClaimedJob, result: str, code: str = "") -> None:
        """Count a job, and tell how it went to whoever traces."""
        self._books.count(JOBS_FINISHED, result, code)
        stages = self._books.stages(job)
        emit(
            f"job {job.kind}",
            began=stages[0].began if stages else self._books.clock(),
            ended=self._books.clock(),
            stages=stages,
            attributes={"docwell.job.id": str(job.job_id), "docwell.job.attempt": job.attempts, "docwell.job.result": result},
            error=code or None,
            kind="consumer",
        )

    def _record(self, ended: Ended, seconds: float) -> None:
        job, outcome = ended.job, ended.outcome
        with structlog.contextvars.bound_contextvars(job=str(job.job_id), document=str(job.document_id)):
            if isinstance(outcome, JobReport):
                self._outages = 0
                self._finished(job, outcome.result)
                _log_done(outcome, seconds)
            elif isinstance(outcome, LeaseLost):
                self._finished(job, "lease_lost", outcome.code)
                log.info("lease_lost")
            elif isinstance(outcome, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
                self._fail(job, TransientError(f"Two publishers met: {first_line(outcome)}.", code="conflict"))
            elif isinstance(outcome, Postponed | ConfigurationError):
                self._postpone(job, outcome)
            elif isinstance(outcome, DocwellError):
                self._fail(job, outcome)
            else:
                log.error("job_crashed", exc_info=outcome)
                self._fail(job, TransientError(f"{type(outcome).__name__}: {outcome}", code="internal_error"))

    def _open_embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = open_embedder(self._settings)
        return self._embedder

    def _postpone(self, job: ClaimedJob, error: DocwellError) -> None:
        """Somebody else's fault: the job waits, the longer the more often that was the case, and keeps its attempts."""
        delay = min(jobs.retry_delay(self._outages, rng=self._rng), _LONGEST_OUTAGE_SECONDS)
        delay = max(delay, getattr(error, "retry_after", None) or 0.0)
        try:
            with self._pool.connection() as connection, connection.transaction():
                jobs.postpone(connection, job, code=error.code, error=str(error), delay_seconds=delay)
                catalogue.record_failure(
                    connection, job.document_id, state="queued", code=error.code, reason=str(error), permanent=False
                )
        except LeaseLost:
            log.info("lease_lost")
            return
        self._finished(job, "postponed", error.code)
        log.warning("job_postponed", code=error.code, error=str(error), seconds=round(delay, 1))

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
        self._finished(job, state.value, error.code)
        log.warning("job_failed", state=state.value, code=error.code, error=str(error), attempt=job.attempts)


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise ConfigurationError("No database is set. Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
    return settings.database_url.get_secret_value()


def _processes(settings: Settings) -> int:
    return settings.worker_concurrency or os.cpu_count() or 1


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
        configure_tracing("worker")  # after the fork: what sends the spans is a thread
        worker.append(Worker(settings))
        worker[0].begin()

    def end(**_: object) -> None:
        while worker:
            worker.pop().close()
        close_tracing()

    worker_process_init.connect(begin, weak=False)
    worker_process_shutdown.connect(end, weak=False)
    return app


def run_worker(settings: Settings, *, ready_file: Path | None = None) -> int:
    """Run the worker in the foreground until SIGTERM or SIGINT; returns the exit code."""
    app = make_worker_app(settings)
    url = _database_url(settings)
    with connect(url, name="docwell-worker", autocommit=True) as connection:
        check_schema(connection)
        orphans = [name for name in jobs.holders(connection, neighbours()) if is_gone(name)]
    import_embedder(settings)  # before the fork, once for all children
    # Celery warns of root because of pickle, which is not accepted here; parsers run caged.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    concurrency = _processes(settings)
    main = os.getpid()
    keeper = Keeper(
        app,
        url,
        name_of=lambda child: worker_name(main, child),
        concurrency=concurrency,
        give_up=lambda: hand_back(url, worker_name(main)),
        rng=random.Random(),  # noqa: S311 - jitter, no secret
    )

    def ready(**_: object) -> None:
        keeper.hear_first()
        keeper.start(orphans)
        if ready_file is not None:
            ready_file.touch()

    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(keeper.stop, weak=False)
    ReportingPool.on_end = keeper.child_ended
    celery_worker = app.Worker(
        pool=ReportingPool,
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
        keeper.stop()
        hand_back(url, worker_name(main))
    return int(celery_worker.exitcode or 0)


def hand_back(url: str, worker: str) -> None:
    """The processes of this worker are gone, or go: what they held goes on at the next start, at once."""
    try:
        with connect(url, name="docwell-worker", autocommit=True) as connection:
            jobs.hand_back(connection, worker)
    except (ServiceUnavailable, psycopg.Error) as error:
        log.warning("jobs_not_handed_back", error=str(error), cure="Their leases run out by themselves.")
