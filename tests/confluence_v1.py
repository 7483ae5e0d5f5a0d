"""REST v1 of the stand-in: what both deployments share of it, and the rest of Data Center's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from tests.confluence_wiki import Json, Person, Thing, Wiki


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


Query = dict[str, list[str]]


def first(query: Query, name: str, default: str = "") -> str:
    """The first value of a parameter."""
    return query.get(name, [default])[0]


def paged(rows: Sequence[Any], query: Query, path: str, *, most: int, default: int = 25) -> Json:
    """A page of results by `start` and `limit`."""
    start, limit = int(first(query, "start", "0")), min(int(first(query, "limit", str(default))), most)
    found = list(rows[start : start + limit])
    links: Json = {"self": path}
    if start + limit < len(rows):
        links["next"] = f"{path}?start={start + limit}&limit={limit}"
    return {"results": found, "start": start, "limit": limit, "size": len(found), "_links": links}


def person_json(person: Person, *, cloud: bool) -> Json:
    """Somebody."""
    if cloud:
        return {
            "type": "known",
            "accountId": person.account_id,
            "accountType": "atlassian",
            "email": person.email,
            "publicName": person.name,
            "displayName": person.shown,
        }
    return {"type": "known", "username": person.name, "userKey": person.key, "displayName": person.shown}


def group_json(wiki: Wiki, name: str, *, cloud: bool) -> Json:
    """A group."""
    return {"type": "group", "name": name, **({"id": wiki.group_id(name)} if cloud else {})}


def restriction_json(wiki: Wiki, thing: Thing, *, cloud: bool, start: int = 0, limit: int = 25) -> Json:
    """Who may read a thing by its own restriction."""
    users = [person_json(one, cloud=cloud) for one in wiki.people.values() if one.account_id in thing.readers]
    if thing.gone_reader:
        users.append({"type": "unknown", "displayName": "Former user"})
    groups = [group_json(wiki, name, cloud=cloud) for name in wiki.groups if f"group:{name}" in thing.readers]

    def part(rows: list[Json]) -> Json:
        found = rows[start : start + limit]
        links = {"next": "more"} if start + limit < len(rows) else {}
        return {"results": found, "start": start, "limit": limit, "size": len(found), "_links": links}

    return {"operation": "read", "restrictions": {"user": part(users), "group": part(groups)}}


def content_json(wiki: Wiki, thing: Thing, expand: str, *, cloud: bool) -> Json:
    """Content as v1 gives it; only what is asked for is expanded."""
    wanted = set(expand.split(","))
    name = ("att" if thing.kind == "attachment" else "") + str(thing.thing_id)
    found: Json = {"id": name, "type": thing.kind, "status": thing.status, "title": thing.title, "_expandable": {}}
    found["_links"] = {"webui": webui(thing), "self": f"/rest/api/content/{name}"}
    if "version" in wanted:
        found["version"] = {"number": thing.version, "when": stamp(thing.modified)}
    if "history" in wanted:
        found["history"] = {"createdDate": stamp(thing.created)}
    if "space" in wanted:
        found["space"] = {"id": thing.space.space_id, "key": thing.space.key}
    if "ancestors" in wanted:
        found["ancestors"] = [{"id": str(one.thing_id), "title": one.title, "type": one.kind} for one in thing.above]
    if "metadata.labels" in wanted:
        labels = [{"prefix": "global", "name": one} for one in sorted(thing.labels)]
        found["metadata"] = {"labels": {"results": labels, "start": 0, "limit": 200, "size": len(labels)}}
    if "body.storage" in wanted:
        found["body"] = {"storage": {"value": thing.body, "representation": "storage"}}
    if "restrictions.read.restrictions.user" in wanted and "restrictions.read.restrictions.group" in wanted:
        found["restrictions"] = {"read": restriction_json(wiki, thing, cloud=cloud)}
    if "childTypes.attachment" in wanted:
        found["childTypes"] = {"attachment": {"value": bool(wiki.attachments(thing))}}
    if "children.attachment" in wanted:
        files = [{"id": f"att{one.thing_id}"} for one in wiki.attachments(thing)]
        found["children"] = {"attachment": {"results": files[:25], "start": 0, "limit": 25, "size": len(files[:25])}}
    if thing.kind == "attachment" and thing.parent is not None:
        found["extensions"] = {"mediaType": thing.media_type, "fileSize": len(thing.data)}
        found["_links"]["download"] = (
            f"/download/attachments/{thing.parent.thing_id}/{quote(thing.title)}?version={thing.version}&api=v2"
        )
        if "container" in wanted:
            found["container"] = {"id": str(thing.parent.thing_id), "type": thing.parent.kind}
    return found


def webui(thing: Thing) -> str:
    """Where a browser finds it, below the site's address."""
    if thing.kind == "attachment" and thing.parent is not None:
        return f"/pages/viewpageattachments.action?pageId={thing.parent.thing_id}&preview={thing.thing_id}"
    return f"/spaces/{thing.space.key}/pages/{thing.thing_id}/{quote(thing.title.replace(' ', '+'), safe='+')}"


def stamp(moment: datetime) -> str:
    """A time in JSON."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_SPACES = re.compile(r'space in \(("(?:[^"\\]|\\.)*"(?:,"(?:[^"\\]|\\.)*")*)\)')
_SINCE = re.compile(r'lastmodified >= now\("-(\d+)m"\)')


def search(wiki: Wiki, cql: str) -> list[Thing]:
    """The few queries in CQL that are known here, over what the index has."""
    known = [
        one for one in wiki.things.values() if one.is_there and one.kind != "folder" and one.thing_id not in wiki.unsearchable
    ]
    ids = re.fullmatch(r"id in \(([\d,]+)\)", cql)
    if ids is not None:
        wanted = {int(one) for one in ids[1].split(",")}
        return [one for one in known if one.thing_id in wanted]
    since = _SINCE.search(cql)
    if since is None or "type in (page,blogpost,attachment)" not in cql or not cql.endswith("order by lastmodified desc"):
        raise Refused(400, f"Could not parse cql : {cql}")
    # The index keeps minutes.
    edge = (wiki.clock() - timedelta(minutes=int(since[1]))).replace(second=0, microsecond=0)
    spaces = _SPACES.search(cql)
    keys = None if spaces is None else {re.sub(r"\\(.)", r"\1", one) for one in re.findall(r'"((?:[^"\\]|\\.)*)"', spaces[1])}
    if keys is not None and keys - wiki.spaces.keys():
        raise Refused(400, "The value of space does not exist")
    found = [one for one in known if one.modified >= edge and (keys is None or one.space.key in keys)]
    return sorted(found, key=lambda one: one.modified, reverse=True)


class DataCenterRoutes:
    """REST v1 of Data Center, as far as a reader needs it."""

    def __init__(self, wiki: Wiki) -> None:
        self.wiki = wiki
        self.tells_space_permissions = True  # from 9.1 on, to administrators of the space
        self.most = 100

    def answer(self, path: str, query: Query) -> Any:
        """The JSON at a path below the base address.

        Raises:
            Refused
        """
        for pattern, route in self._routes():
            match = re.fullmatch(pattern, path)
            if match is not None:
                return route(query, *match.groups())
        raise Refused(404, f"No route {path}")

    def _routes(self) -> list[tuple[str, Callable[..., Any]]]:
        return [
            (r"/rest/api/user/current", lambda _: {"type": "known", "username": "reader"}),
            (r"/rest/api/user", self._user),
            (r"/rest/api/user/memberof", self._groups_of),
            (r"/rest/api/space", self._spaces),
            (r"/rest/api/space/([^/]+)/permissions", self._permissions),
            (r"/rest/api/content", self._contents),
            (r"/rest/api/content/search", self._search),
            (r"/rest/api/content/(\w+)", self._content),
            (r"/rest/api/content/(\d+)/label", self._labels),
            (r"/rest/api/content/(\d+)/child/attachment", self._attachments),
            (r"/rest/api/content/(\d+)/child/page", self._children),
            (r"/rest/api/content/(\d+)/restriction/byOperation/read", self._restriction),
            (r"/rest/api/group/([^/]+)/member", self._members),
        ]

    def thing(self, name: str, *kinds: str) -> Thing:
        """A thing by its id, if it is there."""
        number = name.removeprefix("att")
        found = self.wiki.things.get(int(number)) if number.isdigit() else None
        if found is None or (found.kind == "attachment") != name.startswith("att") or (kinds and found.kind not in kinds):
            raise Refused(404, f"No content found with id: {name}")
        return found

    def _user(self, query: Query) -> Json:
        for one in self.wiki.people.values():
            if first(query, "key") == one.key or first(query, "username") == one.name:
                return person_json(one, cloud=False)
        raise Refused(404, "No user found")

    def _groups_of(self, query: Query) -> Json:
        found = [one for one in self.wiki.people.values() if one.name == first(query, "username")]
        groups = [group_json(self.wiki, name, cloud=False) for one in found for name in self.wiki.groups_of(one)]
        return paged(groups, query, "/rest/api/user/memberof", most=200)

    def _spaces(self, query: Query) -> Json:
        spaces = [one for one in self.wiki.spaces.values() if first(query, "status") in {"", one.status}]
        rows = [{"id": one.space_id, "key": one.key, "name": one.name, "type": one.kind, "status": one.status} for one in spaces]
        return paged(rows, query, "/rest/api/space", most=self.most)

    def _permissions(self, _: Query, key: str) -> list[Json]:
        space = self.wiki.spaces.get(key)
        if space is None or not self.tells_space_permissions:
            raise Refused(404, "No route")
        read = {"targetType": "space", "operationKey": "read"}
        rows: list[Json] = [{"operation": read, "subject": None, "spaceKey": key}] if space.anonymous else []
        for one in sorted(space.readers):
            if one.startswith("group:"):
                subject = {"type": "group", "name": one.removeprefix("group:")}
            else:
                subject = {"type": "user", "userKey": self.wiki.people[one].key}
            rows.append({"operation": read, "subject": subject, "spaceKey": key, "spaceId": space.space_id})
        rows.append(
            {"operation": {"targetType": "space", "operationKey": "administer"}, "subject": {"type": "group", "name": "admins"}}
        )
        return rows

    def _contents(self, query: Query) -> Json:
        space = self.wiki.spaces.get(first(query, "spaceKey"))
        if space is None:
            raise Refused(404, "No space")
        things = self.wiki.listed(first(query, "type", "page"), space)
        rows = [content_json(self.wiki, one, first(query, "expand"), cloud=False) for one in things]
        return paged(rows, query, "/rest/api/content", most=self.most)

    def _search(self, query: Query) -> Json:
        things = search(self.wiki, first(query, "cql"))
        rows = [content_json(self.wiki, one, first(query, "expand"), cloud=False) for one in things]
        return paged(rows, query, "/rest/api/content/search", most=self.most)

    def _content(self, query: Query, name: str) -> Json:
        thing = self.thing(name)
        if not thing.is_there:
            raise Refused(404, "Not current")
        return content_json(self.wiki, thing, first(query, "expand"), cloud=False)

    def _labels(self, query: Query, name: str) -> Json:
        rows = [{"prefix": "global", "name": one} for one in sorted(self.thing(name).labels)]
        return paged(rows, query, f"/rest/api/content/{name}/label", most=self.most)

    def _attachments(self, query: Query, name: str) -> Json:
        page = self.thing(name)
        if not page.is_there:
            raise Refused(404, "Not current")
        rows = [content_json(self.wiki, one, first(query, "expand"), cloud=False) for one in self.wiki.attachments(page)]
        return paged(rows, query, f"/rest/api/content/{name}/child/attachment", most=self.most)

    def _children(self, query: Query, name: str) -> Json:
        page = self.thing(name)
        rows = [content_json(self.wiki, one, first(query, "expand"), cloud=False) for one in self.wiki.children(page)]
        return paged(rows, query, f"/rest/api/content/{name}/child/page", most=self.most)

    def _restriction(self, query: Query, name: str) -> Json:
        start, limit = int(first(query, "start", "0")), int(first(query, "limit", "100"))
        return restriction_json(self.wiki, self.thing(name), cloud=False, start=start, limit=limit)

    def _members(self, query: Query, name: str) -> Json:
        if name not in self.wiki.groups:
            raise Refused(404, "No group")
        members = [person_json(self.wiki.people[one], cloud=False) for one in sorted(self.wiki.groups[name])]
        return paged(members, query, f"/rest/api/group/{name}/member", most=200)
