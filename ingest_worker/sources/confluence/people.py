"""Who we are at Confluence, and who is in which group: the same questions to Cloud and Data Center, at other paths."""

from __future__ import annotations

from collections.abc import Mapping

from ingest_worker.sources.confluence.content import Named
from ingest_worker.sources.confluence.model import Level
from ingest_worker.sources.confluence.rest import Json, NotThere, Rest, results, text_of
from shared.errors import PermanentError

_PAGE_SIZE = 200
_MOST_MEMBERS = 1000


def refuse_anonymous(user: Json, base: str) -> None:
    """Raises PermanentError when this user is nobody."""
    if text_of(user, "type") == "anonymous":
        raise PermanentError(
            f"{base} takes us for an anonymous visitor: the token has run out or was revoked. Make a new one and set api_token.",
            code="anonymous",
        )


def told_groups(rest: Rest, who: Mapping[str, str], *, name: Named) -> Level:
    """The groups that a person is in, none where it is not told."""
    found: set[str] = set()
    try:
        for page in rest.by_start("/rest/api/user/memberof", who, limit=_PAGE_SIZE, what="the groups of a user"):
            found |= {group for one in results(page) if (group := name(one)) is not None}
    except NotThere:
        return frozenset()
    except PermanentError as error:
        if error.code != "forbidden":
            raise
        return frozenset()
    return frozenset(found)


def told_members(rest: Rest, path: str, *, group: str, user: Named) -> Level | None:
    """The members of a group, at this path; None where they are not told, or are too many to be looked at one by one."""
    found: set[str] = set()
    try:
        for page in rest.by_start(path, {}, limit=_PAGE_SIZE, what=f"members of group {group}"):
            found |= {reader for one in results(page) if (reader := user(one)) is not None}
            if len(found) > _MOST_MEMBERS:
                return None
    except NotThere:
        return None
    except PermanentError as error:
        if error.code != "forbidden":
            raise
        return None
    return frozenset(found)
