"""REST v2 of the stand-in, and what Cloud still has of v1: only routes of developer.atlassian.com/cloud/confluence/rest."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.confluence_v1 import (
    Query,
    Refused,
    content_json,
    first,
    group_json,
    paged,
    person_json,
    restriction_json,
    search,
    stamp,
    webui,
)
from tests.confluence_wiki import Json, Thing, Wiki

_KINDS = {"pages": "page", "blogposts": "blogpost", "folders": "folder"}


class CloudRoutes:
    """REST of Cloud, as far as a reader needs it. `base` is the site's address with `/wiki`."""

    def __init__(self, wiki: Wiki) -> None:
        self.wiki = wiki
        self.base = ""
        self.most = 250
        self.expanded_most = 50

    def answer(self, path: str, query: Query) -> Any:
        """The JSON at a path below the base address.

        Raises:
            Refused
        """
        for pattern, route in self._routes():
            match = re.fullmatch(pattern, path)
            if match is not None:
                return route(path, query, *match.groups())
        raise Refused(404, f"No route {path}")

    def _routes(self) -> list[tuple[str, Callable[..., Any]]]:
        return [
            (r"/rest/api/user/current", lambda *_: {"type": "known", "accountId": "712020:reader"}),
            (r"/rest/api/user/bulk", self._people),
            (r"/rest/api/user/memberof", self._groups_of),
            (r"/rest/api/group/by-id", self._group),
            (r"/rest/api/group/(\w+)/membersByGroupId", self._members),
            (r"/rest/api/content/search", self._search),
            (r"/rest/api/content/(\d+)/restriction/byOperation/read", self._restriction),
            (r"/api/v2/spaces", self._spaces),
            (r"/api/v2/spaces/(\d+)/permissions", self._permissions),
            (r"/api/v2/spaces/(\d+)/(pages|blogposts)", self._in_space),
            (r"/api/v2/(pages|blogposts)", self._by_id),
            (r"/api/v2/(pages|blogposts|folders)/(\d+)", self._one),
            (r"/api/v2/(pages|blogposts)/(\d+)/attachments", self._attachments),
            (r"/api/v2/(pages|blogposts)/(\d+)/labels", self._labels),
            (r"/api/v2/(pages|folders)/(\d+)/descendants", self._descendants),
            (r"/api/v2/attachments/(att\d+)", self._attachment),
        ]

    def _paged(self, path: str, query: Query, rows: Sequence[Any], *, most: int | None = None, prefix: str = "/wiki") -> Json:
        """A page of results by cursor, which is opaque."""
        limit = min(int(first(query, "limit", "25")), most or self.most)
        start = 0
        if "cursor" in query:
            try:
                start = int(base64.b64decode(first(query, "cursor")).decode().removeprefix("at:"))
            except ValueError:
                raise Refused(400, "Invalid cursor") from None
        links: Json = {"base": self.base}
        if start + limit < len(rows):
            cursor = base64.b64encode(f"at:{start + limit}".encode()).decode()
            links["next"] = f"{prefix}{path}?limit={limit}&cursor={cursor.replace('=', '%3D')}"
        return {"results": list(rows[start : start + limit]), "_links": links}

    def thing(self, kind: str, number: str) -> Thing:
        """A thing of this kind by its id, whatever its status."""
        found = self.wiki.things.get(int(number))
        if found is None or found.kind != kind:
            raise Refused(404, "Not found")
        return found

    def _people(self, _: str, query: Query) -> Json:
        found = [self.wiki.people[one] for one in query.get("accountId", [])[:100] if one in self.wiki.people]
        return {"results": [person_json(one, cloud=True) for one in found], "start": 0, "limit": 100, "size": len(found)}

    def _groups_of(self, path: str, query: Query) -> Json:
        person = self.wiki.people.get(first(query, "accountId"))
        names = [] if person is None else self.wiki.groups_of(person)
        return paged([group_json(self.wiki, name, cloud=True) for name in names], query, path, most=200)

    def _name(self, group_id: str) -> str:
        for name in self.wiki.groups:
            if self.wiki.group_id(name) == group_id:
                return name
        raise Refused(404, "No group")

    def _group(self, _: str, query: Query) -> Json:
        return group_json(self.wiki, self._name(first(query, "id")), cloud=True)

    def _members(self, path: str, query: Query, group_id: str) -> Json:
        members = sorted(self.wiki.groups[self._name(group_id)])
        return paged([person_json(self.wiki.people[one], cloud=True) for one in members], query, path, most=200)

    def _search(self, path: str, query: Query) -> Json:
        expand = first(query, "expand")
        things = search(self.wiki, first(query, "cql"))
        rows = [content_json(self.wiki, one, expand, cloud=True) for one in things]
        return self._paged(path, query, rows, most=self.expanded_most if expand else None, prefix="")

    def _restriction(self, _: str, query: Query, number: str) -> Json:
        thing = self.wiki.things.get(int(number))
        if thing is None:
            raise Refused(404, "No content")
        start, limit = int(first(query, "start", "0")), int(first(query, "limit", "100"))
        return restriction_json(self.wiki, thing, cloud=True, start=start, limit=limit)

    def _spaces(self, path: str, query: Query) -> Json:
        spaces = [one for one in self.wiki.spaces.values() if first(query, "status") in {"", one.status}]
        rows = [
            {"id": str(one.space_id), "key": one.key, "name": one.name, "type": one.kind, "status": one.status} for one in spaces
        ]
        return self._paged(path, query, rows)

    def _permissions(self, path: str, query: Query, number: str) -> Json:
        space = next((one for one in self.wiki.spaces.values() if one.space_id == int(number)), None)
        if space is None:
            raise Refused(404, "No space")
        rows: list[Json] = []
        for one in sorted(space.readers):
            group = one.startswith("group:")
            who = (
                {"type": "group", "id": self.wiki.group_id(one.removeprefix("group:"))} if group else {"type": "user", "id": one}
            )
            rows.append({"id": str(len(rows)), "principal": who, "operation": {"key": "read", "targetType": "space"}})
        admin = {"type": "user", "id": "712020:admin"}
        rows.append({"id": "99", "principal": admin, "operation": {"key": "administer", "targetType": "space"}})
        return self._paged(path, query, rows)

    def _in_space(self, path: str, query: Query, number: str, kinds: str) -> Json:
        space = next((one for one in self.wiki.spaces.values() if one.space_id == int(number)), None)
        if space is None:
            raise Refused(404, "No space")
        things = [one for one in self.wiki.things.values() if one.kind == _KINDS[kinds] and one.space is space]
        return self._paged(path, query, [self._json(one, query) for one in self._of_status(things, query)])

    @staticmethod
    def _of_status(things: list[Thing], query: Query) -> list[Thing]:
        wanted = set(first(query, "status", "current,archived").split(","))
        return [one for one in things if one.status in wanted]

    def _by_id(self, path: str, query: Query, kinds: str) -> Json:
        ids = {int(one) for one in first(query, "id").split(",") if one}
        things = [one for one in self.wiki.things.values() if one.kind == _KINDS[kinds] and (not ids or one.thing_id in ids)]
        return self._paged(path, query, [self._json(one, query) for one in self._of_status(things, query)])

    def _one(self, _: str, query: Query, kinds: str, number: str) -> Json:
        found = self._json(self.thing(_KINDS[kinds], number), query)
        return {**found, "_links": {**found["_links"], "base": self.base}}

    def _attachments(self, path: str, query: Query, kinds: str, number: str) -> Json:
        page = self.thing(_KINDS[kinds], number)
        return self._paged(
            path, query, [self._attachment_json(one) for one in self._of_status(self.wiki.attachments(page), query)]
        )

    def _labels(self, path: str, query: Query, kinds: str, number: str) -> Json:
        labels = sorted(self.thing(_KINDS[kinds], number).labels)
        return self._paged(path, query, [{"id": "1", "prefix": "global", "name": one} for one in labels])

    def _descendants(self, path: str, query: Query, kinds: str, number: str) -> Json:
        top = self.thing(_KINDS[kinds], number)
        depth = int(first(query, "depth", "5"))
        rows = []
        for one in self.wiki.below(top):
            level = len(one.above) - len(top.above)
            if one.kind != "attachment" and one.is_there and level <= depth:
                told = {"id": str(one.thing_id), "status": one.status, "title": one.title, "type": one.kind, "depth": level}
                rows.append({**told, "parentId": str(one.above[-1].thing_id)})
        return self._paged(path, query, rows)

    def _attachment(self, _: str, __: Query, name: str) -> Json:
        found = self.thing("attachment", name.removeprefix("att"))
        if found.parent is None or found.parent.status == "trashed":
            raise Refused(404, "Not found")
        return self._attachment_json(found)

    @staticmethod
    def _attachment_json(one: Thing) -> Json:
        page = one.parent
        holder = {} if page is None else {"pageId" if page.kind == "page" else "blogPostId": str(page.thing_id)}
        return {
            "id": f"att{one.thing_id}",
            "status": one.status,
            "title": one.title,
            **holder,
            "mediaType": one.media_type,
            "fileSize": len(one.data),
            "webuiLink": webui(one),
            "downloadLink": f"/download/attachments/{0 if page is None else page.thing_id}/{one.title}?version={one.version}",
            "version": {"number": one.version, "createdAt": stamp(one.modified)},
            "createdAt": stamp(one.created),
            "_links": {"webui": webui(one)},
        }

    @staticmethod
    def _json(one: Thing, query: Query) -> Json:
        body = (
            {"body": {"storage": {"value": one.body, "representation": "storage"}}}
            if first(query, "body-format") == "storage"
            else {}
        )
        return {
            "id": str(one.thing_id),
            "status": one.status,
            "title": one.title,
            "spaceId": str(one.space.space_id),
            "parentId": None if one.parent is None else str(one.parent.thing_id),
            "parentType": None if one.parent is None else one.parent.kind,
            "createdAt": stamp(one.created),
            "version": {"number": one.version, "createdAt": stamp(one.modified)},
            **body,
            "_links": {"webui": webui(one)},
        }
