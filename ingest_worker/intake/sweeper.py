"""When to sweep: at the start, at an interval, and when asked; in a thread of its own, one source at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import structlog

from ingest_worker.catalogue.sources import Source, get_source
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.rescan import SweepOptions, sweep
from ingest_worker.jobs.wake import Wake
from shared.config import Settings, SourceSettings
from shared.database import Pool, first_line, reachable
from shared.errors import ServiceUnavailable

log = structlog.get_logger(__name__)

RETRY_SECONDS = 2.0
PAUSED_SECONDS = 5.0
JOIN_SECONDS = 1.5


class Sweeper:
    """Sweeps one source until it is stopped."""

    def __init__(
        self,
        source: SourceSettings,
        settings: Settings,
        pool: Pool,
        wake: Wake,
        *,
        rules: Callable[[], IgnoreRules],
        later: Callable[[str], None],
        turn: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = source.name
        self._settings = settings
        self._pool = pool
        self._wake = wake
        self._rules = rules
        self._later = later
        self._turn = turn
        self._clock = clock
        self._changed = threading.Condition()
        self._next_at = float("inf")
        self._identity: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._away = False

    def request(self, *, after: float = 0.0) -> None:
        """Sweep after so many seconds, or sooner if that was planned."""
        with self._changed:
            self._next_at = min(self._next_at, self._clock() + after)
            self._changed.notify()

    def start(self, stop: threading.Event) -> None:
        """Start the thread. The first sweep waits until one is requested, since the observer has to stand before."""
        self._thread = threading.Thread(target=self._run, args=(stop,), name=f"sweep-{self._name}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the thread, if something did."""
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait for the thread, whose stop event is set, to end."""
        with self._changed:
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        try:
            while self._wait(stop):
                self._sweep(stop)
        except BaseException as error:  # noqa: BLE001 - it is raised again by `check`, in the loop's thread
            self._failure = error

    def _wait(self, stop: threading.Event) -> bool:
        with self._changed:
            while not stop.is_set():
                left = self._next_at - self._clock()
                if left <= 0:
                    self._next_at = self._clock() + self._settings.watch_rescan_seconds
                    return True
                self._changed.wait(min(left, 1.0))
        return False

    def _sweep(self, stop: threading.Event) -> None:
        while not self._turn.acquire(timeout=0.5):
            if stop.is_set():
                return
        try:
            source = self._current_source()
            if source is None:
                return
            report = sweep(self._pool, source, self._rules(), self._wake, stop, self._options())
        except (ServiceUnavailable, psycopg.errors.OperationalError) as error:
            if not self._away:
                log.warning("sweep_waits", source=self._name, error=first_line(error))
            self._away = True
            self.request(after=RETRY_SECONDS)
            return
        finally:
            self._turn.release()
        self._away = False
        if report.error is None:
            self._identity = report.identity

    def _current_source(self) -> Source | None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            source = get_source(connection, self._name)
        if source is None:
            return None
        if source.paused:
            self.request(after=PAUSED_SECONDS)
            return None
        return source

    def _options(self) -> SweepOptions:
        return SweepOptions(
            settle_seconds=self._settings.watch_settle_seconds,
            grace_seconds=self._settings.delete_grace_seconds,
            max_attempts=self._settings.job_attempts,
            later=self._later,
            expected=self._identity,
        )
