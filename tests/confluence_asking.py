"""A source of the stand-in of Confluence, a site with people and pages, and what a stream of batches tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

from ingest_worker.sources.confluence import ConfluenceSource, open_source
from ingest_worker.sources.protocol import Batch, Event, Item
from tests.confluence_stand_in import StandIn
from tests.confluence_wiki import Hands, Person, StandInSpace, Thing


class Office:
    """A site with people, a space, and some pages."""

    def __init__(self, site: StandIn) -> None:
        wiki = site.wiki
        self.ann, self.bob, self.eve = (wiki.person(name) for name in ("ann", "bob", "eve"))
        wiki.group("staff", self.ann, self.bob)
        wiki.group("hr", self.ann, self.eve)
        self.space: StandInSpace = wiki.space("ENG")
        self.home: Thing = wiki.page(self.space, "Home")
        self.guide: Thing = wiki.page(self.space, "Guide", "<h1>Setup</h1><p>Install it.</p>", parent=self.home)
        self.deep: Thing = wiki.page(self.space, "Deep / down", parent=self.guide)
        self.cloud = site.deployment == "cloud"

    def user(self, person: Person) -> str:
        return f"user:{person.account_id if self.cloud else person.name}"


def opened(site: StandIn, client: httpx.Client, hands: Hands, **more: Any) -> ConfluenceSource:
    return open_source(site.settings(**more), client=client, clock=hands)


def listed(stream: Iterator[Batch]) -> dict[str, Item]:
    found: dict[str, Item] = {}
    for batch in stream:
        found |= {item.key: item for item in batch.items}
    return found


def readers(source: ConfluenceSource, thing: Thing) -> tuple[str, ...] | None:
    found = source.find(str(thing.thing_id))
    assert found is not None
    return found.readers


def event(site: StandIn, kind: str | None = None) -> Event:
    """The newest event, as it is stored: Cloud's address tells its name."""
    name, body = site.wiki.events[-1]
    told = kind if kind is not None else name if site.deployment == "cloud" else ""
    return Event(event_id=1, kind=told, body=json.dumps(body).encode(), received_at=datetime.now(UTC))
