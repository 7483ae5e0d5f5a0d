"""The jobs that one claim took: their leases are kept alive, and those that are not begun soon go back to the queue."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from shared.database import Pool, first_line

log = structlog.get_logger(__name__)


class Held:
    """Claimed jobs: some wait, some are begun. For the thread that does them and the one that keeps their leases."""

    def __init__(self, claimed: Sequence[ClaimedJob], *, pool: Pool, worker: str, lease_seconds: float) -> None:
        self._pool = pool
        self._worker = worker
        self._lease = lease_seconds
        self._guard = threading.Lock()
        self._waiting = {job.job_id: job for job in claimed}
        self._begun: dict[uuid.UUID, ClaimedJob] = {}

    def begin(self, job: ClaimedJob) -> bool:
        """Whether the job is still ours: then it stays so until it ends. Else it went back to the queue."""
        with self._guard:
            if job.job_id in self._waiting:
                self._begun[job.job_id] = self._waiting.pop(job.job_id)
            return job.job_id in self._begun

    def end(self, job: ClaimedJob) -> bool:
        """The job has ended; False where it had gone back before, and what became of it here counts for nothing."""
        with self._guard:
            return (self._waiting.pop(job.job_id, None) or self._begun.pop(job.job_id, None)) is not None

    def give_back(self) -> int:
        """Queue again what is not begun, with no attempt counted, since another worker may be idle; returns how many.

        Raises:
            psycopg.Error, PoolTimeout: PostgreSQL is away; they are held as before.
        """
        with self._guard:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return 0
        try:
            with self._pool.connection() as connection:
                return jobs.hand_back(connection, self._worker, list(waiting))
        except (psycopg.Error, PoolTimeout):
            with self._guard:
                self._waiting |= waiting  # kept alive, and given back later
            raise

    @contextmanager
    def kept(self, *, patience_seconds: float) -> Iterator[None]:
        """Renew the leases, and give back after `patience_seconds` what is not begun by then, however long the one takes that is.

        What is not begun at the end goes back too.
        """
        stop = threading.Event()
        thread = threading.Thread(target=self._keep, args=(stop, patience_seconds), name="lease-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        with self._guard:
            left = {**self._waiting, **self._begun}
            self._waiting, self._begun = left, {}
        self.give_back()

    def _keep(self, stop: threading.Event, patience_seconds: float) -> None:
        until = time.monotonic() + patience_seconds
        wait = min(patience_seconds, self._lease / 3)
        while not stop.wait(wait):
            left = until - time.monotonic()
            wait = min(left, self._lease / 3) if left > 0 else self._lease / 3
            try:
                if left <= 0:
                    self.give_back()
                with self._guard:
                    ours = [*self._waiting.values(), *self._begun.values()]
                with self._pool.connection() as connection:
                    jobs.renew(connection, ours, lease_seconds=self._lease)
            except (psycopg.Error, PoolTimeout) as error:
                log.warning("heartbeat_missed", error=first_line(error))
