"""A batch of what a source says, compared with what is known and stored; one item that fails costs the others nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue import remote_items
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.erasures import erased_paths
from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.intake.keeping import NothingKept
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.packing import pack
from ingest_worker.intake.read import Gone, Refused
from ingest_worker.jobs.wake import Wake
from ingest_worker.sources.ahead import Ahead
from ingest_worker.sources.naming import fit_path
from ingest_worker.sources.pace import Stopped
from ingest_worker.sources.protocol import Batch, Failure, Item, ReadsAhead, Source, Trees
from ingest_worker.sources.steps import FOR_NOW, REFUSED_RETRY_SECONDS, Step, next_step, retry_seconds, waits
from ingest_worker.sources.store import Resting, Shelf, move_items, refuse_item, store_item
from shared.database import Pool, first_line, is_away, reachable
from shared.errors import DocwellError, PermanentError, ServiceUnavailable

log = structlog.get_logger(__name__)

MOST_IN_A_ROW = 10
"""So many items that fail one after another are no fault of the items: the source is left alone."""

_WAKE_EVERY = 20

_ERASED_FAILED = "What was erased here could not be looked at. Nothing of it is taken in."

_WITNESSES = 5
"""So many things that could be taken before are asked for when many others fail: if one of them comes, those are at fault."""


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
    _unlisted: set[str] = field(default_factory=set)

    def apply_batch(self, batch: Batch) -> None:
        """Store what is there, and note what is gone and what failed.

        Raises: as `apply`.
        """
        self.apply(batch.items, batch.gone)
        self.note_failed(batch.failed)

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
            for kind, note in ((Step.NOTHING, remote_items.saw_unchanged), (Step.WAIT, remote_items.saw)):
                keys = [key for key, step in steps.items() if step is kind]
                note(connection, self.shelf.source.source_id, keys, self.shelf.listing)
        self.counts["seen"] += len(latest)
        wanted = [latest[key] for key, step in steps.items() if step is Step.READ and not self._is_too_large(latest[key])]
        at_once = self.asked.reads_at_once if isinstance(self.asked, ReadsAhead) else 1
        try:
            with Ahead(self._ask_for, wanted, at_once=at_once) as ahead:
                for key, step in steps.items():
                    if step in {Step.FACTS, Step.READ}:
                        self._one(latest[key], known.get(key), step, ahead)
        finally:
            self.flush()

    def look_at(self, key: str) -> None:
        """Ask what this is now, and apply it.

        Raises: as `apply`.
        """
        tree = remote_items.is_below(key)
        if tree is not None:
            self._look_below(key, tree)
            return
        before = self._known([key]).get(key)
        if before is not None and waits(before, self.clock()) and before.error_code not in FOR_NOW:
            return
        try:
            item = self.asked.find(key)
        except (Stopped, Resting):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a connector raises is noted, and raised when it concerns all
            self._failed(key, before.path if before is not None else "", before, error)
            return
        if item is None:
            self.note_gone([key])
        else:
            self.apply([item])

    def _look_below(self, key: str, tree: str) -> None:
        """Ask again for what stands below something."""
        if not isinstance(self.asked, Trees):
            with self._connection() as connection:
                remote_items.forget(connection, self.shelf.source.source_id, [key])
            return
        before = self._known([key]).get(key)
        self._unlisted.discard(key)
        try:
            for batch in self.asked.below(tree):
                self.apply_batch(batch)
        except (Stopped, Resting):
            raise
        except Exception as error:  # noqa: BLE001 - as in `look_at`
            self._failed(key, before.path if before is not None else "", before, error)
            return
        if key not in self._unlisted:
            with self._connection() as connection:
                remote_items.forget(connection, self.shelf.source.source_id, [key])

    def note_failed(self, failures: Sequence[Failure]) -> None:
        """The source could not tell of these. Each is remembered, so that the cursor may go past it.

        Raises:
            DocwellError: so many fail, one after another, that it is the source's fault.
        """
        keys = {remote_items.below(one.key) if one.below else one.key: one for one in failures}
        known = self._known(list(keys)) if keys else {}
        now = self.clock()
        for key, failure in keys.items():
            before = known.get(key)
            path = "" if not failure.path else fit_path(failure.path, failure.key)
            if failure.below:
                self._unlisted.add(key)
                if path and not failure.partly:
                    with self._connection() as connection:
                        remote_items.saw_below(connection, self.shelf.source.source_id, path, self.shelf.listing)
            if before is not None and waits(before, now):
                with self._connection() as connection:
                    remote_items.saw(connection, self.shelf.source.source_id, [key], self.shelf.listing)
                continue
            # Where a document stands is told when it has been moved there.
            self._failed(
                key, before.path if before is not None and before.document_id is not None else path, before, failure.error
            )

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

    def _one(self, item: Item, known: KnownItem | None, step: Step, ahead: Ahead) -> None:
        try:
            self._take(item, known, step, ahead)
        except (Stopped, Resting):
            raise
        except Exception as error:
            if isinstance(error, ServiceUnavailable) and error.code == "database_unavailable":
                raise
            if isinstance(error, psycopg.Error) and is_away(error):
                raise
            self._keep_facts(item, known)
            self._failed(item.key, fit_path(item.path, item.key), known, error)
        else:
            self._failing = 0
        if self._jobs >= _WAKE_EVERY:
            self.flush()

    def _take(self, item: Item, known: KnownItem | None, step: Step, ahead: Ahead) -> None:
        try:
            if step is Step.FACTS and self._stored_facts(item, known):
                return
            self._store(item, self._read(item, ahead), known)
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

    def _read(self, item: Item, ahead: Ahead) -> bytes:
        if item.size is not None and self._is_too_large(item):
            raise Refused(self._too_large(item, item.size), code="too_large", size=item.size)
        data = ahead.take(item)
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
            retry_at = self.clock() + timedelta(seconds=REFUSED_RETRY_SECONDS) if code in FOR_NOW else None
            refuse_item(connection, self.shelf, item, known, code=code, reason=reason, retry_at=retry_at)

    def _keep_facts(self, item: Item, known: KnownItem | None) -> None:
        """Its bytes cannot be had now, but who may read it is known: that must not wait for them."""
        if known is None or known.document_id is None or known.state in {None, "deleted", "excluded"}:
            return
        try:
            with self._connection() as connection:
                store_item(connection, self.shelf, item, None, known)
        except (NothingKept, Conflict, psycopg.DataError) as error:
            log.debug("facts_not_kept", source=self.shelf.source.name, key=item.key, error=str(error))

    def _failed(self, key: str, path: str, known: KnownItem | None, error: Exception) -> None:
        """Note that an item could not be taken.

        Raises:
            DocwellError: the source as a whole cannot be asked now.
        """
        self.counts["failed"] += 1
        self._failing += 1
        attempts = known.attempts if known is not None else 0
        told = str(error) if isinstance(error, DocwellError) else f"{type(error).__name__}: {first_line(error)}"
        if not isinstance(error, DocwellError):
            log.exception("item_failed", source=self.shelf.source.name, key=key)
        with self._connection() as connection:
            if erased_paths(connection, self.shelf.source.source_id, {path, f"{path}.md"}):
                # No name of it may be kept, nor a message that holds it.
                path, told = "", _ERASED_FAILED
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
        if self._failing >= MOST_IN_A_ROW and not self._gives_others():
            raise error if isinstance(error, DocwellError) else PermanentError(told, code="connector_failed")

    def _gives_others(self) -> bool:
        """Whether the source still gives one of the things that it gave before."""
        with self._connection() as connection:
            keys = remote_items.sound(connection, self.shelf.source.source_id, limit=_WITNESSES)
        for key in keys:
            try:
                item = self.asked.find(key)
                if item is not None:
                    self.asked.read(item, max_bytes=self.max_bytes)
                    self._failing = 0
                    return True
            except (Stopped, Resting):
                raise
            except Exception as error:  # noqa: BLE001 - it is what is asked here
                log.debug("witness_failed", source=self.shelf.source.name, key=key, error=first_line(error))
        return False

    def _ask_for(self, item: Item) -> bytes:
        return self.asked.read(item, max_bytes=self.max_bytes)

    def _is_too_large(self, item: Item) -> bool:
        return item.size is not None and item.size > self.max_bytes

    def _too_large(self, item: Item, size: int) -> str:
        return (
            f"{item.path} has {size:,} bytes, the limit is {self.max_bytes:,}. Raise DOCWELL_MAX_BYTES, or `max_bytes` of source"
            f" {self.shelf.source.name}, to take it."
        )

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        with reachable(), self.pool.connection(timeout=WAIT_SECONDS) as connection:
            yield connection
