"""Remote sources within `docwell watch`: a thread for each, under a lock, so that of several watchers one follows a source."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue import events
from ingest_worker.catalogue.source_state import SIGN_OF_LIFE_SECONDS, record_watch
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.jobs.wake import Wake
from ingest_worker.sources import registry
from ingest_worker.sources.pace import Pace
from ingest_worker.sources.prepare import prepare_remote
from ingest_worker.sources.sync import Opener, RemoteSync
from shared.config import ConnectionSettings, Settings
from shared.database import Pool, connect, first_line, reachable
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
"""How often a source is asked whether something is due: an event waits for so long at most."""

MODE = "remote"
"""What a source that is followed shows as its mode."""

_LOCK_RETRY_SECONDS = 10.0
_DATABASE_RETRY_SECONDS = 2.0
_SETTINGS_RETRY_SECONDS = 60.0
_JOIN_SECONDS = 1.5

_LOCK: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended('docwell.remote.' || %s, 0))"


def remote_sources(settings: Settings) -> tuple[ConnectionSettings, ...]:
    """The sources that are asked over the network.

    Raises:
        ConfigurationError: nobody serves the type of one.
    """
    found = tuple(source for source in settings.sources if isinstance(source, ConnectionSettings))
    for source in found:
        registry.check_type(source)
    return found


@contextmanager
def following(
    sources: Sequence[ConnectionSettings],
    settings: Settings,
    pool: Pool,
    wake: Wake,
    *,
    opener: Opener = registry.open_source,
) -> Iterator[None]:
    """Follow these sources as long as the block lasts. Their threads end with it, or are left to end by themselves."""
    stop = threading.Event()
    pace = Pace()
    followers = [_Follower(one, settings, pool, wake, pace, stop, opener) for one in sources]
    threads = [
        threading.Thread(target=one.run, name=f"remote-{one.settings.name}", daemon=True)  # one may hang in a request
        for one in followers
    ]
    if followers:
        threads.append(threading.Thread(target=_say, args=(followers, pool, stop), name="remote-signs", daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        ends = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))


@dataclass(kw_only=True)
class _State:
    """What a follower says of itself: whether it holds the lock, and why it does not work."""

    holds: bool = False
    problem: str | None = None


class _Follower:
    """One source: waits for the lock, prepares the row, and ticks until stopped. Whatever goes wrong, it begins again."""

    def __init__(
        self,
        settings: ConnectionSettings,
        general: Settings,
        pool: Pool,
        wake: Wake,
        pace: Pace,
        stop: threading.Event,
        opener: Opener,
    ) -> None:
        self.settings = settings
        self.state = _State()
        self._general = general
        self._pool = pool
        self._wake = wake
        self._pace = pace
        self._stop = stop
        self._opener = opener

    def run(self) -> None:
        while not self._stop.is_set():
            waits = _LOCK_RETRY_SECONDS
            try:
                self._hold()
            except (ServiceUnavailable, psycopg.Error) as error:
                log.warning("source_waits_for_database", source=self.settings.name, error=first_line(error))
                waits = _DATABASE_RETRY_SECONDS
            except DocwellError as error:
                if str(error) != self.state.problem:
                    log.warning("source_not_followed", source=self.settings.name, error=str(error))
                self.state.problem = str(error)
                waits = _SETTINGS_RETRY_SECONDS
            except Exception:
                log.exception("source_not_followed", source=self.settings.name)
            finally:
                self.state.holds = False
            self._stop.wait(waits)

    def _hold(self) -> None:
        with _locked(self._url(), self.settings.name) as lock:
            if lock is None:
                return
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                source = prepare_remote(connection, self.settings, self._general)
                events.give_back(connection, source.source_id)
            self.state.holds, self.state.problem = True, None
            sync = RemoteSync(
                self.settings,
                self._general,
                self._pool,
                self._wake,
                limiter=self._pace.limiter(self.settings),
                stop=self._stop,
                opener=self._opener,
            )
            try:
                self._follow(sync, lock)
            finally:
                sync.close()

    def _follow(self, sync: RemoteSync, lock: Connection[Any]) -> None:
        checked = time.monotonic()
        while not self._stop.is_set():
            if time.monotonic() - checked > SIGN_OF_LIFE_SECONDS:
                lock.execute("SELECT 1")  # the lock is ours as long as its connection lives
                checked = time.monotonic()
            if not sync.tick():
                self._stop.wait(TICK_SECONDS)

    def _url(self) -> str:
        if self._general.database_url is None:
            raise ConfigurationError("No database is set. Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
        return self._general.database_url.get_secret_value()


@contextmanager
def _locked(url: str, source: str) -> Iterator[Connection[Any] | None]:
    """A connection that holds the source's lock; None when somebody else does."""
    with connect(url, name="docwell-remote", autocommit=True) as connection:
        row = connection.execute(_LOCK, (source,)).fetchone()
        yield connection if row is not None and row[0] else None


def _say(followers: Sequence[_Follower], pool: Pool, stop: threading.Event) -> None:
    """Show in the sources' rows that they are followed: a thread of its own, since a listing may take hours."""
    said: set[str] = set()
    while True:
        ending = stop.is_set()  # asked once, so that the last round is the one that says so
        for one in followers:
            name = one.settings.name
            holds = one.state.holds and not ending
            if holds or name in said:
                try:
                    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
                        record_watch(connection, name, mode=MODE if holds else None, notice=None, runs=holds)
                    said.add(name)
                except (ServiceUnavailable, psycopg.Error) as error:
                    # Who works with the database says so; here it only means that nobody sees the sign.
                    log.debug("sign_not_given", source=name, error=first_line(error))
        if ending:
            return
        stop.wait(SIGN_OF_LIFE_SECONDS / 2 if said else TICK_SECONDS)
