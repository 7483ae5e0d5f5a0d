"""What a webhook's event says is to be looked at.

Cloud's bodies name no event (its address does) and hold the whole object; Data Center's name the event and hold ids alone. Ids
come as numbers or as texts, attachments alone or in a list. Whatever we do not understand is a reason to look, never a truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from ingest_worker.sources.confluence.items import ATTACHMENT
from ingest_worker.sources.confluence.rest import Json, text_of
from ingest_worker.sources.protocol import Event, Hint

_NOTHING: Final = Hint()
_IGNORED: Final = (
    "comment_",
    "user_",
    "group_",
    "page_children_reordered",
    "page_viewed",
    "blog_viewed",
    "attachment_viewed",
    "space_logo_updated",
    "space_viewed",
    "login",
    "logout",
    "search_performed",
    "label_created",
    "relation_",
    "theme_",
    "webhook_",
)
_WITH_ALL_BELOW: Final = ("moved", "trashed", "removed", "deleted", "restored", "permissions", "archived", "unarchived", "copied")
"""Events of a page after which what stands below it has another place, other readers, or is gone."""

_ATTACHMENT_TYPES: Final = frozenset(("attachment",))
_PAGE_TYPES: Final = frozenset(("page", "blogpost", "blog", "live", ""))


def interpret(event: Event) -> Hint:
    """What to look at."""
    try:
        body = orjson.loads(event.body)
    except orjson.JSONDecodeError:
        return Hint(changed=True)
    if not isinstance(body, dict):
        return Hint(changed=True)
    kind = _kind(event.kind, body)
    if kind.startswith(_IGNORED):
        return _NOTHING
    if kind.startswith("space_") or (not kind and isinstance(body.get("space"), dict)):
        return Hint(everything=True)
    if kind.startswith("label_"):
        labelled = _ids(body, "labeled", "labelled", "page", "blog", "blogpost", "content", "attachment")
        return Hint(keys=labelled) if labelled else Hint(changed=True)
    if kind.startswith("attachment") or (not kind and ("attachment" in body or "attachments" in body)):
        return _attachments(body)
    pages = _ids(body, "page", "blog", "blogpost", "content")
    if pages:
        return Hint(keys=pages, trees=pages if _concerns_all_below(kind, body) else ())
    if kind.startswith("content_") and isinstance(body.get("content"), dict):
        return _NOTHING if "permissions" not in kind else Hint(everything=True)  # a property, or what an app keeps
    if "permissions" in kind:
        return Hint(everything=True)
    if not kind and ("comment" in body or body.get("test") is True):
        return _NOTHING
    return Hint(changed=True)


def _kind(told: str, body: Json) -> str:
    """The event's name, lower case; one of Forge (`avi:confluence:updated:page`) as `page_updated`."""
    name = (told or text_of(body, "event") or text_of(body, "eventType") or text_of(body, "webhookEvent")).strip().lower()
    if name.startswith("avi:confluence:"):
        what, _, of = name.removeprefix("avi:confluence:").partition(":")
        return f"{of}_{what}"
    return name


def _concerns_all_below(kind: str, body: Json) -> bool:
    if not kind:  # nobody said what happened; an update says so by its trigger
        return "updateTrigger" not in body
    return any(word in kind for word in _WITH_ALL_BELOW)


def _attachments(body: Json) -> Hint:
    """Those that are named; where none is, what has changed. Their page is not looked at for them."""
    found = tuple(dict.fromkeys(attachment_key(one) for one in _named(body, "attachment", "attachments")))
    return Hint(keys=tuple(key for key in found if key)) if any(found) else Hint(changed=True)


def attachment_key(thing: Json) -> str:
    """An attachment's key; empty where it has no id."""
    found = text_of(thing, "idAsString") or text_of(thing, "id")
    return found if not found or found.startswith(ATTACHMENT) else ATTACHMENT + found


def _ids(body: Json, *names: str) -> tuple[str, ...]:
    """The keys of the objects under these names that are pages, blog posts or attachments."""
    found: dict[str, None] = {}
    for thing in _named(body, *names):
        kind = (text_of(thing, "contentType") or text_of(thing, "type")).lower()
        if kind in _ATTACHMENT_TYPES:
            found[attachment_key(thing)] = None
        elif kind in _PAGE_TYPES:
            found[text_of(thing, "idAsString") or text_of(thing, "id")] = None
    found.pop("", None)
    return tuple(found)


def _named(body: Json, *names: str) -> Iterator[Json]:
    for name in names:
        there: Any = body.get(name)
        for thing in there if isinstance(there, list) else [there]:
            if isinstance(thing, dict):
                yield thing
            elif isinstance(thing, int | str) and not isinstance(thing, bool) and str(thing).isdigit():
                yield {"id": thing}
