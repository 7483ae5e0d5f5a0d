"""Delta queries of a drive, and the cursor that says how far each drive has been followed.

Source: learn.microsoft.com/graph/api/driveitem-delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import orjson

from ingest_worker.sources.protocol import CursorExpired
from ingest_worker.sources.sharepoint.answers import ResyncRequired
from ingest_worker.sources.sharepoint.client import Graph, Json, link_of, values_of
from ingest_worker.sources.sharepoint.drives import Drive
from ingest_worker.sources.sharepoint.tree import Known
from shared.errors import TransientError

SHARING = ("deltashowremovedasdeleted", "deltatraversepermissiongaps", "deltashowsharingchanges", "hierarchicalsharing")
"""The first two have to come with the third. With the fourth the facet `shared` stands only on the root and on what has
permissions of its own, so that its absence tells that they are inherited."""

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. `inheriting`: without `shared` an item has its folder's permissions. `following` leads to the next page, else
    `delta` to what changes from now on."""

    items: list[Json]
    inheriting: bool
    following: str | None
    delta: str | None


def start(drive: Drive) -> str:
    """Where the listing of a whole drive begins."""
    return f"/drives/{quote(drive.drive_id, safe='!')}/root/delta"


def latest(graph: Graph, drive: Drive, *, sharing: bool) -> str:
    """The link to all that changes from now on."""
    page = _page(graph, f"{start(drive)}?token=latest", drive, sharing=sharing)
    if page.delta is None:
        raise TransientError(f"The answer for the changes of {drive.name} has no link. It is tried again.", code="bad_answer")
    return page.delta


def pages(graph: Graph, link: str, drive: Drive, *, sharing: bool, proven: bool = False) -> Iterator[Page]:
    """The pages from a link on, up to the one with the next delta link. `proven`: an earlier page was `inheriting`.

    Raises:
        CursorExpired: Graph does not know the link's token any more.
    """
    following: str | None = link
    while following is not None:
        page = _page(graph, following, drive, sharing=sharing)
        # The root comes once.
        proven = proven or page.inheriting
        page = replace(page, inheriting=proven)
        if page.following is None and page.delta is None:
            raise TransientError(f"A page of {drive.name} leads nowhere. It is tried again.", code="bad_answer")
        yield page
        following = page.following


def _page(graph: Graph, link: str, drive: Drive, *, sharing: bool) -> Page:
    what = f"the changes of library {drive.name}"
    try:
        answer, applied = graph.get_page(link, what=what, prefer=SHARING if sharing else ())
    except ResyncRequired as error:
        # The instructions of both kinds are the same for who has no changes of his own to upload: list all, and compare.
        raise CursorExpired(str(error), code=error.graph_code or error.code) from error
    items = values_of(answer, what=what)
    # Some answers have no facet `shared` at all (it is left out of SharePoint's at times): only a root that has one, or the
    # answer's own word, proves that a missing one means something.
    inheriting = sharing and ("hierarchicalsharing" in applied or any("root" in item and "shared" in item for item in items))
    return Page(
        items=items,
        inheriting=inheriting,
        following=link_of(answer, "@odata.nextLink"),
        delta=link_of(answer, "@odata.deltaLink"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How far one drive has been followed: a delta link, or a next link within changes; and what its folders were.

    `listing` is the next page of a listing that is not at its end; `link` is then the delta link of before it began. `proven`
    goes with it: see `pages`.
    """

    link: str
    known: Known
    listing: str | None = None
    proven: bool = False


def to_cursor(followed: Mapping[str, Followed]) -> str:
    """One text for all drives, by id."""
    drives = {
        drive_id: {"link": one.link, "folders": one.known.to_text()}
        | ({} if one.listing is None else {"listing": one.listing, "proven": one.proven})
        for drive_id, one in sorted(followed.items())
    }
    return orjson.dumps({"version": _VERSION, "drives": drives}).decode()


def from_cursor(cursor: str) -> dict[str, Followed]:
    """Read it again.

    Raises:
        CursorExpired: it was made by another version, or is no cursor.
    """
    try:
        found: Any = orjson.loads(cursor)
        followed = {
            drive_id: Followed(
                link=str(one["link"]),
                known=Known.from_text(one["folders"]),
                listing=one.get("listing"),
                proven=bool(one.get("proven")),
            )
            for drive_id, one in found["drives"].items()
        }
        version = found["version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CursorExpired(
            f"The stored cursor cannot be read ({error}): everything is listed again.", code="bad_cursor"
        ) from error
    if version != _VERSION:
        raise CursorExpired(f"The stored cursor has version {version}: everything is listed again.", code="bad_cursor")
    return followed
