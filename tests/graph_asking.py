"""A source of the stand-in of Microsoft Graph, a mirror that follows it as an engine would, and what it has to come to."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from ingest_worker.sources.protocol import CursorExpired, Item
from ingest_worker.sources.sharepoint import SharePointSource, open_source
from ingest_worker.sources.sharepoint.permissions import readers_of
from shared.errors import PermanentError, TransientError
from shared.source_settings import SharePointSettings
from tests.graph_drives import StandInDrive, StandInSite, Thing
from tests.graph_stand_in import CLIENT_ID, SECRET, StandInGraph
from tests.graph_subscriptions import TENANT

# Loading the system's certificates takes longer than a test.
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def settings_of(graph: StandInGraph, **values: Any) -> SharePointSettings:
    """Settings that lead to the stand-in."""
    table = {
        "type": "sharepoint",
        "name": "marketing",
        "tenant_id": TENANT,
        "client_id": CLIENT_ID,
        "client_secret": SECRET,
        "graph_url": f"{graph.url}/v1.0",
        "login_url": graph.url,
        **values,
    }
    if "drives" not in table and "site" not in table:
        table["drives"] = [drive.drive_id for site in graph.sites for drive in site.drives]
    return SharePointSettings.model_validate(table)


@contextmanager
def asking(graph: StandInGraph, **values: Any) -> Iterator[SharePointSource]:
    """A source, open."""
    with httpx.Client(trust_env=False, timeout=5, verify=_NO_AUTHORITIES) as client:
        source = open_source(settings_of(graph, **values), client=client, clock=lambda: graph.now)
        yield source
        source.close()


@dataclass(kw_only=True)
class Mirror:
    """What somebody knows who follows a source: a cursor is kept only with what came before it."""

    items: dict[str, Item] = field(default_factory=dict)
    cursor: str | None = None
    listings: int = 0

    def sync(self, source: SharePointSource) -> None:
        """Follow the changes, or list everything when there is no other way."""
        if self.cursor is not None:
            try:
                for batch in source.changes(self.cursor):
                    self._apply(batch)
            except CursorExpired:
                self.list_all(source)
        else:
            self.list_all(source)

    def list_all(self, source: SharePointSource) -> None:
        """Everything; what does not come is gone."""
        self.listings += 1
        seen: set[str] = set()
        for batch in source.everything():
            seen |= {item.key for item in batch.items}
            self._apply(batch)
        self.items = {key: item for key, item in self.items.items() if key in seen}

    def sync_until_done(self, source: SharePointSource, between: Callable[[], None], tries: int = 300) -> None:
        """Go on in spite of faults that pass; `between` is called after each."""
        for _ in range(tries):
            try:
                self.sync(source)
            except TransientError:
                between()
            else:
                return
        raise AssertionError("the faults did not end")

    def _apply(self, batch: Any) -> None:
        for item in batch.items:
            self.items[item.key] = item
        for key in batch.gone:
            self.items.pop(key, None)
        if batch.cursor is not None:
            self.cursor = batch.cursor

    def by_path(self) -> dict[str, tuple[str, ...] | None]:
        """The readers by path."""
        return {item.path: item.readers for item in self.items.values()}


Known = dict[str, tuple[str, str, tuple[str, ...] | None]]
"""Path, content and readers by key."""


def truth(graph: StandInGraph, *, permissions: bool = True) -> Known:
    """What the drives hold."""
    found: Known = {}
    for site in graph.sites:
        for drive in site.drives:
            for thing in drive.things.values():
                if thing.kind in {"file", "package"}:
                    readers = expected_readers(drive, thing, site, graph) if permissions else None
                    key = f"{drive.drive_id}/{thing.item_id}"
                    found[key] = (f"{drive.name}/{drive.path(thing)}", _content(drive, thing), readers)
    return found


def seen(mirror: Mirror, *, permissions: bool = True) -> Known:
    """The same of a mirror."""
    return {key: (item.path, item.content, item.readers if permissions else None) for key, item in mirror.items.items()}


def _content(drive: StandInDrive, thing: Thing) -> str:
    """What tells the bytes apart: Graph's hash of them."""
    if thing.kind == "package" or not thing.data:
        return f'{"package" if thing.kind == "package" else "empty"}:"{{{thing.item_id}}},{thing.version}"'
    return f"x:{drive.hash_of(thing)}:{len(thing.data)}"


def expected_readers(drive: StandInDrive, thing: Thing, site: StandInSite, graph: StandInGraph) -> tuple[str, ...]:
    """Who may read a thing."""
    return readers_of(drive.effective(thing), site=f"{site.host}{site.path}", organization_links=False, now=graph.now)


def calls(graph: StandInGraph, text: str) -> int:
    return sum(text in call for call in graph.calls)


def refused(graph: StandInGraph, match: str, **values: object) -> str:
    """What a listing with these settings is refused with."""
    with asking(graph, **values) as source, pytest.raises(PermanentError, match=match) as caught:
        list(source.everything())
    return str(caught.value)


def key(drive: StandInDrive, item_id: str) -> str:
    return f"{drive.drive_id}/{item_id}"
