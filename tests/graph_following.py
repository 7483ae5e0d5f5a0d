"""Libraries of the stand-in of Microsoft Graph, followed by the engine into a real catalogue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.intake.read import read_content
from ingest_worker.sources.protocol import Source
from ingest_worker.sources.sharepoint import open_source
from shared.config import Settings
from shared.database import open_pool
from shared.source_settings import SharePointSettings
from tests.following import Following
from tests.graph_asking import expected_readers, settings_of
from tests.graph_stand_in import StandInGraph

Index = dict[str, tuple[bytes | None, tuple[str, ...] | None]]
"""Bytes and readers by path; without bytes: left out with a reason."""


@dataclass(kw_only=True)
class FollowedGraph(Following[SharePointSettings]):
    """The engine of one source, with the stand-in's clock."""

    graph: StandInGraph

    def now(self) -> datetime:
        """See `Following`."""
        return self.graph.now

    def open(self, settings: SharePointSettings, *, client: httpx.Client, clock: Any) -> Source:
        """See `Following`."""
        # What the engine's client adds is a wait of real seconds when it is told to wait; time is the stand-in's here.
        client.event_hooks = {"request": [], "response": []}
        return open_source(settings, client=client, clock=clock)

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, then do what is due until nothing is."""
        self.graph.pass_time(timedelta(seconds=seconds))
        self.do_what_is_due()

    def changes(self) -> None:
        """Follow changes, as every two minutes."""
        self.settle(self.settings.sync_seconds + 1)

    def whole(self) -> None:
        """Look at everything, as after a day; a person approves what is held."""
        self.settle(self.settings.full_sync_seconds + 1)
        if self.approve():
            self.settle(self.settings.sync_seconds + 1)

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
