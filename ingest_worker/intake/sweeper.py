"""When to sweep: at the start, at an interval, and when asked; in a thread of its own, few sources at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import structlog

from ingest_worker.catalogue.sources import Source, get_source
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.report import SweepReport
from ingest_worker.intake.rescan import SweepOptions, sweep
from ingest_worker.jobs.wake import Wake
from shared.config import FolderSettings, Settings
from shared.database import Pool, first_line, reachable
from shared.errors import ServiceUnavailable

log = structlog.get_logger(__name__)

AT_A_TIME = 2
"""Sources that are swept at once: a large one does not keep the others waiting, and each takes two connections."""

RETRY_SECONDS = 2.0
JOIN_SECONDS = 1.5
POLL_REST_SECONDS = 60.0
"""Where files are polled, their times may be another machine's: one counts as settled by its time alone only so long after the
settle time. Others are looked at twice."""

PATIENT_SWEEPS = 10
"""So many sweeps in a row a document that is gone may wait for a new file that may be it."""

POLL_SHARE = 3.0
"""Polling pauses at least so many times as long as it looked, however short its interval is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What a sweep needs of the watcher, and tells it. All are called in the sweep's thread."""

    rules: Callable[[], IgnoreRules]
    later: Callable[[str], None]
    swept: Callable[[SweepReport], None]


class Sweeper:
    """Sweeps one source until it is stopped. `polls`: at the interval of polling, since nothing else tells of changes."""

    def __init__(
        self,
        source: FolderSettings,
        settings: Settings,
        pool: Pool,
        wake: Wake,
        *,
        handlers: Handlers,
        turn: threading.Semaphore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.polls = False
        self._name = source.name
        self._settings = settings
        self._pool = pool
        self._wake = wake
        self._handlers = handlers
        self._turn = turn
        self._clock = clock
        self._changed = threading.Condition()
        self._next_at = float("inf")
        self._identity: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._away = False
        self._told: str | None = None
        self._waited = 0

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
                looked = self._sweep(stop)
                if self.polls:
                    self.request(after=max(self._settings.watch_poll_seconds, POLL_SHARE * looked))
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

    def _sweep(self, stop: threading.Event) -> float:
        """Sweep once; returns the seconds that looking took."""
        while not self._turn.acquire(timeout=0.5):
            if stop.is_set():
                return 0.0
        try:
            source = self._current_source()
            if source is None:
                return 0.0
            report = sweep(self._pool, source, self._handlers.rules(), self._wake, stop, self._options())
        except (ServiceUnavailable, psycopg.errors.OperationalError) as error:
            if not self._away:
                log.warning("sweep_waits", source=self._name, error=first_line(error))
            self._away = True
            self.request(after=RETRY_SECONDS)
            return 0.0
        finally:
            self._turn.release()
        self._away = False
        if report.error is None:
            self._identity = report.identity
        self._waited = self._waited + 1 if report.postponed else 0
        if report.postponed:
            self.request(after=self._settings.watch_settle_seconds + 1.0)
        if not report.stopped:
            self._handlers.swept(report)
            self._tell(report)
        return report.seconds

    def _tell(self, report: SweepReport) -> None:
        """Log the sweep. One that polls and found nothing new is of no interest, nor is a trouble that was told already."""
        if report.error is not None and report.error != self._told:
            level = log.warning
        elif self.polls and not report.found_something and report.error == self._told:
            level = log.debug
        else:
            level = log.info
        self._told = report.error
        level("swept", source=self._name, **report.counts, error=report.error)

    def _current_source(self) -> Source | None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            source = get_source(connection, self._name)
        # A source that goes on asks for a sweep.
        return None if source is None or source.rests else source

    def _options(self) -> SweepOptions:
        settle = self._settings.watch_settle_seconds
        return SweepOptions(
            rest_seconds=settle + POLL_REST_SECONDS if self.polls else settle,
            # A file that moved is missing at its old place as long as it settles at its new one.
            grace_seconds=max(self._settings.delete_grace_seconds, settle + 0.5),
            again_seconds=self._settings.watch_rescan_seconds / 2,
            max_attempts=self._settings.job_attempts,
            later=self._handlers.later,
            patient=self._waited < PATIENT_SWEEPS,
            expected=self._identity,
        )
