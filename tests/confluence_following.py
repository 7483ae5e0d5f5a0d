"""A Confluence site under test and the engine that follows it, with a worker that indexes what it stores."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from ingest_worker.catalogue import events
from ingest_worker.jobs import table as jobs
from ingest_worker.pipeline import Tools, run_job
from ingest_worker.sources.confluence import open_source
from ingest_worker.sources.protocol import Source
from shared.config import ConfluenceSettings, Settings
from shared.database import open_pool
from tests.confluence_stand_in import StandIn
from tests.confluence_wiki import Hands, Json, Thing
from tests.following import Following

Event = tuple[str, Json]


@dataclass(kw_only=True)
class Followed(Following[ConfluenceSettings]):
    """A site that is followed as the source `wiki`."""

    site: StandIn
    hands: Hands

    def now(self) -> datetime:
        """See `Following`."""
        return self.hands()

    def open(self, settings: ConfluenceSettings, *, client: httpx.Client, clock: Any) -> Source:
        """See `Following`."""
        return open_source(settings, client=client, clock=clock)

    def settle(self, *, rounds: int = 200) -> None:
        """Do what is due until nothing is; time passes while the site asks to be left alone."""
        for _ in range(rounds):
            if not self.sync.tick():
                if not self._rests():
                    return
                self.hands.go(seconds=61)
        raise AssertionError(f"it does not come to rest: {self._rests()}")

    def _rests(self) -> Any:
        """Why the source is left alone, or things of it are tried again later."""
        rows = self.rows(
            "SELECT resume_reason FROM docwell.remote WHERE resume_at > %s"
            " UNION ALL SELECT error FROM docwell.remote_item WHERE retry_at IS NOT NULL",
            self.hands.now,
        )
        return rows or self.rows("SELECT error FROM docwell.event WHERE state = 'waiting'")

    def whole(self) -> None:
        """Look at everything, as after a day."""
        self.hands.go(seconds=self.settings.full_sync_seconds + 1)
        self.settle()

    def changes(self) -> None:
        """Look at what has changed, as after some minutes."""
        self.hands.go(seconds=self.settings.sync_seconds + 1)
        self.settle()

    def tell(self, told: Sequence[Event]) -> None:
        """These events come."""
        with self.pool.connection() as connection:
            for number, (kind, body) in enumerate(told):
                cloud = self.site.deployment == "cloud"
                raw = json.dumps({**body, "n": number}).encode()
                events.store(connection, source_id=self.source.source_id, kind=kind if cloud else "", delivery_id=None, body=raw)
            # The inbox goes by the clock of PostgreSQL, the engine by the test's.
            connection.execute("UPDATE docwell.event SET next_at = '-infinity'")

    def news(self) -> None:
        """All events since the last time come, and are followed."""
        told, self.site.wiki.events = self.site.wiki.events, []
        self.tell(told)
        self.settle()

    def work(self, tools: Tools) -> list[str]:
        """Do all jobs that are due; returns what came of them."""
        results: list[str] = []
        while True:
            with self.pool.connection() as connection:
                claimed = jobs.claim(connection, worker="test", lease_seconds=60)
            if not claimed:
                return results
            results += [run_job(job, tools).result for job in claimed]

    def kept(self) -> dict[str, Kept]:
        """What is stored, by key, without what is deleted."""
        rows = self.rows(
            """
            SELECT i.key, d.path, d.title, d.url, d.tags, p.heading, d.readers, a.restricted, encode(p.sha256, 'hex')
            FROM docwell.remote_item i JOIN docwell.document d USING (document_id)
            JOIN docwell.audience a USING (audience_id) JOIN docwell.pushed_content p USING (document_id)
            WHERE d.state <> 'deleted'
            """
        )
        return {row[0]: Kept(*row[1:]) for row in rows}

    def people(self, readers: Sequence[str]) -> set[str]:
        """Account ids of those whom these readers are."""
        wiki, found = self.site.wiki, set()
        for one in readers:
            kind, _, name = one.partition(":")
            if kind == "group":
                found |= wiki.groups[name]
            else:
                found |= {person.account_id for person in wiki.people.values() if name in {person.account_id, person.name}}
        return found


@dataclass(frozen=True)
class Kept:
    """A document as it is stored."""

    path: str
    title: str | None
    url: str | None
    tags: list[str]
    heading: list[str]
    readers: list[str]
    restricted: bool
    sha256: str


@contextlib.contextmanager
def follow(url: str, site: StandIn, hands: Hands, **more: Any) -> Iterator[Followed]:
    """The site followed with these settings of the source."""
    hands.now = datetime.now(UTC)
    general = Settings.model_validate({"database_url": url})
    with open_pool(url, name="test-confluence", size=6) as pool:
        followed = Followed(site=site, hands=hands, pool=pool, general=general, settings=site.settings(**more))
        try:
            yield followed
        finally:
            followed.restart()


class People:
    """People who edit a site, as a seed has them."""

    def __init__(self, site: StandIn, seed: int) -> None:
        self.wiki = site.wiki
        self.chance = random.Random(seed)
        self.cloud = site.deployment == "cloud"
        self.staff = [self.wiki.person(f"p{number}") for number in range(5)]
        self.wiki.group("staff", *self.staff[:4])
        self.wiki.group("hr", *self.staff[2:])
        self.spaces = [self.wiki.space("ENG"), self.wiki.space("OPS", readers={"group:hr", self.staff[0].account_id})]
        self.count = 0

    def work(self, steps: int) -> None:
        """So many edits."""
        for _ in range(steps):
            with self.wiki.lock:
                self._one()

    def _pages(self, status: str = "current") -> list[Thing]:
        return [one for one in self.wiki.things.values() if one.kind in {"page", "blogpost"} and one.status == status]

    def _new(self) -> None:
        self.count += 1
        space = self.chance.choice(self.spaces)
        parents = [one for one in self._pages() if one.space is space and one.kind == "page"]
        parent = self.chance.choice([None, *parents]) if parents else None
        kind = "blogpost" if self.chance.random() < 0.1 else "page"
        self.wiki.page(
            space, f"Page {self.count}", f"<p>body {self.count}</p>", parent=None if kind == "blogpost" else parent, kind=kind
        )

    def _one(self) -> None:
        pages = self._pages()
        if len(pages) < 8:
            self._new()
            return
        page = self.chance.choice(pages)
        match self.chance.randrange(12):
            case 0 | 1:
                self._new()
            case 2 | 3:
                self.count += 1
                self.wiki.edit(page, f"<p>body {self.count}</p>")
            case 4:
                self.count += 1
                self.wiki.edit(page, title=f"Renamed {self.count}")
            case 5:
                targets = [one for one in pages if one.kind == "page" and page not in [one, *one.above]]
                if page.kind == "page" and targets:
                    self.wiki.move(page, self.chance.choice(targets))
            case 6:
                self.wiki.trash(page)
            case 7:
                trashed = self._pages("trashed")
                if trashed:
                    gone = self.chance.choice(trashed)
                    (self.wiki.restore if self.chance.random() < 0.7 else self.wiki.purge)(gone)
            case 8 | 9:
                names = [one.account_id for one in self.staff] + ["group:staff", "group:hr"]
                self.wiki.restrict(page, *self.chance.sample(names, self.chance.randrange(3)))
            case 10:
                self.count += 1
                self.wiki.attach(page, f"file{self.chance.randrange(2)}.txt", f"file {self.count}".encode())
            case _:
                self.wiki.label(page, *self.chance.sample(["a", "b", "c"], self.chance.randrange(3)))

    def shuffled(self, told: list[Event]) -> list[Event]:
        """Events as they arrive: some lost, some twice, in another order."""
        kept = [one for one in told if self.chance.random() > 0.25]
        kept += [one for one in kept if self.chance.random() < 0.2]
        self.chance.shuffle(kept)
        return kept
