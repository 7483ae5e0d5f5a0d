"""Confluence Cloud: REST v2, and v1 for what v2 has not (search by CQL, restrictions, groups, downloads).

Paths as of developer.atlassian.com/cloud/confluence/rest/v2 and /v1; both stand below the base address, `https://SITE/wiki`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ingest_worker.sources.confluence import content
from ingest_worker.sources.confluence.data_center import found_changes
from ingest_worker.sources.confluence.model import BLOG, PAGE, Attachment, Body, Changed, Level, Node, Page, Readers, Space
from ingest_worker.sources.confluence.people import refuse_anonymous, told_groups, told_members
from ingest_worker.sources.confluence.rest import Json, NotThere, Rest, links, number_of, results, text_of, time_of
from ingest_worker.sources.protocol import concerns_one
from shared.errors import DocwellError, PermanentError

_PAGE_SIZE = 100
_DEPTH = 5  # levels of descendants in one answer
_IDS_AT_ONCE = 50  # of what a search may expand with bodies; ours has none, and the query stays short
_SPACES_AT_ONCE = 50
_PEOPLE_AT_ONCE = 100
_GATEWAY = "api.atlassian.com"
_COLLECTIONS: Final = {
    PAGE: "pages",
    BLOG: "blogposts",
    "folder": "folders",
    "whiteboard": "whiteboards",
    "database": "databases",
    "embed": "embeds",
}


class Cloud:
    """A site as an account sees it. Users are `user:ACCOUNTID`, groups `group:NAME`."""

    def __init__(self, rest: Rest, *, permissions: bool) -> None:
        self._rest = rest
        self._permissions = permissions
        self._expand = "metadata.labels,childTypes.attachment" + (f",{content.RESTRICTIONS}" if permissions else "")
        self._group_ids: dict[str, str] = {}
        self._group_names: dict[str, str] = {}
        self._through_gateway = urlsplit(rest.base).hostname == _GATEWAY

    def check_account(self) -> None:
        """See `Wiki`."""
        refuse_anonymous(self._rest.get("/rest/api/user/current", what="the account"), self._rest.base)

    def spaces(self) -> Iterator[Space]:
        """See `Wiki`."""
        for page in self._rest.by_cursor("/api/v2/spaces", {"status": "current", "limit": _PAGE_SIZE}, what="the spaces"):
            for one in results(page):
                if text_of(one, "status") in {"", "current"}:
                    yield Space(
                        space_id=text_of(one, "id"),
                        key=text_of(one, "key"),
                        name=text_of(one, "name"),
                        personal=text_of(one, "type") == "personal",
                    )

    def pages(self, space: Space, kind: str) -> Iterator[list[Page]]:
        """See `Wiki`."""
        path = f"/api/v2/spaces/{space.space_id}/{_COLLECTIONS[kind]}"
        parameters = {"status": "current", "limit": _PAGE_SIZE, "sort": "id"}
        for found in self._rest.by_cursor(path, parameters, what=f"{kind}s of space {space.key}"):
            yield self._made(found, kind)

    def pages_by_id(self, ids: Sequence[str]) -> list[Page]:
        """See `Wiki`."""
        made: list[Page] = []
        for first in range(0, len(ids), _IDS_AT_ONCE):
            wanted = [one for one in ids[first : first + _IDS_AT_ONCE] if one.isascii() and one.isdigit()]
            for kind in (PAGE, BLOG):
                if not wanted:
                    break
                parameters = {"id": ",".join(wanted), "status": "current", "limit": _PAGE_SIZE}
                for found in self._rest.by_cursor(f"/api/v2/{_COLLECTIONS[kind]}", parameters, what=f"{kind}s by id"):
                    made += self._made(found, kind)
                there = {page.page_id for page in made}
                wanted = [one for one in wanted if one not in there]
        return made

    def _made(self, page: Json, kind: str) -> list[Page]:
        """The pages of one answer, with what only the search tells of them: labels, restrictions, whether there are files."""
        rows = [
            one
            for one in results(page)
            if text_of(one, "status") == "current" and number_of(one, "version", "number") is not None
        ]
        site = text_of(links(page), "base") or None
        more: dict[str, Json] = {}
        for first in range(0, len(rows), _IDS_AT_ONCE):
            ids = ",".join(text_of(one, "id") for one in rows[first : first + _IDS_AT_ONCE])
            query = {"cql": f"id in ({ids})", "expand": self._expand, "limit": _PAGE_SIZE}
            for answer in self._rest.by_cursor("/rest/api/content/search", query, what=f"labels and restrictions of {kind}s"):
                more.update((text_of(one, "id"), one) for one in results(answer))
        return [self._page(one, kind, more.get(text_of(one, "id"), {}), site) for one in rows]

    def _page(self, one: Json, kind: str, more: Json, site: str | None) -> Page:
        page_id = text_of(one, "id")
        labels, own, trouble = content.labels_of(more), None, None
        try:
            known, own = content.restricted_to(more, user=_user, group=self._group) if self._permissions else (True, None)
            if not known:  # the search's index does not have it yet, or there are more than fit
                own = content.restriction_or_nobody(self._rest, page_id, user=_user, group=self._group)
            labels = labels if labels is not None else self._labels(page_id, kind)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            trouble = error
        children = more.get("childTypes")
        attached = children.get("attachment") if isinstance(children, dict) else None
        value = attached.get("value") if isinstance(attached, dict) else None
        return Page(
            page_id=page_id,
            kind=kind,
            title=text_of(one, "title"),
            space=text_of(one, "spaceId"),
            version=number_of(one, "version", "number") or 0,
            modified=time_of(one, "version", "createdAt"),
            created=time_of(one, "createdAt"),
            parent=text_of(one, "parentId") or None,
            parent_kind=text_of(one, "parentType") or PAGE,
            labels=labels or (),
            own=own,
            has_attachments=value is not False,
            webui=text_of(links(one), "webui"),
            site=self._site(site),
            trouble=trouble,
        )

    def _site(self, site: str | None) -> str | None:
        """The site's own address where ours is that of Atlassian's gateway, which no browser can open."""
        return site if self._through_gateway else None

    def _labels(self, page_id: str, kind: str) -> tuple[str, ...]:
        path = f"/api/v2/{_COLLECTIONS[kind]}/{page_id}/labels"
        try:
            pages = list(self._rest.by_cursor(path, {"limit": _PAGE_SIZE}, what=f"labels of {page_id}"))
        except NotThere:
            return ()
        return content.visible_labels([one for page in pages for one in results(page)])

    def below(self, page: Page) -> Iterator[list[Page]]:
        """See `Wiki`."""
        waiting, seen = [(page.page_id, page.kind)], {page.page_id}
        while waiting:
            parent, kind = waiting.pop()
            if kind not in _COLLECTIONS or kind == BLOG:
                continue
            path = f"/api/v2/{_COLLECTIONS[kind]}/{parent}/descendants"
            try:
                for found in self._rest.by_cursor(path, {"depth": _DEPTH, "limit": _PAGE_SIZE}, what=f"pages below {parent}"):
                    rows = [(text_of(one, "id"), text_of(one, "type"), number_of(one, "depth") or 0) for one in results(found)]
                    # What is as deep as was asked for may have more below it.
                    waiting.extend((one, of) for one, of, depth in rows if depth >= _DEPTH and one not in seen)
                    ids = [one for one, of, _ in rows if of == PAGE and one not in seen]
                    seen.update(one for one, _, _ in rows)
                    yield self.pages_by_id(ids)
            except NotThere:
                continue

    def attachments(self, page: Page) -> Iterator[list[Attachment]]:
        """See `Wiki`."""
        path = f"/api/v2/{_COLLECTIONS[page.kind]}/{page.page_id}/attachments"
        parameters = {"status": "current", "limit": _PAGE_SIZE}
        for found in self._rest.by_cursor(path, parameters, what=f"attachments of {page.page_id}"):
            site = text_of(links(found), "base") or None
            yield [made for one in results(found) if (made := self._attachment(one, site, page.page_id)) is not None]

    def attachment(self, attachment_id: str) -> Attachment | None:
        """See `Wiki`."""
        try:
            one = self._rest.get(f"/api/v2/attachments/{attachment_id}", what=f"attachment {attachment_id}")
        except NotThere:
            return None
        return self._attachment(one, text_of(links(one), "base") or None, text_of(one, "pageId") or text_of(one, "blogPostId"))

    def _attachment(self, one: Json, site: str | None, page_id: str) -> Attachment | None:
        version = number_of(one, "version", "number")
        if text_of(one, "status") != "current" or version is None or not page_id:
            return None
        return Attachment(
            attachment_id=text_of(one, "id"),
            title=text_of(one, "title"),
            page_id=page_id,
            version=version,
            media_type=text_of(one, "mediaType") or None,
            size=number_of(one, "fileSize"),
            modified=time_of(one, "version", "createdAt"),
            labels=(),
            webui=text_of(one, "webuiLink") or text_of(links(one), "webui"),
            site=self._site(site),
        )

    def node(self, node_id: str, kind: str) -> Node | None:
        """See `Wiki`."""
        if kind == PAGE:
            found = self.pages_by_id([node_id])
            return found[0].node if found else None
        try:
            one = self._rest.get(f"/api/v2/{_COLLECTIONS.get(kind, 'folders')}/{node_id}", what=f"{kind} {node_id}")
        except NotThere:
            return None
        own = content.restriction_or_nobody(self._rest, node_id, user=_user, group=self._group) if self._permissions else None
        return Node(
            node_id=node_id,
            title=text_of(one, "title"),
            parent=text_of(one, "parentId") or None,
            parent_kind=text_of(one, "parentType") or PAGE,
            own=own,
        )

    def body(self, page_id: str, kind: str | None) -> Body | None:
        """See `Wiki`."""
        for one_kind in (PAGE, BLOG) if kind is None else (kind,):
            path = f"/api/v2/{_COLLECTIONS[one_kind]}/{page_id}"
            try:
                one = self._rest.get(path, {"body-format": "storage"}, what=f"the text of {page_id}")
            except NotThere:
                continue
            if text_of(one, "status") != "current":
                return None
            return Body(storage=text_of(one, "body", "storage", "value"), version=number_of(one, "version", "number") or 0)
        return None

    def download(self, attachment: Attachment, *, max_bytes: int) -> bytes | None:
        """See `Wiki`. Confluence redirects to where the bytes are, with a signed address that runs out."""
        link = f"/rest/api/content/{attachment.page_id}/child/attachment/{attachment.attachment_id}/download"
        try:
            return self._rest.download(link, what=f"attachment {attachment.title!r}", max_bytes=max_bytes)
        except NotThere:
            return None

    def changed(self, spaces: Sequence[str], minutes: int) -> Iterator[Changed]:
        """See `Wiki`."""
        for first in range(0, max(1, len(spaces)), _SPACES_AT_ONCE):
            cql = content.changed_query(list(spaces[first : first + _SPACES_AT_ONCE]), minutes)
            query = {"cql": cql, "limit": _PAGE_SIZE}
            for page in self._rest.by_cursor("/rest/api/content/search", query, what="what has changed"):
                yield found_changes(page)

    def space_readers(self, space: Space) -> Readers:
        """See `Wiki`. Told to those who may view the space; principals of a kind that has no name here open nothing."""
        named: set[str] = set()
        path = f"/api/v2/spaces/{space.space_id}/permissions"
        try:
            for page in self._rest.by_cursor(path, {"limit": _PAGE_SIZE}, what=f"permissions of space {space.key}"):
                for one in results(page):
                    if text_of(one, "operation", "key") != "read" or text_of(one, "operation", "targetType") != "space":
                        continue
                    principal, kind = text_of(one, "principal", "id"), text_of(one, "principal", "type").lower()
                    if kind == "user" and principal:
                        named.add(f"user:{principal}")
                    elif kind == "group" and principal and (name := self._group_name(principal)):
                        named.add(f"group:{name}")
        except NotThere:
            return Readers(named=frozenset(), known=False)
        except PermanentError as error:
            if error.code != "forbidden":
                raise
            return Readers(named=frozenset(), known=False)
        return Readers(named=frozenset(named))

    def _group(self, group: Mapping[str, Any]) -> str | None:
        name, group_id = text_of(group, "name"), text_of(group, "id")
        if name and group_id:
            self._group_ids[name] = group_id
            self._group_names[group_id] = name
        elif group_id:
            name = self._group_name(group_id)
        return f"group:{name}" if name else None

    def _group_name(self, group_id: str) -> str:
        if group_id not in self._group_names:
            try:
                found = self._rest.get("/rest/api/group/by-id", {"id": group_id}, what="a group")
            except NotThere:
                found = {}
            self._group_names[group_id] = text_of(found, "name")
            if text_of(found, "name"):
                self._group_ids[text_of(found, "name")] = group_id
        return self._group_names[group_id]

    def members(self, group: str) -> Level | None:
        """See `Wiki`."""
        group_id = self._group_ids.get(group)
        if group_id is None:
            return None
        return told_members(self._rest, f"/rest/api/group/{group_id}/membersByGroupId", group=group, user=_user)

    def groups_of(self, user: str) -> Level:
        """See `Wiki`."""
        return told_groups(self._rest, {"accountId": user.removeprefix("user:")}, name=self._group)

    def aliases(self, users: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """See `Wiki`: e-mail addresses, where people show them."""
        found = self._people([one.removeprefix("user:") for one in users])
        return {
            f"user:{account}": (f"user:{address.lower()}",)
            for account, one in found.items()
            if (address := text_of(one, "email"))
        }

    def names(self, people: Sequence[str]) -> dict[str, str]:
        """See `Wiki`."""
        found = self._people(people)
        names = {account: text_of(one, "displayName") or text_of(one, "publicName") for account, one in found.items()}
        return {account: name for account, name in names.items() if name}

    def _people(self, accounts: Sequence[str]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        wanted = sorted(set(accounts))
        for first in range(0, len(wanted), _PEOPLE_AT_ONCE):
            some = wanted[first : first + _PEOPLE_AT_ONCE]
            page = self._rest.get("/rest/api/user/bulk", {"accountId": some, "limit": _PEOPLE_AT_ONCE}, what="users")
            found.update((text_of(one, "accountId"), one) for one in results(page))
        return found


def _user(user: Mapping[str, Any]) -> str | None:
    account = text_of(user, "accountId")
    return f"user:{account}" if account else None
