"""The `content` of REST v1, which Data Center speaks throughout and Cloud in its search and its restrictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ingest_worker.sources.confluence.model import Level
from ingest_worker.sources.confluence.rest import Json, NotThere, Rest, is_more, number_of, results, text_of

RESTRICTIONS = "restrictions.read.restrictions.user,restrictions.read.restrictions.group"
"""What to expand for who may read."""

_RESTRICTED_PAGE = 100  # users and groups a page of results: the default and, says the documentation, the limit

Named = Callable[[Mapping[str, Any]], str | None]
"""The `user:NAME` or `group:NAME` of a user or group as the API gives it; None: it cannot be told."""


def labels_of(content: Json) -> tuple[str, ...] | None:
    """The labels that everybody sees; None: they were not given, or not all of them."""
    metadata = content.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if not isinstance(labels, dict) or not isinstance(labels.get("results"), list) or is_more(labels, limit=200):
        return None
    return visible_labels(results(labels))


def visible_labels(found: list[Json]) -> tuple[str, ...]:
    """Their names, sorted, without those that are a person's own (prefix `my`)."""
    return tuple(sorted({name for one in found if text_of(one, "prefix") != "my" and (name := text_of(one, "name"))}))


def restricted_to(content: Json, *, user: Named, group: Named) -> tuple[bool, Level | None]:
    """Whether a content tells its read restrictions in whole, and whom they let read (None: there are none)."""
    found = content.get("restrictions")
    read = found.get("read") if isinstance(found, dict) else None
    return level_of(read, user=user, group=group)


def level_of(restriction: Any, *, user: Named, group: Named) -> tuple[bool, Level | None]:
    """As `restricted_to`, of the restriction of one operation."""
    found = restriction.get("restrictions") if isinstance(restriction, dict) else None
    if not isinstance(found, dict):
        return False, None
    named: set[str] = set()
    there = 0
    for kind, name in (("user", user), ("group", group)):
        part = found.get(kind)
        if not isinstance(part, dict) or not isinstance(part.get("results"), list) or is_more(part, limit=_RESTRICTED_PAGE):
            return False, None
        told = number_of(part, "size")
        there += len(part["results"])
        if told is not None and told > len(part["results"]):
            return False, None
        named |= {reader for one in results(part) if (reader := name(one)) is not None}
    # Restricted to people whom nobody can name (deleted accounts) is restricted still.
    return True, frozenset(named) if there else None


def ask_restriction(rest: Rest, content_id: str, *, user: Named, group: Named) -> Level | None:
    """Whom a content's own read restrictions let read, all pages of them; None: there are none.

    Raises:
        NotThere: the content is not there.
    """
    named: set[str] = set()
    there = 0
    start = 0
    while True:
        page = rest.get(
            f"/rest/api/content/{content_id}/restriction/byOperation/read",
            {"expand": "restrictions.user,restrictions.group", "start": start, "limit": _RESTRICTED_PAGE},
            what=f"restrictions of {content_id}",
        )
        found = page.get("restrictions")
        parts = [found.get("user"), found.get("group")] if isinstance(found, dict) else [None, None]
        if not all(isinstance(part, dict) and isinstance(part.get("results"), list) for part in parts):
            return frozenset()  # an answer that we do not understand opens nothing
        for part, name in zip(parts, (user, group), strict=True):
            there += len(part["results"]) if isinstance(part, dict) else 0
            named |= {reader for one in results(part) if (reader := name(one)) is not None}
        # One number counts for both lists; the one that is at its end gives no more.
        if not any(is_more(part, limit=_RESTRICTED_PAGE) for part in parts):
            return frozenset(named) if there else None
        start += _RESTRICTED_PAGE


def restriction_or_nobody(rest: Rest, content_id: str, *, user: Named, group: Named) -> Level | None:
    """As `ask_restriction`; nobody where the site does not tell."""
    try:
        return ask_restriction(rest, content_id, user=user, group=group)
    except NotThere:
        return frozenset()


def quoted(text: str) -> str:
    """A text in CQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def changed_query(spaces: list[str], minutes: int) -> str:
    """CQL for what was changed in the last minutes.

    `now("-90m")` is the server's own clock: a written date would be read in the time zone of the account's profile
    (developer.atlassian.com/cloud/confluence/cql-functions). Newest first, so that what is edited meanwhile comes twice rather
    than slips through between two pages of results.
    """
    where = f"space in ({','.join(quoted(key) for key in spaces)}) and " if spaces else ""
    return f'{where}type in (page,blogpost,attachment) and lastmodified >= now("-{minutes}m") order by lastmodified desc'
