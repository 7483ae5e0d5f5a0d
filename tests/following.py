"""The engine that follows a source under test, and the catalogue that it fills: what all such tests ask for."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import httpx

from ingest_worker.catalogue import events, remotes
from ingest_worker.catalogue.held import count_held
from ingest_worker.catalogue.remotes import Remote
from ingest_worker.catalogue.source_state import approve_deletes
from ingest_worker.catalogue.sources import Source as SourceRow
from ingest_worker.catalogue.sources import get_source
from ingest_worker.sources.pace import Limiter
from ingest_worker.sources.prepare import prepare_remote
from ingest_worker.sources.protocol import Source
from ingest_worker.sources.sync import RemoteSync
from shared.config import ConnectionSettings, Settings
from shared.database import Pool

S = TypeVar("S", bound=ConnectionSettings)


@dataclass(kw_only=True)
class Following(ABC, Generic[S]):
    """One source and its engine, by the clock of the test."""

    pool: Pool
    general: Settings
    settings: S
    woken: list[int] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _sync: RemoteSync | None = None

    @abstractmethod
    def now(self) -> datetime:
        """The test's time."""

    @abstractmethod
    def open(self, settings: Any, *, client: httpx.Client, clock: Any) -> Source:
        """The source, as its connector opens it."""

    @property
    def source(self) -> SourceRow:
        with self.pool.connection() as connection:
            found = get_source(connection, self.settings.name)
        assert found is not None
        return found

    @property
    def source_id(self) -> int:
        return self.source.source_id

    @property
    def remote(self) -> Remote:
        with self.pool.connection() as connection:
            found = remotes.find_remote(connection, self.source_id)
        assert found is not None
        return found

    @property
    def sync(self) -> RemoteSync:
        """The engine; made anew after `restart`."""
        if self._sync is None:
            with self.pool.connection() as connection:
                source = prepare_remote(connection, self.settings, self.general)
                events.give_back(connection, source.source_id)
            self._sync = RemoteSync(
                self.settings,
                self.general,
                self.pool,
                self.woken.append,
                limiter=Limiter(1e9),
                stop=self.stop,
                opener=self.open,
                clock=self.now,
            )
        return self._sync

    def restart(self) -> None:
        """The process ends and begins again."""
        if self._sync is not None:
            self._sync.close()
        self._sync = None

    def do_what_is_due(self, *, rounds: int = 50) -> None:
        """Tick until nothing is due; no time passes."""
        for _ in range(rounds):
            if not self.sync.tick():
                return
        raise AssertionError("it does not come to rest")

    def approve(self) -> bool:
        """Let go what is held, as a person does; whether anything was."""
        with self.pool.connection() as connection:
            count, as_of = count_held(connection, self.source_id)
            if count:
                approve_deletes(connection, self.settings.name, as_of=as_of)
        return bool(count)

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What a query gives."""
        with self.pool.connection() as connection:
            return connection.execute(query, values).fetchall()

    def documents(self) -> dict[str, uuid.UUID]:
        """Document by path, without what is deleted."""
        return dict(self.rows("SELECT path, document_id FROM docwell.document WHERE state <> 'deleted' ORDER BY path"))
