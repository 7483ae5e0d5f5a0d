"""Confluence Data Center (and Server) from 7.9 on, over REST v1. Paths as of developer.atlassian.com/server/confluence/rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ingest_worker.sources.confluence import content
from ingest_worker.sources.confluence.model import Attachment, Body, Changed, Level, Node, Page, Readers, Space
from ingest_worker.sources.confluence.people import refuse_anonymous, told_groups, told_members
from ingest_worker.sources.confluence.rest import Json, NotThere, Rest, is_more, links, number_of, results, text_of, time_of
from ingest_worker.sources.protocol import concerns_one
from shared.errors import DocwellError, PermanentError, TransientError

_PAGE_SIZE = 100
_OVERLAP = 5
_SPACES_AT_ONCE = 50
_MOST_CALLS = 100_000
_EXPAND = "version,history,space,ancestors,metadata.labels,children.attachment"


class DataCenter:
    """A site as an account sees it. Users are `user:USERNAME`, groups `group:NAME`."""

    def __init__(self, rest: Rest, *, permissions: bool) -> None:
        self._rest = rest
        self._permissions = permissions
        self._expand = f"{_EXPAND},{content.RESTRICTIONS}" if permissions else _EXPAND
        self._usernames: dict[str, str] = {}

    def check_account(self) -> None:
        """See `Wiki`."""
        refuse_anonymous(self._rest.get("/rest/api/user/current", what="the account"), self._rest.base)

    def spaces(self) -> Iterator[Space]:
        """See `Wiki`."""
        for page in self._rest.by_start("/rest/api/space", {"status": "current"}, limit=_PAGE_SIZE, what="the spaces"):
            for one in results(page):
                if text_of(one, "status") not in {"", "current", "CURRENT"}:
                    continue
                key = text_of(one, "key")
                yield Space(space_id=key, key=key, name=text_of(one, "name"), personal=text_of(one, "type") == "personal")

    def pages(self, space: Space, kind: str) -> Iterator[list[Page]]:
        """See `Wiki`. Pages of results overlap: when something before them is deleted meanwhile, nothing slips through."""
        parameters = {"type": kind, "spaceKey": space.key, "status": "current", "expand": self._expand}
        what = f"{kind}s of space {space.key}"
        seen: set[str] = set()
        start = 0
        for _ in range(_MOST_CALLS):
            page = self._rest.get("/rest/api/content", {**parameters, "start": start, "limit": _PAGE_SIZE}, what=what)
            ids = [text_of(one, "id") for one in results(page)]
            if start > 0 and (not ids or ids[0] not in seen):
                start = max(0, start - _PAGE_SIZE // 2)  # more went than the overlap covers
                continue
            yield self._new(page, seen)
            if not is_more(page, limit=_PAGE_SIZE):
                return
            start += max(1, len(ids) - _OVERLAP)
        raise TransientError(f"The pages of {what} do not come to an end.", code="bad_paging")

    def _new(self, page: Json, seen: set[str]) -> list[Page]:
        fresh = [one for one in results(page) if text_of(one, "id") not in seen]
        seen.update(text_of(one, "id") for one in fresh)
        return [made for one in fresh if (made := self._page(one)) is not None]

    def pages_by_id(self, ids: Sequence[str]) -> list[Page]:
        """See `Wiki`."""
        found = []
        for page_id in ids:
            try:
                one = self._rest.get(f"/rest/api/content/{page_id}", {"expand": self._expand}, what=f"page {page_id}")
            except NotThere:
                continue
            made = self._page(one)
            if made is not None:
                found.append(made)
        return found

    def _page(self, one: Json) -> Page | None:
        kind = text_of(one, "type")
        version = number_of(one, "version", "number")
        if kind not in {"page", "blogpost"} or text_of(one, "status") not in {"", "current"} or version is None:
            return None
        page_id = text_of(one, "id")
        labels, own, trouble = content.labels_of(one), None, None
        try:
            known, own = content.restricted_to(one, user=self._user, group=_group) if self._permissions else (True, None)
            if not known:
                own = content.restriction_or_nobody(self._rest, page_id, user=self._user, group=_group)
            labels = labels if labels is not None else self._labels(page_id)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            trouble = error
        ancestors = one.get("ancestors")
        above = [up for up in ancestors if isinstance(up, dict)] if isinstance(ancestors, list) else []
        children = one.get("children")
        attached = children.get("attachment") if isinstance(children, dict) else None
        return Page(
            page_id=page_id,
            kind=kind,
            title=text_of(one, "title"),
            space=text_of(one, "space", "key"),
            version=version,
            modified=time_of(one, "version", "when"),
            created=time_of(one, "history", "createdDate"),
            parent=text_of(above[-1], "id") if above else None,
            parent_kind="page",
            labels=labels or (),
            own=own,
            has_attachments=not isinstance(attached, dict) or bool(results(attached)),
            webui=text_of(links(one), "webui"),
            site=None,
            trouble=trouble,
        )

    def _labels(self, page_id: str) -> tuple[str, ...]:
        pages = self._rest.by_start(f"/rest/api/content/{page_id}/label", {}, limit=_PAGE_SIZE, what=f"labels of {page_id}")
        return content.visible_labels([one for page in pages for one in results(page)])

    def below(self, page: Page) -> Iterator[list[Page]]:
        """See `Wiki`. Level by level: descendants that the API tells of in one go are comments only."""
        waiting, seen = [page.page_id], {page.page_id}
        while waiting:
            parent = waiting.pop()
            path = f"/rest/api/content/{parent}/child/page"
            try:
                for found in self._rest.by_start(path, {"expand": self._expand}, limit=_PAGE_SIZE, what=f"pages below {parent}"):
                    pages = self._new(found, seen)
                    waiting.extend(one.page_id for one in pages)
                    yield pages
            except NotThere:
                continue

    def attachments(self, page: Page) -> Iterator[list[Attachment]]:
        """See `Wiki`."""
        path = f"/rest/api/content/{page.page_id}/child/attachment"
        expand = {"expand": "version,metadata.labels"}
        for found in self._rest.by_start(path, expand, limit=_PAGE_SIZE, what=f"attachments of {page.page_id}"):
            yield [made for one in results(found) if (made := self._attachment(one, page.page_id)) is not None]

    def attachment(self, attachment_id: str) -> Attachment | None:
        """See `Wiki`."""
        path = f"/rest/api/content/{attachment_id}"
        try:
            one = self._rest.get(path, {"expand": "version,container,metadata.labels"}, what=f"attachment {attachment_id}")
        except NotThere:
            return None
        return self._attachment(one, text_of(one, "container", "id"))

    def _attachment(self, one: Json, page_id: str) -> Attachment | None:
        version = number_of(one, "version", "number")
        if (
            text_of(one, "type") != "attachment"
            or text_of(one, "status") not in {"", "current"}
            or version is None
            or not page_id
        ):
            return None
        return Attachment(
            attachment_id=text_of(one, "id"),
            title=text_of(one, "title"),
            page_id=page_id,
            version=version,
            media_type=text_of(one, "extensions", "mediaType") or text_of(one, "metadata", "mediaType") or None,
            size=number_of(one, "extensions", "fileSize"),
            modified=time_of(one, "version", "when"),
            labels=content.labels_of(one) or (),
            webui=text_of(links(one), "webui"),
            site=None,
            download=text_of(links(one), "download") or None,
        )

    def node(self, node_id: str, kind: str) -> Node | None:  # noqa: ARG002 - there is one kind
        """See `Wiki`. Data Center has pages above pages, nothing else."""
        found = self.pages_by_id([node_id])
        return found[0].node if found else None

    def body(self, page_id: str, kind: str | None) -> Body | None:  # noqa: ARG002 - one path serves all
        """See `Wiki`."""
        try:
            one = self._rest.get(
                f"/rest/api/content/{page_id}", {"expand": "body.storage,version"}, what=f"the text of {page_id}"
            )
        except NotThere:
            return None
        if text_of(one, "status") not in {"", "current"}:
            return None
        return Body(storage=text_of(one, "body", "storage", "value"), version=number_of(one, "version", "number") or 0)

    def download(self, attachment: Attachment, *, max_bytes: int) -> bytes | None:
        """See `Wiki`."""
        link = attachment.download
        if link is None:
            fresh = self.attachment(attachment.attachment_id)
            link = None if fresh is None else fresh.download
        if link is None:
            return None
        try:
            return self._rest.download(link, what=f"attachment {attachment.title!r}", max_bytes=max_bytes)
        except NotThere:
            return None

    def changed(self, spaces: Sequence[str], minutes: int) -> Iterator[Changed]:
        """See `Wiki`."""
        for first in range(0, max(1, len(spaces)), _SPACES_AT_ONCE):
            query = {"cql": content.changed_query(list(spaces[first : first + _SPACES_AT_ONCE]), minutes)}
            for page in self._rest.by_start("/rest/api/content/search", query, limit=_PAGE_SIZE, what="what has changed"):
                yield found_changes(page)

    def space_readers(self, space: Space) -> Readers:
        """See `Wiki`. Told from 9.1 on, to administrators of the space."""
        try:
            found = self._rest.get_any(
                f"/rest/api/space/{quote(space.key, safe='~')}/permissions", what=f"permissions of space {space.key}"
            )
        except (NotThere, PermanentError) as error:
            if isinstance(error, PermanentError) and error.code != "forbidden":
                raise
            return Readers(named=frozenset(), known=False)
        rows = found if isinstance(found, list) else results(found)
        named: set[str] = set()
        everybody = False
        for row in rows:
            operation = row.get("operation") if isinstance(row, dict) else None
            key = text_of(operation, "operationKey") or text_of(operation, "key")
            if key != "read" or text_of(operation, "targetType") not in {"", "space"}:
                continue
            subject = row.get("subject")
            subject = subject if isinstance(subject, dict) else {}
            kind = text_of(subject, "type")
            everybody |= not subject or kind == "anonymous"
            reader = self._user(subject) if kind == "user" else _group(subject) if kind == "group" else None
            if reader is not None:
                named.add(reader)
        return Readers(named=frozenset(named), everybody=everybody)

    def _user(self, user: Mapping[str, Any]) -> str | None:
        name = text_of(user, "username") or text_of(user, "name")
        key = text_of(user, "userKey")
        if not name and key:
            if key not in self._usernames:
                self._usernames[key] = text_of(self._person("key", key), "username")
            name = self._usernames[key]
        return f"user:{name}" if name else None

    def _person(self, by: str, value: str) -> Json:
        try:
            return self._rest.get("/rest/api/user", {by: value}, what="a user")
        except NotThere:
            return {}

    def members(self, group: str) -> Level | None:
        """See `Wiki`."""
        return told_members(self._rest, f"/rest/api/group/{quote(group, safe='')}/member", group=group, user=self._user)

    def groups_of(self, user: str) -> Level:
        """See `Wiki`."""
        return told_groups(self._rest, {"username": user.removeprefix("user:")}, name=_group)

    def aliases(self, users: Sequence[str]) -> dict[str, tuple[str, ...]]:  # noqa: ARG002
        """See `Wiki`: a user name is the one name."""
        return {}

    def names(self, people: Sequence[str]) -> dict[str, str]:
        """See `Wiki`. User keys, or user names in what is old."""
        found: dict[str, str] = {}
        for one in people:
            try:
                person = self._person("key", one) or self._person("username", one)
            except PermanentError as error:
                if error.code not in {"forbidden", "refused"}:
                    raise
                continue
            name = text_of(person, "displayName") or text_of(person, "username")
            if name:
                found[one] = name
        return found


def _group(group: Mapping[str, Any]) -> str | None:
    name = text_of(group, "name")
    return f"group:{name}" if name else None


def found_changes(page: Json) -> Changed:
    """What a page of search results names."""
    found = results(page)
    return Changed(
        pages=tuple(text_of(one, "id") for one in found if text_of(one, "type") in {"page", "blogpost"}),
        attachments=tuple(text_of(one, "id") for one in found if text_of(one, "type") == "attachment"),
    )
