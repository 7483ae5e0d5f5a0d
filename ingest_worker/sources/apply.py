"""A batch of what a source says, compared with what is known and stored; one item that fails costs the others nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue import remote_items
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.erasures import ERASED
from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.intake.keeping import NothingKept
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.packing import pack
from ingest_worker.intake.read import Gone, Refused
from ingest_worker.jobs.wake import Wake
from ingest_worker.sources.naming import fit_path
from ingest_worker.sources.pace import Stopped
from ingest_worker.sources.protocol import Item, Source
from ingest_worker.sources.store import Resting, Shelf, move_items, refuse_item, store_item
from shared.database import Pool, first_line, is_away, reachable
from shared.errors import DocwellError, PermanentError, ServiceUnavailable, TransientError

log = structlog.get_logger(__name__)

MOST_IN_A_ROW = 10
"""So many items that fail one after another are no fault of the items: the source is left alone."""

PATIENT_ATTEMPTS = 3
"""So often an item may stop its batch because the source says that it is busy; then it waits for itself, and the others go on."""

_WAKE_EVERY = 20
_FIRST_RETRY_SECONDS = 60.0
_LONGEST_RETRY_SECONDS = 3600.0
_PERMANENT_RETRY_SECONDS = 6 * 3600.0


class Step(Enum):
    """What an item needs."""

    NOTHING = "nothing"
    FACTS = "facts"
    READ = "read"
    WAIT = "wait"


def next_step(item: Item, known: KnownItem | None, *, facts: str, now: datetime, whole: bool) -> Step:
    """Compare an item with what is stored of it. Pure. `whole`: in a listing of everything."""
    if known is None:
        return Step.READ
    if known.state == "excluded":
        return Step.NOTHING
    if waits(known, now):
        return Step.WAIT
    if known.error_code == ERASED and known.document_id is None:
        return Step.READ if whole or known.content != item.content else Step.NOTHING
    is_refused = known.error_code is not None and known.retry_at is None
    if known.content != item.content or known.content is None:
        return Step.READ
    if is_refused:
        return Step.NOTHING if known.facts == facts and not known.gone else Step.READ
    if known.document_id is None or known.state == "deleted":
        return Step.READ
    return Step.NOTHING if known.facts == facts and not known.gone else Step.FACTS


def waits(known: KnownItem, now: datetime) -> bool:
    """Whether a thing failed so often that it is left alone until its time."""
    return known.retry_at is not None and known.retry_at > now and known.attempts >= PATIENT_ATTEMPTS


def retry_seconds(error: Exception, attempts: int) -> float:
    """How long an item that failed waits before it is looked at again."""
    if isinstance(error, TransientError):
        waits = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(attempts, 20))
        return max(waits, error.retry_after or 0.0)
    return _PERMANENT_RETRY_SECONDS


@dataclass(kw_only=True)
class Applier:
    """Applies batches of one source. Used from one thread; no transaction is open while the source is asked."""

    pool: Pool
    asked: Source
    shelf: Shelf
    max_bytes: int
    wake: Wake
    clock: Callable[[], datetime]
    whole: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    _failing: int = 0
    _jobs: int = 0

    def apply(self, items: Sequence[Item], gone: Sequence[str] = ()) -> None:
        """Store what is there, and note what is gone. The same thing twice: the last one counts.

        Raises:
            ServiceUnavailable: PostgreSQL, or the source, is away.
            TransientError, PermanentError: the source cannot be asked now; what was stored until then is kept.
            Resting, Stopped
        """
        latest = {item.key: item for item in items}
        unclear = [key for key in gone if key in latest]
        for key in unclear:
            self.look_at(key)
            latest.pop(key)
        left = [key for key in gone if key not in unclear]
        self.note_gone(left)
        known = self._known(list(latest))
        known = self._move(latest, known)
        facts = {key: self.shelf.facts(item) for key, item in latest.items()}
        now = self.clock()
        steps = {
            key: next_step(item, known.get(key), facts=facts[key], now=now, whole=self.whole) for key, item in latest.items()
        }
        with self._connection() as connection:
            for wanted, note in ((Step.NOTHING, remote_items.saw_unchanged), (Step.WAIT, remote_items.saw)):
                keys = [key for key, step in steps.items() if step is wanted]
                note(connection, self.shelf.source.source_id, keys, self.shelf.listing)
        self.counts["seen"] += len(latest)
        try:
            for key, step in steps.items():
                if step in {Step.FACTS, Step.READ}:
                    self._one(latest[key], known.get(key), step)
        finally:
            self.flush()

    def look_at(self, key: str) -> None:
        """Ask what this is now, and apply it.

        Raises: as `apply`.
        """
        before = self._known([key]).get(key)
        if before is not None and waits(before, self.clock()):
            return
        try:
            item = self.asked.find(key)
        except (Stopped, Resting):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a connector raises is noted, and raised when it concerns all
            self._failed(key, None, before, error)
            return
        if item is None:
            self.note_gone([key])
        else:
            self.apply([item])

    def note_gone(self, keys: Sequence[str]) -> None:
        """The source says that these are gone. Whether their documents go is judged with all others."""
        if keys:
            with self._connection() as connection, connection.transaction():
                remote_items.saw_gone(connection, self.shelf.source.source_id, keys)

    def flush(self) -> None:
        """Wake workers for what was stored."""
        if self._jobs:
            jobs, self._jobs = self._jobs, 0
            self.wake(jobs)

    def _known(self, keys: Sequence[str]) -> dict[str, KnownItem]:
        with self._connection() as connection:
            return remote_items.known(connection, self.shelf.source.source_id, keys)

    def _move(self, latest: dict[str, Item], known: dict[str, KnownItem]) -> dict[str, KnownItem]:
        """Move the documents of items that stand elsewhere now, all of a batch together, since they may change places."""
        places = {}
        for key, item in latest.items():
            before = known.get(key)
            path = fit_path(item.path, key)
            if before is None or before.document_id is None or before.path in {path, ""}:
                continue
            if before.state not in {None, "deleted", "excluded"} and before.document_path != path:
                places[before.document_id] = (path, key)
        if not places:
            return known
        with self._connection() as connection:
            self.counts["moved"] += move_items(connection, self.shelf, places)
        return self._known(list(latest))

    def _one(self, item: Item, known: KnownItem | None, step: Step) -> None:
        try:
            self._take(item, known, step)
        except (Stopped, Resting):
            raise
        except Exception as error:
            if isinstance(error, ServiceUnavailable) and error.code == "database_unavailable":
                raise
            if isinstance(error, psycopg.Error) and is_away(error):
                raise
            self._keep_facts(item, known)
            self._failed(item.key, item, known, error)
        else:
            self._failing = 0
        if self._jobs >= _WAKE_EVERY:
            self.flush()

    def _take(self, item: Item, known: KnownItem | None, step: Step) -> None:
        try:
            if step is Step.FACTS and self._stored_facts(item, known):
                return
            self._store(item, self._read(item), known)
        except Gone:
            self.note_gone([item.key])
        except (Refused, Conflict) as refusal:
            self._refuse(item, known, refusal.code, str(refusal))

    def _stored_facts(self, item: Item, known: KnownItem | None) -> bool:
        try:
            self._store(item, None, known)
        except NothingKept:
            return False
        return True

    def _read(self, item: Item) -> bytes:
        if item.size is not None and item.size > self.max_bytes:
            raise Refused(self._too_large(item, item.size), code="too_large", size=item.size)
        data = self.asked.read(item, max_bytes=self.max_bytes)
        if len(data) > self.max_bytes:
            raise Refused(self._too_large(item, len(data)), code="too_large", size=len(data))
        return data

    def _store(self, item: Item, data: bytes | None, known: KnownItem | None) -> None:
        body = None if data is None else pack(data)
        with self._connection() as connection:
            kept = store_item(connection, self.shelf, item, body, known)
        self.counts["facts" if data is None else "new" if known is None or known.document_id is None else "changed"] += 1
        self._jobs += kept.changed

    def _refuse(self, item: Item, known: KnownItem | None, code: str, reason: str) -> None:
        self.counts["refused"] += 1
        with self._connection() as connection:
            refuse_item(connection, self.shelf, item, known, code=code, reason=reason)

    def _keep_facts(self, item: Item, known: KnownItem | None) -> None:
        """Its bytes cannot be had now, but who may read it is known: that must not wait for them."""
        if known is None or known.document_id is None or known.state in {None, "deleted", "excluded"}:
            return
        try:
            with self._connection() as connection:
                store_item(connection, self.shelf, item, None, known)
        except (NothingKept, Conflict, psycopg.DataError) as error:
            log.debug("facts_not_kept", source=self.shelf.source.name, key=item.key, error=str(error))

    def _failed(self, key: str, item: Item | None, known: KnownItem | None, error: Exception) -> None:
        """Note that an item could not be taken.

        Raises:
            DocwellError: the source as a whole cannot be asked now.
        """
        self.counts["failed"] += 1
        self._failing += 1
        path = fit_path(item.path, key) if item is not None else known.path if known is not None else ""
        attempts = known.attempts if known is not None else 0
        told = str(error) if isinstance(error, DocwellError) else f"{type(error).__name__}: {first_line(error)}"
        if not isinstance(error, DocwellError):
            log.exception("item_failed", source=self.shelf.source.name, key=key)
        with self._connection() as connection:
            remote_items.record_failed(
                connection,
                self.shelf.source.source_id,
                key,
                path=path,
                listing=self.shelf.listing,
                code=error.code if isinstance(error, DocwellError) else "connector_failed",
                error=told,
                retry_at=self.clock() + timedelta(seconds=retry_seconds(error, attempts)),
            )
        concerns_all = isinstance(error, ServiceUnavailable) or getattr(error, "retry_after", None) is not None
        if concerns_all:
            raise error
        if self._failing >= MOST_IN_A_ROW:
            raise error if isinstance(error, DocwellError) else PermanentError(told, code="connector_failed")

    def _too_large(self, item: Item, size: int) -> str:
        return (
            f"{item.path} has {size:,} bytes, the limit is {self.max_bytes:,}. Raise DOCWELL_MAX_BYTES, or `max_bytes` of source"
            f" {self.shelf.source.name}, to take it."
        )

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        with reachable(), self.pool.connection(timeout=WAIT_SECONDS) as connection:
            yield connection
