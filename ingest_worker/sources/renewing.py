"""Subscriptions of sources, renewed in their time: by whoever follows a source, and by the scheduler, for when nobody does.

A follower may be down, or in the midst of a listing that takes hours. The scheduler asks only for those that a follower has
made, and one renews at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue import remotes
from ingest_worker.catalogue.sources import Source as SourceRow
from ingest_worker.catalogue.sources import get_source
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.sources import registry
from ingest_worker.sources.pace import Pace, Stopped, make_client
from ingest_worker.sources.protocol import Source, Subscribes
from shared.config import ConnectionSettings, Settings
from shared.database import Pool, first_line, reachable
from shared.errors import DocwellError, ServiceUnavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 20.0
"""How often the scheduler looks whether something is due."""

_TRY_AGAIN = timedelta(minutes=10)

Opener = Callable[..., Source]


def renew(pool: Pool, row: SourceRow, source: Subscribes, clock: Callable[[], datetime], *, now_due: bool = False) -> bool | None:
    """Let a connector make and renew what is due, or, with `now_due`, whatever is due; whether events may have been missed.

    A failure stops nothing else: it is noted, and tried again after ten minutes. None: somebody else is at it.

    Raises:
        Stopped: the process ends.
        ServiceUnavailable: PostgreSQL is away.
    """
    with _held(pool, row) as mine:
        if not mine:
            return None
        with _connection(pool) as connection:
            remote = remotes.find_remote(connection, row.source_id)
        now = clock()
        if remote is None or not (now_due or remote.subscription_at is None or remote.subscription_at <= now):
            return False  # somebody else has been at it
        error, state, next_at = None, None, now + _TRY_AGAIN
        try:
            state = dict(source.maintain(remote.subscription, now))
            next_at = datetime.fromisoformat(state["next_at"])
        except Stopped:
            raise
        except Exception as failure:  # noqa: BLE001 - whatever it is, changes are found by asking, and people are told
            error = str(failure) if isinstance(failure, DocwellError) else f"{type(failure).__name__}: {failure}"
            log.warning("subscription_failed", source=row.name, error=error)
        changed = bool(state and state.get("changed"))
        with _connection(pool) as connection, connection.transaction():
            remotes.record_subscription(connection, row.source_id, state=state, next_at=next_at, error=error)
            if changed:
                remotes.want_changes(connection, row.source_id)
        return changed


class Renewer:
    """The scheduler's part. Used from one thread."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        *,
        stop: threading.Event,
        opener: Opener = registry.open_source,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._sources = tuple(one for one in settings.sources if isinstance(one, ConnectionSettings))
        self._pool = pool
        self._stop = stop
        self._opener = opener
        self._clock = clock
        self._pace = Pace()

    def run(self) -> None:
        """Look for what is due until stopped. PostgreSQL may be away; the next look tries again."""
        while self._sources and not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except Stopped:
                return
            except (ServiceUnavailable, psycopg.Error) as error:
                log.warning("renewal_waits_for_database", error=first_line(error))

    def look(self) -> int:
        """Renew what is due; returns of how many sources.

        Raises:
            Stopped, ServiceUnavailable: as `renew`.
        """
        return sum(self._look_at(one) for one in self._sources)

    def _look_at(self, settings: ConnectionSettings) -> bool:
        with _connection(self._pool) as connection:
            row = get_source(connection, settings.name)
            remote = None if row is None else remotes.find_remote(connection, row.source_id)
        now = self._clock()
        if row is None or remote is None or row.rests or remote.subscription_at is None or remote.subscription_at > now:
            return False
        if remote.failures == 0 and remote.resume_at is not None and remote.resume_at > now:
            return False  # the other side asked for a pause
        try:
            with make_client(self._pace.limiter(settings), self._stop) as client:
                source = self._opener(settings, client=client, clock=self._clock)
                try:
                    return isinstance(source, Subscribes) and renew(self._pool, row, source, self._clock) is not None
                finally:
                    source.close()
        except (Stopped, ServiceUnavailable, psycopg.Error):
            raise
        except Exception as error:  # noqa: BLE001 - of one connector; the others have nothing to do with it
            log.warning("renewal_failed", source=settings.name, error=first_line(error))
            return False


@contextmanager
def renewing(settings: Settings, pool: Pool, stop: threading.Event) -> Iterator[None]:
    """Renew as long as the block lasts, in a thread: it asks the network, for which nobody else waits."""
    thread = threading.Thread(target=Renewer(settings, pool, stop=stop).run, name="subscriptions", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(1.5)


@contextmanager
def _held(pool: Pool, row: SourceRow) -> Iterator[bool]:
    """Whether it is ours to renew this source's subscriptions now. No transaction is open meanwhile."""
    with _connection(pool) as connection:
        connection.autocommit = True
        mine = False
        try:
            mine = remotes.try_subscription_lock(connection, row.source_id)
            yield mine
        finally:
            if not connection.closed:
                if mine:
                    remotes.end_subscription_lock(connection, row.source_id)
                connection.autocommit = False


@contextmanager
def _connection(pool: Pool) -> Iterator[Connection[Any]]:
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
        yield connection
