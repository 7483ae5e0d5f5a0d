"""Libraries of the stand-in of Microsoft Graph, followed by the engine into a real catalogue."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import events, remotes
from ingest_worker.catalogue.held import count_held
from ingest_worker.catalogue.remotes import Remote
from ingest_worker.catalogue.source_state import approve_deletes
from ingest_worker.catalogue.sources import get_source
from ingest_worker.intake.read import read_content
from ingest_worker.sources.pace import Limiter
from ingest_worker.sources.prepare import prepare_remote
from ingest_worker.sources.protocol import Source
from ingest_worker.sources.sharepoint import open_source
from ingest_worker.sources.sync import RemoteSync
from shared.config import Settings
from shared.database import Pool, open_pool
from shared.source_settings import SharePointSettings
from tests.graph_asking import expected_readers, settings_of
from tests.graph_stand_in import StandInGraph

Index = dict[str, tuple[bytes | None, tuple[str, ...] | None]]
"""Bytes and readers by path; without bytes: left out with a reason."""


@dataclass(kw_only=True)
class FollowedGraph:
    """The engine of one source, with the stand-in's clock."""

    graph: StandInGraph
    pool: Pool
    general: Settings
    settings: SharePointSettings
    _sync: RemoteSync | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

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
                lambda _: None,
                limiter=Limiter(100_000.0),
                stop=self._stop,
                opener=self._open,
                clock=lambda: self.graph.now,
            )
        return self._sync

    def _open(self, settings: SharePointSettings, *, client: httpx.Client, clock: Any) -> Source:
        # What the engine's client adds is a wait of real seconds when it is told to wait; time is the stand-in's here.
        client.event_hooks = {"request": [], "response": []}
        return open_source(settings, client=client, clock=clock)

    def restart(self, **settings: Any) -> None:
        """The process ends and begins again, with other settings if some are given."""
        if self._sync is not None:
            self._sync.close()
        self._sync = None
        if settings:
            self.settings = SharePointSettings.model_validate(self.settings.model_dump() | settings)

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, then do what is due until nothing is."""
        self.graph.pass_time(timedelta(seconds=seconds))
        for _ in range(50):
            if not self.sync.tick():
                return
        raise AssertionError("it does not come to rest")

    def changes(self) -> None:
        """Follow changes, as every two minutes."""
        self.settle(self.settings.sync_seconds + 1)

    def whole(self) -> None:
        """Look at everything, as after a day; a person approves what is held."""
        self.settle(self.settings.full_sync_seconds + 1)
        with self.pool.connection() as connection:
            held, as_of = count_held(connection, self.source_id)
            if held:
                approve_deletes(connection, self.settings.name, as_of=as_of)
        if held:
            self.settle(self.settings.sync_seconds + 1)

    @property
    def source_id(self) -> int:
        with self.pool.connection() as connection:
            found = get_source(connection, self.settings.name)
        assert found is not None
        return found.source_id

    @property
    def remote(self) -> Remote:
        with self.pool.connection() as connection:
            found = remotes.find_remote(connection, self.source_id)
        assert found is not None
        return found

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What a query gives."""
        with self.pool.connection() as connection:
            return connection.execute(query, values).fetchall()

    def documents(self) -> dict[str, uuid.UUID]:
        """Document by path, without what is deleted."""
        return dict(self.rows("SELECT path, document_id FROM docwell.document WHERE state <> 'deleted' ORDER BY path"))

    def index(self) -> Index:
        """What a worker would read, and who may read it."""
        found: Index = {}
        rows = self.rows("SELECT document_id, path, readers, state, reason_code FROM docwell.document WHERE state <> 'deleted'")
        with self.pool.connection() as connection:
            for document_id, path, readers, state, _ in rows:
                data = None
                if state != "skipped":
                    document = catalogue.for_job(connection, document_id)
                    assert document is not None
                    data = read_content(connection, document, max_bytes=1 << 20).data
                found[path] = (data, None if readers is None else tuple(sorted(readers)))
        return found

    def remote_index(self) -> Index:
        """What it has to be."""
        found: Index = {}
        for site in self.graph.sites:
            for drive in site.drives:
                for thing in drive.things.values():
                    if thing.kind in {"file", "package"}:
                        data = thing.data if thing.kind == "file" and thing.data else None
                        found[f"{drive.name}/{drive.path(thing)}"] = (data, expected_readers(drive, thing, site, self.graph))
        return found


@contextlib.contextmanager
def following(database_url: str, graph: StandInGraph, **values: Any) -> Iterator[FollowedGraph]:
    """The tenant's first site, followed as the source `marketing`."""
    site = graph.sites[0]
    settings = settings_of(graph, **{"site": f"{site.host}:{site.path}"} | values)
    general = Settings.model_validate({"database_url": database_url})
    with open_pool(database_url, name="test-graph", size=6) as pool:
        followed = FollowedGraph(graph=graph, pool=pool, general=general, settings=settings)
        try:
            yield followed
        finally:
            followed.restart()
