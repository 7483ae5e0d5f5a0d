"""Wake workers through Celery. A message carries nothing but «there is work»; losing it costs a scheduler's tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
from celery import Celery

from ingest_worker.jobs.broker import PATIENCE_SECONDS, Broker, BrokerAway

Wake = Callable[[int], None]
"""Says that so many jobs are due. Never raises: the rows are safe, and workers look for them by themselves."""

log = structlog.get_logger(__name__)


def celery_wake(app: Celery, *, most: int, clock: Callable[[], float] = time.monotonic) -> Wake:
    """A `Wake` that lets as many messages wait as there are jobs, at most `most`: a woken worker works until nothing is due.

    It waits seconds at most for the broker, and after a failure not at all for a second. Safe for threads.
    """
    return _CeleryWake(Broker(app), most, clock)


class _CeleryWake:
    def __init__(self, broker: Broker, most: int, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._most = most
        self._clock = clock
        self._turn = threading.Lock()
        self._away_until: float | None = None

    def __call__(self, due: int) -> None:
        if due <= 0 or self._is_away():
            return
        with self._turn:
            if self._is_away():  # whoever had the turn before us found out
                return
            try:
                # While no worker takes them, messages that all say the same would fill the broker.
                for _ in range(min(due, self._most) - self._broker.waiting()):
                    self._broker.send()
            except BrokerAway as error:
                if self._away_until is None:
                    log.warning(
                        "broker_unreachable", error=str(error), cure="Start Redis. Until then workers look by themselves."
                    )
                self._away_until = self._clock() + PATIENCE_SECONDS
                return
            if self._away_until is not None:
                log.info("broker_back")
            self._away_until = None

    def _is_away(self) -> bool:
        return self._away_until is not None and self._clock() < self._away_until
