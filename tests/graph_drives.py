"""Sites, drives and their items as Microsoft Graph keeps them, for the stand-in: state, change log, tokens and permissions."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Json = dict[str, Any]


def owner(email: str, *, number: str | None = None) -> Json:
    """A permission of a person."""
    return grant("write", user={"id": number or person_id(email), "email": email, "displayName": email.split("@")[0]})


def person_id(email: str) -> str:
    """The object id of a person."""
    return f"11111111-0000-0000-0000-{int(hashlib.sha256(email.encode()).hexdigest()[:11], 16):012x}"[:36]


def group(number: str, name: str = "A group") -> Json:
    """A permission of a group of Entra."""
    return grant("read", group={"id": number, "displayName": name})


def grant(*roles: str, **facets: Json) -> Json:
    """A permission for one identity, by its facets."""
    return {"roles": list(roles), "grantedToV2": facets}


@dataclass(kw_only=True)
class Thing:
    """A file, folder or notebook. `permissions` None: those of what it stands in."""

    item_id: str
    kind: str
    name: str
    parent: str | None
    data: bytes = b""
    version: int = 1
    content_version: int = 1
    changed: int = 0
    shared_at: int = 0
    permissions: list[Json] | None = None
    modified: datetime | None = None
    mime: str = "application/octet-stream"
    facets: Json = field(default_factory=dict)


@dataclass(kw_only=True)
class Tombstone:
    """Something that was deleted."""

    thing: Thing
    changed: int


class DeltaExpired(Exception):
    """The token is not known any more."""


class StandInDrive:
    """One document library.

    How services differ is a switch: `tells_sharing` (a change of permissions is a change of the item), `tells_descendants` (all
    that stood in a deleted or restored folder is listed, not the folder alone), `facets` (`shared` is given at all),
    `marks_new_sharing_only` (among changes it is not on what was shared before), `ctag_in_delta`, `hashes`.
    """

    def __init__(self, drive_id: str, name: str, *, site_url: str, now: datetime) -> None:
        self.drive_id = drive_id
        self.name = name
        self.site_url = site_url
        self.now = now
        self.page_size = 3
        self.permissions_page = 2
        self.tells_sharing = False
        self.tells_descendants = True
        self.facets = True
        self.marks_new_sharing_only = False
        self.ctag_in_delta = True
        self.hashes = True
        self.things: dict[str, Thing] = {}
        self.gone: dict[str, Tombstone] = {}
        self._numbers = itertools.count(1)
        self._seq = 0
        self._runs: dict[str, tuple[list[str], int, bool]] = {}
        self._oldest = 0
        self._era = 0
        self.root = self._add("root", "root", None)
        self.things[self.root].permissions = [owner("owner@contoso.com")]

    # What people do.

    def folder(self, name: str, parent: str | None = None, *, permissions: list[Json] | None = None) -> str:
        """A new folder; its id."""
        return self._add("folder", name, parent or self.root, permissions=permissions)

    def file(
        self,
        name: str,
        data: bytes,
        parent: str | None = None,
        *,
        permissions: list[Json] | None = None,
        mime: str = "text/plain",
        **facets: Json,
    ) -> str:
        """A new file; its id."""
        return self._add("file", name, parent or self.root, data=data, permissions=permissions, mime=mime, facets=facets)

    def notebook(self, name: str, parent: str | None = None) -> str:
        """A notebook of OneNote."""
        return self._add("package", name, parent or self.root)

    def write(self, item_id: str, data: bytes) -> None:
        """Other bytes."""
        thing = self.things[item_id]
        thing.data, thing.content_version = data, thing.content_version + 1
        self._touch(thing)

    def rename(self, item_id: str, name: str) -> None:
        """Another name; nothing below it is listed as changed."""
        self._refuse_twice(name, self.things[item_id].parent, item_id)
        self.things[item_id].name = name
        self._touch(self.things[item_id])

    def move(self, item_id: str, parent: str) -> None:
        """Into another folder."""
        if any(one.item_id == item_id for one in self._up(self.things[parent])):
            raise ValueError("a folder cannot move below itself")
        self._refuse_twice(self.things[item_id].name, parent, item_id)
        self.things[item_id].parent = parent
        self._touch(self.things[item_id])

    def delete(self, item_id: str) -> None:
        """Into the recycle bin, with all that stands below."""
        below = [thing for thing in self.things.values() if any(up.item_id == item_id for up in self._up(thing))]
        for thing in sorted(below, key=lambda thing: thing.item_id == item_id):
            seq = self._next() if self.tells_descendants or thing.item_id == item_id else -1
            self.gone[thing.item_id] = Tombstone(thing=thing, changed=seq)
        for thing in below:
            del self.things[thing.item_id]

    def restore(self, item_id: str) -> None:
        """Out of the recycle bin, with all that was deleted with it."""
        self._refuse_twice(self.gone[item_id].thing.name, self.gone[item_id].thing.parent, item_id)
        waiting = [item_id]
        while waiting:
            one = waiting.pop()
            thing = self.gone.pop(one).thing
            self.things[one] = thing
            if self.tells_descendants or one == item_id:
                self._touch(thing)
            waiting += [other for other, tomb in self.gone.items() if tomb.thing.parent == one]

    def share(self, item_id: str, permissions: list[Json] | None) -> None:
        """Permissions of its own, or None: those of what it stands in again. On SharePoint no change of the item."""
        thing = self.things[item_id]
        thing.permissions = permissions
        if self.tells_sharing:
            thing.changed = thing.shared_at = self._next()

    def forget_tokens(self) -> None:
        """Every token that was given until now is answered with 410."""
        self._runs.clear()
        self._oldest = self._seq + 1
        self._era += 1
        self._seq += 1

    # What can be asked.

    def effective(self, thing: Thing) -> list[Json]:
        """What Graph lists: the permissions that count, inherited ones among them."""
        for one in self._up(thing):
            if one.permissions is not None:
                return [{"id": f"{one.item_id}-{number}", **permission} for number, permission in enumerate(one.permissions)]
        return []

    def hash_of(self, thing: Thing) -> str:
        """Stands for quickXorHash: 20 bytes of the contents, in base64."""
        return base64.b64encode(hashlib.sha256(thing.data).digest()[:20]).decode()

    def path(self, thing: Thing) -> str:
        """Below the root."""
        names = [one.name for one in self._up(thing) if one.parent is not None]
        return "/".join(reversed(names))

    def children(self, item_id: str) -> list[Thing]:
        """Direct ones."""
        return sorted((one for one in self.things.values() if one.parent == item_id), key=lambda one: one.item_id)

    def to_json(
        self, thing: Thing, *, delta: bool = False, listing: bool = True, hierarchical: bool = False, sharing: bool = False
    ) -> Json:
        """A driveItem. In a delta query `parentReference` has no path."""
        found: Json = {
            "id": thing.item_id,
            "name": thing.name,
            "eTag": f'"{{{thing.item_id}}},{thing.version}"',
            "webUrl": f"{self.site_url}/{self.name}/{self.path(thing)}".replace(" ", "%20"),
            "size": len(thing.data),
            "parentReference": {"driveId": self.drive_id, "driveType": "documentLibrary"},
            "fileSystemInfo": {"lastModifiedDateTime": (thing.modified or self.now).strftime("%Y-%m-%dT%H:%M:%SZ")},
            "lastModifiedDateTime": (thing.modified or self.now).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **thing.facets,
        }
        if thing.parent is not None:
            found["parentReference"]["id"] = thing.parent
            if not delta and thing.parent in self.things:
                found["parentReference"]["path"] = f"/drives/{self.drive_id}/root:/{self.path(self.things[thing.parent])}"
        if thing.kind == "root":
            found |= {"root": {}, "folder": {"childCount": len(self.children(thing.item_id))}}
        elif thing.kind == "folder":
            found["folder"] = {"childCount": 0 if delta else len(self.children(thing.item_id))}
        elif thing.kind == "package":
            found["package"] = {"type": "oneNote"}
        else:
            found["file"] = {"mimeType": thing.mime}
            if self.hashes:
                found["file"]["hashes"] = {"quickXorHash": self.hash_of(thing)}
            if self.ctag_in_delta or not delta:
                found["cTag"] = f'"c:{{{thing.item_id}}},{thing.content_version}"'
        own = thing.permissions is not None or thing.kind == "root"
        if delta and self.marks_new_sharing_only and not listing and thing.kind != "root":
            own = own and thing.shared_at > 0 and thing.shared_at == thing.changed
        if delta and self.facets and (own or not hierarchical):
            found["shared"] = {"scope": "users"} if own else {}
        if delta and sharing and thing.shared_at and thing.shared_at == thing.changed and thing.kind == "file":
            found["@microsoft.graph.sharedChanged"] = "True"
        return found

    def delta(self, token: str | None, **flags: bool) -> tuple[list[Json], str | None, str | None]:
        """A page: items, and the token of the next page or of the changes to come."""
        if token == "latest":
            return [], None, self._token(self._seq)
        if token is not None and token in self._runs:
            ids, until, listing = self._runs.pop(token)
            self._runs[token] = (ids, until, listing)  # the same page may be asked for again
        elif token is not None and token.startswith("N"):
            raise DeltaExpired
        else:
            since = -1 if token is None else self._since(token)
            ids, until, listing = self._listed(since), self._seq, token is None
        page, rest = ids[: self.page_size], ids[self.page_size :]
        values = [one for item_id in page if (one := self._listed_as(item_id, listing=listing, flags=flags)) is not None]
        if rest:
            name = f"N{self._era}.{len(self._runs)}.{until}.{len(rest)}"
            self._runs[name] = (rest, until, listing)
            return values, name, None
        # The link of a listing says nothing of what was deleted while it went on.
        return values, None, self._token(self._seq if listing else until)

    def _token(self, seq: int) -> str:
        return f"D{self._era}.{seq}"

    def _since(self, token: str) -> int:
        era, _, seq = token.removeprefix("D").partition(".")
        if not token.startswith("D") or not seq.isdigit() or int(era) != self._era or int(seq) < self._oldest:
            raise DeltaExpired
        return int(seq)

    def _listed(self, since: int) -> list[str]:
        changed = [thing for thing in self.things.values() if thing.changed > since]
        with_parents: dict[str, Thing] = {}
        for thing in changed:
            for one in reversed(list(self._up(thing))):
                with_parents[one.item_id] = one
        gone = [one.thing.item_id for one in self.gone.values() if since >= 0 and one.changed > since]
        if gone:
            with_parents = {self.root: self.things[self.root], **with_parents}
        return [*with_parents, *gone]

    def _listed_as(self, item_id: str, *, listing: bool, flags: dict[str, bool]) -> Json | None:
        thing = self.things.get(item_id)
        if thing is not None:
            return self.to_json(thing, delta=True, listing=listing, **flags)
        tomb = self.gone.get(item_id)
        if tomb is None or listing:
            return None
        kind: Json = {"folder": {}} if tomb.thing.kind == "folder" else {"file": {}}
        reference = {"driveId": self.drive_id, "id": tomb.thing.parent}
        return {"id": item_id, "deleted": {"state": "deleted"}, "parentReference": reference, "size": 0, **kind}

    def _up(self, thing: Thing) -> Iterator[Thing]:
        at: Thing | None = thing
        while at is not None:
            yield at
            at = None if at.parent is None else self.things.get(at.parent)

    def _add(self, kind: str, name: str, parent: str | None, **values: Any) -> str:
        item_id = f"01{self.drive_id[-4:].upper()}{next(self._numbers):06d}"
        self._refuse_twice(name, parent, item_id)
        thing = Thing(item_id=item_id, kind=kind, name=name, parent=parent, modified=self.now, **values)
        self.things[item_id] = thing
        thing.changed = self._next()
        return item_id

    def _refuse_twice(self, name: str, parent: str | None, but: str) -> None:
        if any(
            one.parent == parent and one.name.casefold() == name.casefold() and one.item_id != but for one in self.things.values()
        ):
            raise ValueError(f"nameAlreadyExists: {name}")

    def _touch(self, thing: Thing) -> None:
        thing.version += 1
        thing.modified = self.now
        thing.changed = self._next()

    def _next(self) -> int:
        self._seq += 1
        return self._seq


@dataclass(kw_only=True)
class StandInSite:
    """A site with its libraries."""

    site_id: str
    host: str
    path: str
    drives: list[StandInDrive] = field(default_factory=list)
