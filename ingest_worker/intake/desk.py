"""Where people and a running watcher meet: what is asked of it, and what it says of itself, in the source's row."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import psycopg
import structlog

from ingest_worker.catalogue.source_state import SIGN_OF_LIFE_SECONDS, Wishes, read_wishes, record_watch
from ingest_worker.intake.events import Observation
from shared.database import Pool, first_line, reachable
from shared.errors import ServiceUnavailable

log = structlog.get_logger(__name__)

EVERY_SECONDS = 1.0
AWAY_SECONDS = 5.0
_WAIT_SECONDS = 0.5


class Desk:
    """Serves one source once a second. While PostgreSQL is away nobody is served, and the watcher goes on."""

    def __init__(self, source: str, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.next_at = 0.0
        """When to serve next, by the clock."""
        self._source = source
        self._pool = pool
        self._clock = clock
        self._request: datetime | None = None
        self._said: tuple[str | None, str | None] | None = None
        self._said_at = 0.0

    def serve(self, observation: Observation | None) -> bool:
        """Say how the source is watched (None: its folder is away); whether somebody asked for a sweep since the last time."""
        now = self._clock()
        if now < self.next_at:
            return False
        self.next_at = now + EVERY_SECONDS
        state = (None, None) if observation is None else (observation.mode, observation.notice)
        try:
            wishes = self._exchange(state, now)
        except (ServiceUnavailable, psycopg.Error) as error:
            # Who works with the database says so; here it only means that nobody can ask.
            log.debug("nobody_served", source=self._source, error=first_line(error))
            self.next_at = now + AWAY_SECONDS
            return False
        request = None if wishes is None else wishes.request
        asked = request is not None and request != self._request
        self._request = request
        return asked

    def _exchange(self, state: tuple[str | None, str | None], now: float) -> Wishes | None:
        with reachable(), self._pool.connection(timeout=_WAIT_SECONDS) as connection:
            if state != self._said or now - self._said_at >= SIGN_OF_LIFE_SECONDS:
                record_watch(connection, self._source, mode=state[0], notice=state[1])
                self._said, self._said_at = state, now
            return read_wishes(connection, self._source)

    def close(self) -> None:
        """Say that the watcher has ended."""
        try:
            with reachable(), self._pool.connection(timeout=_WAIT_SECONDS) as connection:
                record_watch(connection, self._source, mode=None, notice=None, runs=False)
        except (ServiceUnavailable, psycopg.Error) as error:
            log.debug("end_not_told", source=self._source, error=first_line(error))
