"""Keeps the index equal to one source that is asked over the network.

Whole listings find everything; between them changes are followed from a cursor, and events say what to look at now. The cursor
moves only when what came before it is stored. A failure leaves the source alone for a while; nothing of it is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import structlog
from psycopg import Connection

from ingest_worker.catalogue import remote_items, remotes
from ingest_worker.catalogue.remotes import Remote
from ingest_worker.catalogue.source_state import record_error, record_sweep
from ingest_worker.catalogue.sources import Source as SourceRow
from ingest_worker.catalogue.sources import get_source
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.jobs.wake import Wake
from ingest_worker.sources import registry
from ingest_worker.sources.apply import Applier
from ingest_worker.sources.inbox import Inbox
from ingest_worker.sources.leaving import missing, settle
from ingest_worker.sources.pace import LONGEST_RETRY_AFTER, Limiter, Stopped, make_client, pause_seconds
from ingest_worker.sources.protocol import Batch, CursorExpired, Source, Subscribes
from ingest_worker.sources.renewing import renew
from ingest_worker.sources.schedule import Due, what_is_due
from ingest_worker.sources.store import Resting, Shelf, settle_paths
from shared.config import ConnectionSettings, Settings
from shared.database import Pool, first_line, reachable
from shared.errors import DocwellError, ServiceUnavailable, TransientError

log = structlog.get_logger(__name__)

_RETRIES_AT_ONCE = 20
_OTHERS_RENEW = timedelta(seconds=10)

Opener = Callable[..., Source]


class RemoteSync:
    """Follows one source. `tick` does what is due and returns; it is called once a second, from one thread.

    Whoever calls it holds the source's lock, so that no other process follows it too.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        general: Settings,
        pool: Pool,
        wake: Wake,
        *,
        limiter: Limiter,
        stop: threading.Event,
        opener: Opener = registry.open_source,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._general = general
        self._pool = pool
        self._wake = wake
        self._limiter = limiter
        self._stop = stop
        self._opener = opener
        self._clock = clock
        self._client: httpx.Client | None = None
        self._open: Source | None = None
        self._inbox = Inbox(pool)
        self._asked: datetime | None = None
        self._told: str | None = None
        self._others_renew_until: datetime | None = None

    def tick(self) -> bool:
        """Do what is due; False when nothing was.

        Raises:
            ServiceUnavailable: PostgreSQL is away.
        """
        with self._connection() as connection:
            row = get_source(connection, self._settings.name)
            remote = None if row is None else remotes.find_remote(connection, row.source_id)
            if row is None or remote is None or row.rests:
                return False
            if row.sweep_requested is not None and row.sweep_requested != self._asked:
                # A person asked: no need to wait out a failure. What the source itself asked for is waited out.
                self._asked = row.sweep_requested
                remotes.end_rest(connection, row.source_id)
                remote = remotes.find_remote(connection, row.source_id) or remote
        now = self._clock()
        if remote.resume_at is not None and remote.resume_at > now:
            return False
        due = what_is_due(
            row,
            remote,
            now,
            sync=self._settings.sync_seconds,
            full=self._settings.full_sync_seconds,
            has_events=self._inbox.has_news(row.source_id),
            has_retries=bool(self._due_retries(row, now)),
            subscribes=self._renews(now),
        )
        if not due:
            return False
        return self._attempt(row, remote, due)

    def close(self) -> None:
        """Close the connector."""
        opened, self._open = self._open, None
        client, self._client = self._client, None
        try:
            if opened is not None:
                opened.close()
        except Exception as error:  # noqa: BLE001 - it is going away; what it did not end, its client's close does
            log.warning("source_not_closed", source=self._settings.name, error=first_line(error))
        if client is not None:
            client.close()

    # --- one attempt, and what becomes of it

    def _attempt(self, row: SourceRow, remote: Remote, due: Due) -> bool:
        try:
            self._do(row, remote, due)
        except (Stopped, Resting):
            self._inbox.give_back(row.source_id)
            return False
        except ServiceUnavailable as error:
            if error.code == "database_unavailable":
                raise
            self._failed(row, remote, error)
        except DocwellError as error:
            self._failed(row, remote, error)
        except Exception as error:
            log.exception("source_failed", source=row.name)
            self._failed(row, remote, error)
        else:
            with self._connection() as connection:
                remotes.recovered(connection, row.source_id)
            self._told = None
        return True

    def _failed(self, row: SourceRow, remote: Remote, error: Exception) -> None:
        told = str(error) if isinstance(error, DocwellError) else f"{type(error).__name__}: {first_line(error)}"
        asked_for = error.retry_after if isinstance(error, TransientError) else None
        if asked_for is not None:
            asked_for = min(asked_for, LONGEST_RETRY_AFTER)  # a source of somebody else's may say anything
        failures = remote.failures + 1
        waits = asked_for if asked_for is not None else pause_seconds(failures)
        until = self._clock() + timedelta(seconds=waits)
        if asked_for is not None:
            self._limiter.pause(asked_for)
        with self._connection() as connection, connection.transaction():
            if asked_for is None:
                remotes.count_failure(connection, row.source_id, until=until, reason=told)
                record_error(connection, row.source_id, told)
            else:
                remotes.rest_together(connection, row.source_id, until=until, reason=told)
            if row.sweep_requested is not None:
                # Whoever waits for it learns why it did not come to its end; it is tried again without being asked.
                record_sweep(connection, row.source_id, began=None, error=told, answered=row.sweep_requested)
                remotes.want_listing(connection, row.source_id)
        self._inbox.give_back(row.source_id)
        if told != self._told:
            log.warning("source_waits", source=row.name, failures=failures, seconds=round(waits, 1), error=told)
        self._told = told
        if not isinstance(error, TransientError):
            self.close()  # a secret or a setting may be another one by then

    def _do(self, row: SourceRow, remote: Remote, due: Due) -> None:
        source = self._source()
        if due.subscription:
            due = replace(due, changes=self._subscribe(row, source) or due.changes)
        if due.everything:
            self._everything(row, remote, source)
            return
        held: list[int] = []
        applier = self._applier(row, remote.listing, source)
        if due.events:
            wish = self._inbox.handle(row.source_id, source, applier)
            if wish.subscribe:
                wish = replace(wish, changed=self._subscribe(row, source, now_due=True) or wish.changed)
            held = self._inbox.release()
            if wish.everything or (wish.changed and remote.cursor is None):
                self._everything(row, remote, source)
                self._inbox.finish(held)
                return
            due = replace(due, changes=due.changes or wish.changed)
        if due.changes and remote.cursor is not None:
            try:
                self._changes(row, remote.cursor, applier)
            except CursorExpired as expired:
                log.info("cursor_expired", source=row.name, reason=str(expired))
                self._forget_cursor(row)
                self._everything(row, remote, source)
                self._inbox.finish(held)
                return
        self._inbox.finish(held)
        for key in self._due_retries(row, self._clock()):
            self._go_on()
            applier.look_at(key)
        applier.flush()
        self._end(row, applier)

    # --- everything, changes, subscriptions

    def _everything(self, row: SourceRow, remote: Remote, source: Source) -> None:
        first = row.newest_sweep is None
        if first and remote.listing_began is not None and remote.cursor is not None:
            began, listing, whole = remote.listing_began, remote.listing, False
            stream = source.changes(remote.cursor)
        else:
            began, whole = self._clock(), True
            with self._connection() as connection:
                listing = remotes.begin_listing(connection, row.source_id, began)
            stream = source.everything()
        applier = self._applier(row, listing, source, whole=True, bulk=first)
        cursor = None
        try:
            for batch in self._batches(stream):
                applier.apply_batch(batch)
                cursor = batch.cursor or cursor
                with self._connection() as connection:
                    # Only a first listing can go on where it broke off: what a later one did not reach is not gone.
                    kept = batch.cursor if first else None
                    remotes.record_batch(connection, row.source_id, cursor=kept, seen=len(batch.items), total=batch.total)
                self._inbox.handle(row.source_id, source, applier, hold=True)
        except CursorExpired:
            self._forget_cursor(row)
            raise
        if whole:
            missing(self._pool, row, applier, listing=listing)
        applier.flush()
        with self._connection() as connection:
            remotes.end_listing(connection, row.source_id, began=began, cursor=cursor)
        self._end(row, applier, began=began)

    def _changes(self, row: SourceRow, cursor: str, applier: Applier) -> None:
        began = self._clock()
        source = applier.asked
        for batch in self._batches(source.changes(cursor)):
            applier.apply_batch(batch)
            with self._connection() as connection:
                remotes.record_batch(connection, row.source_id, cursor=batch.cursor)
            self._inbox.handle(row.source_id, source, applier, hold=True)
        with self._connection() as connection:
            remotes.end_changes(connection, row.source_id, began)

    def _batches(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, as long as nobody stops us. They are asked for one by one: memory is that of one."""
        for batch in stream:
            self._go_on()
            yield batch

    def _subscribe(self, row: SourceRow, source: Source, *, now_due: bool = False) -> bool:
        """Let the connector ask to be told; whether events may have been missed. The scheduler may be at it instead."""
        if not isinstance(source, Subscribes):
            return False
        changed = renew(self._pool, row, source, self._clock, now_due=now_due)
        self._others_renew_until = self._clock() + _OTHERS_RENEW if changed is None else None
        return bool(changed)

    def _renews(self, now: datetime) -> bool:
        """Whether renewing is up to us: not right after somebody else was found to be at it."""
        if self._others_renew_until is not None and now < self._others_renew_until:
            return False
        return self._open is None or isinstance(self._open, Subscribes)

    def _end(self, row: SourceRow, applier: Applier, *, began: datetime | None = None) -> None:
        """Judge what is gone, give back paths, and note how it went."""
        held = settle(self._pool, row, applier)
        if applier.counts["gone"] or began is not None:
            with self._connection() as connection:
                applier.counts["moved"] += settle_paths(connection, applier.shelf)
        with self._connection() as connection, connection.transaction():
            counts = {name: count for name, count in applier.counts.items() if count}
            if began is not None:
                whole = began if held is None else None
                failed = remote_items.count(connection, row.source_id)["failed"]
                all_counts = {**counts, **({"failing": failed} if failed else {})}
                record_sweep(connection, row.source_id, began=whole, error=held, counts=all_counts, answered=row.sweep_requested)
            elif row.approved_at is not None:
                record_sweep(connection, row.source_id, began=None, error=held, counts=counts, answered=row.sweep_requested)
            else:
                record_error(connection, row.source_id, held)
        if began is not None or any(count for name, count in counts.items() if name not in {"seen", "held"}):
            log.info("synced", source=row.name, whole=began is not None, **counts)

    # --- small parts

    def _source(self) -> Source:
        if self._open is None:
            self.close()
            self._client = make_client(self._limiter, self._stop)
            self._open = self._opener(self._settings, client=self._client, clock=self._clock)
        return self._open

    def _applier(self, row: SourceRow, listing: int, source: Source, *, whole: bool = False, bulk: bool = False) -> Applier:
        return Applier(
            pool=self._pool,
            asked=source,
            shelf=Shelf(
                source=row,
                listing=listing,
                permissions=self._settings.permissions,
                max_attempts=self._general.job_attempts,
                bulk=bulk,
            ),
            max_bytes=self._settings.max_bytes or self._general.max_bytes,
            wake=self._wake,
            clock=self._clock,
            whole=whole,
        )

    def _due_retries(self, row: SourceRow, now: datetime) -> list[str]:
        with self._connection() as connection:
            return remote_items.due(connection, row.source_id, now, limit=_RETRIES_AT_ONCE)

    def _forget_cursor(self, row: SourceRow) -> None:
        with self._connection() as connection:
            remotes.forget_cursor(connection, row.source_id)

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise Stopped

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            yield connection
