"""What a Confluence site holds, as the stand-ins of both deployments show it, and the events that changing it causes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
START = datetime(2026, 11, 2, 9, tzinfo=UTC)


@dataclass(kw_only=True, eq=False)
class Person:
    """Somebody with an account. `name` is the user name of Data Center."""

    account_id: str
    key: str
    name: str
    shown: str
    email: str = ""


@dataclass(kw_only=True, eq=False)
class StandInSpace:
    """A space. `readers` are account ids, and group names with `group:` before them; `anonymous`: everybody."""

    space_id: int
    key: str
    name: str
    kind: str = "global"
    status: str = "current"
    readers: set[str] = field(default_factory=set)
    anonymous: bool = False


@dataclass(kw_only=True, eq=False)
class Thing:
    """A page, blog post, folder or attachment."""

    thing_id: int
    kind: str
    title: str
    space: StandInSpace
    parent: Thing | None = None
    body: str = ""
    data: bytes = b""
    media_type: str = ""
    version: int = 1
    status: str = "current"
    created: datetime = START
    modified: datetime = START
    labels: set[str] = field(default_factory=set)
    readers: set[str] = field(default_factory=set)  # of its own restriction; empty: none
    gone_reader: bool = False  # the restriction also names an account that was deleted

    @property
    def above(self) -> list[Thing]:
        """What it stands under, from the outermost in."""
        return [] if self.parent is None else [*self.parent.above, self.parent]

    @property
    def is_there(self) -> bool:
        """Current, with all that it hangs on."""
        on_page = self.kind == "attachment" and self.parent is not None
        return self.status == "current" and self.space.status == "current" and (not on_page or self.parent.is_there)  # type: ignore[union-attr]


Told = tuple[str, Json]


class Wiki:
    """A site. `clock` tells its time; all changes go through the methods, which note an event each in `events`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.people: dict[str, Person] = {}
        self.groups: dict[str, set[str]] = {}
        self.spaces: dict[str, StandInSpace] = {}
        self.things: dict[int, Thing] = {}
        self.events: list[Told] = []
        self.unsearchable: set[int] = set()  # what the search's index does not have (yet)
        self.deployment = "cloud"
        self._next = 1000

    # --- who there is

    def person(self, name: str, *, email: str = "") -> Person:
        """Make somebody."""
        made = Person(account_id=f"712020:{name}", key=f"ff80{name}", name=name, shown=name.title(), email=email)
        self.people[made.account_id] = made
        return made

    def group(self, name: str, *members: Person) -> str:
        """Make a group; returns how restrictions name it."""
        self.groups[name] = {one.account_id for one in members}
        return f"group:{name}"

    def groups_of(self, person: Person) -> list[str]:
        """The names of somebody's groups."""
        return [name for name, members in self.groups.items() if person.account_id in members]

    @staticmethod
    def group_id(name: str) -> str:
        """Cloud's id of a group."""
        return hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()

    # --- what there is

    def _number(self) -> int:
        self._next += 1
        return self._next

    def space(self, key: str, *, name: str = "", kind: str = "global", readers: set[str] | None = None) -> StandInSpace:
        """Make a space; who may read it, if nobody else, are the people in the group `staff`."""
        made = StandInSpace(
            space_id=self._number(),
            key=key,
            name=name or key.title(),
            kind=kind,
            readers=readers if readers is not None else {"group:staff"},
        )
        self.spaces[key] = made
        return made

    def page(
        self, space: StandInSpace, title: str, body: str = "<p>text</p>", *, parent: Thing | None = None, kind: str = "page"
    ) -> Thing:
        """Make a page, a blog post or a folder."""
        with self.lock:
            now = self.clock()
            made = Thing(
                thing_id=self._number(), kind=kind, title=title, space=space, parent=parent, body=body, created=now, modified=now
            )
            self.things[made.thing_id] = made
            if kind != "folder":
                self._tell(f"{'blog' if kind == 'blogpost' else 'page'}_created", made)
            return made

    def edit(self, thing: Thing, body: str | None = None, *, title: str | None = None) -> None:
        """Another version of a page."""
        with self.lock:
            thing.body = thing.body if body is None else body
            thing.title = thing.title if title is None else title
            thing.version += 1
            thing.modified = self.clock()
            self._tell(f"{self._word(thing)}_updated", thing)

    def move(self, thing: Thing, parent: Thing | None) -> None:
        """Put a page elsewhere; that makes no version."""
        with self.lock:
            thing.parent = parent
            if parent is not None:
                for one in [thing, *self.below(thing)]:
                    one.space = parent.space
            self._tell("page_moved", thing)

    def trash(self, thing: Thing) -> None:
        """Into the trash. The pages below a page move up, as they do in both deployments; its attachments go with it."""
        with self.lock:
            thing.status = "trashed"
            for one in self.things.values():
                if one.parent is thing and one.kind != "attachment":
                    one.parent = thing.parent
            self._tell(f"{self._word(thing)}_trashed", thing)

    def restore(self, thing: Thing) -> None:
        """Out of the trash, to where it was if that is still there."""
        with self.lock:
            thing.status = "current"
            if thing.parent is not None and not thing.parent.is_there:
                thing.parent = None
            self._tell(f"{self._word(thing)}_restored", thing)

    def purge(self, thing: Thing) -> None:
        """Out of the trash for good."""
        with self.lock:
            for one in [*self.attachments(thing, all_of_them=True), thing]:
                self.things.pop(one.thing_id, None)
            self._tell(f"{self._word(thing)}_removed", thing)

    def archive(self, thing: Thing) -> None:
        """To the archive (of Cloud)."""
        with self.lock:
            thing.status = "archived"
            for one in self.things.values():
                if one.parent is thing and one.kind != "attachment":
                    one.parent = thing.parent
            self._tell("page_archived", thing)

    def restrict(self, thing: Thing, *readers: str) -> None:
        """Let only these read it (account ids, `group:NAME`); nobody named: all who may read the space."""
        with self.lock:
            thing.readers = set(readers)
            self._tell("content_permissions_updated", thing)

    def label(self, thing: Thing, *labels: str) -> None:
        """Give it these labels; that makes no version."""
        with self.lock:
            thing.labels = set(labels)
            self._tell("label_added", thing)

    def attach(self, page: Thing, title: str, data: bytes, media_type: str = "text/plain") -> Thing:
        """A file on a page, or a new version of the one of this name."""
        with self.lock:
            now = self.clock()
            for one in self.attachments(page):
                if one.title == title:
                    one.data, one.media_type, one.version, one.modified = data, media_type, one.version + 1, now
                    self._tell("attachment_updated", one)
                    return one
            made = Thing(
                thing_id=self._number(),
                kind="attachment",
                title=title,
                space=page.space,
                parent=page,
                data=data,
                media_type=media_type,
                created=now,
                modified=now,
            )
            self.things[made.thing_id] = made
            self._tell("attachment_created", made)
            return made

    def _word(self, thing: Thing) -> str:
        return {"blogpost": "blog"}.get(thing.kind, thing.kind)

    def archive_space(self, space: StandInSpace) -> None:
        """A space that nobody needs any more."""
        space.status = "archived"
        self.events.append(("space_updated", {"space": {"id": space.space_id, "spaceKey": space.key}}))

    # --- looking

    def listed(self, kind: str, space: StandInSpace | None = None) -> list[Thing]:
        """Current things of a kind, by id."""
        return [one for one in self.things.values() if one.kind == kind and one.is_there and space in {None, one.space}]

    def children(self, thing: Thing) -> list[Thing]:
        """Pages and folders directly below."""
        return [one for one in self.things.values() if one.parent is thing and one.kind != "attachment" and one.is_there]

    def below(self, thing: Thing) -> Iterator[Thing]:
        """All that hangs below, attachments too."""
        for one in list(self.things.values()):
            if thing in one.above:
                yield one

    def attachments(self, page: Thing, *, all_of_them: bool = False) -> list[Thing]:
        """Files on a page."""
        return [
            one
            for one in self.things.values()
            if one.parent is page and one.kind == "attachment" and (all_of_them or one.status == "current")
        ]

    def readers_of(self, thing: Thing) -> set[str]:
        """Account ids of those who may read a thing: the truth, person by person."""
        page = thing.parent if thing.kind == "attachment" and thing.parent is not None else thing
        levels = [page.space.readers, *(one.readers for one in [*page.above, page] if one.readers or one.gone_reader)]
        return {one for one in self.people if all(self.passes(one, level) for level in levels)}

    def passes(self, account_id: str, level: set[str]) -> bool:
        """Whether somebody is named, or in a group that is."""
        return account_id in level or any(
            account_id in self.groups.get(one.removeprefix("group:"), ()) for one in level if one.startswith("group:")
        )

    # --- events

    def _tell(self, kind: str, thing: Thing) -> None:
        body = self._data_center_event(kind, thing) if self.deployment == "data_center" else self._cloud_event(thing)
        self.events.append((kind, body))

    def _data_center_event(self, kind: str, thing: Thing) -> Json:
        what = {"page": "page", "blogpost": "blog", "attachment": "attachment"}.get(thing.kind, "content")
        if kind.startswith("label"):
            return {"event": kind, "label": {"name": "x"}, "labeled": {"id": thing.thing_id, "contentType": thing.kind}}
        if kind.startswith("content"):
            what = "content"
        return {"timestamp": 1788716539192, "event": kind, "userKey": "ff80", what: {"id": thing.thing_id}}

    def _cloud_event(self, thing: Thing) -> Json:
        """No name of the event in it, and the whole object: as captured from sites."""
        told: Json = {
            "id": str(thing.thing_id),
            "idAsString": str(thing.thing_id),
            "title": thing.title,
            "contentType": thing.kind,
            "version": thing.version,
            "spaceKey": thing.space.key,
            "spaceId": thing.space.space_id,
        }
        if thing.kind == "attachment" and thing.parent is not None:
            told |= {
                "mediaType": thing.media_type,
                "parent": {"id": str(thing.parent.thing_id), "contentType": thing.parent.kind},
            }
        what = {"blogpost": "blog", "attachment": "attachment"}.get(thing.kind, "page")
        return {"userAccountId": "712020:bbbb", "accountType": "customer", "timestamp": 1788716539192, what: told}


@dataclass(kw_only=True, eq=False)
class Hands:
    """A clock whose hands are moved by the test."""

    now: datetime = START

    def __call__(self) -> datetime:
        """The time."""
        return self.now

    def go(self, **passed: float) -> None:
        """Let time pass."""
        self.now += timedelta(**passed)
