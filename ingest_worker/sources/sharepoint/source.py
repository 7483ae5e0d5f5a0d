"""SharePoint as a source: see `ingest_worker/sources/protocol.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.protocol import Batch, CursorExpired, Event, Failure, Hint, Item, concerns_one
from ingest_worker.sources.sharepoint import delta, subscriptions
from ingest_worker.sources.sharepoint import items as graph_items
from ingest_worker.sources.sharepoint.access import Access
from ingest_worker.sources.sharepoint.answers import GraphRefused, NotThere
from ingest_worker.sources.sharepoint.client import Graph, Json
from ingest_worker.sources.sharepoint.delta import Followed
from ingest_worker.sources.sharepoint.drives import Drive, find_drives
from ingest_worker.sources.sharepoint.tree import Known
from ingest_worker.sources.sharepoint.walk import Walk
from shared.errors import PermanentError, TransientError
from shared.source_settings import SharePointSettings

_WHOLE = "root"
"""Stands for an item's id where a whole drive is meant."""

_CURSOR_PAGES = 5
"""After so many pages of changes a cursor is given, so that a break costs no more. Not after each: it tells of each folder."""


def open_source(settings: SharePointSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> SharePointSource:
    """The source of these settings; nothing is asked yet. `client` stays the caller's, `clock` tells the time in UTC."""
    return SharePointSource(settings, client=client, clock=clock)


class SharePointSource:
    """Drives of SharePoint or OneDrive. Implements `Source`, `Listens`, `Subscribes`, `Trees`, `Checks` and `ReadsAhead`."""

    reads_at_once = 4

    def __init__(self, settings: SharePointSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._graph = Graph(settings, client=client, clock=clock)
        self._subscriptions = subscriptions.Subscriptions(self._graph, settings)
        self._drives: tuple[Drive, ...] | None = None

    def everything(self) -> Iterator[Batch]:
        """All documents of all drives. The last cursor leads to all that changed since the listing began; those before it go on
        with the listing itself.

        A listing's own delta link would not do: what was listed and then deleted while it went on is told by none of its pages,
        and not by that link either.
        """
        followed: dict[str, Followed] = {}
        closed: list[PermanentError] = []
        for drive in self._find_drives():
            yield from self._of_one(drive, self._list(drive, followed), closed)
        yield Batch(cursor=delta.to_cursor(followed))

    def changes(self, cursor: str) -> Iterator[Batch]:
        """What changed in each drive; a drive that is new, or whose listing broke off, is listed.

        Raises:
            CursorExpired: Graph has forgotten where we were, a drive is gone, a folder is gone that was not empty, or the name or
                permissions of a whole library changed.
        """
        followed = delta.from_cursor(cursor)
        drives = self._find_drives()
        if followed.keys() - {drive.drive_id for drive in drives}:
            raise CursorExpired("A library that was followed is not there any more: everything is listed again.", code="no_drive")
        closed: list[PermanentError] = []
        for drive in drives:
            is_listed = drive.drive_id in followed and followed[drive.drive_id].listing is None
            found = self._follow(drive, followed) if is_listed else self._list(drive, followed)
            yield from self._of_one(drive, found, closed)
            yield Batch(cursor=delta.to_cursor(followed))

    def below(self, key: str) -> Iterator[Batch]:
        """See `Trees`: a folder's documents, at any depth. Of a whole drive only whether it can be read again: what it has comes
        with the changes."""
        drive, item_id = self._split(key)
        if drive is None:
            return
        if item_id == _WHOLE:
            delta.latest(self._graph, drive, sharing=self._settings.permissions)
            return
        try:
            folder = self._graph.get(
                f"{_item_path(drive, item_id)}?$select={graph_items.SELECT}", what=f"a folder of {drive.name}"
            )
        except NotThere:
            return
        walk = Walk(self._graph, drive, Known(), self._access(drive), listing=True)
        walk.take([folder], inheriting=False)
        yield from walk.below([item_id])

    def _of_one(self, drive: Drive, batches: Iterator[Batch], closed: list[PermanentError]) -> Iterator[Batch]:
        """The batches of one drive of several; that it may not be read is no reason to stop the others. Where it was followed to
        stays in the cursor. `closed` are those of before; when all are, it is the source's fault."""
        try:
            yield from batches
        except PermanentError as error:
            closed.append(error)
            if not concerns_one(error) or len(closed) == len(self._drives or ()):
                raise
            yield Batch(failed=[Failure(key=f"{drive.drive_id}/{_WHOLE}", path=drive.name, error=error, below=True)])

    def find(self, key: str) -> Item | None:
        """One document as it is now."""
        drive, item_id = self._split(key)
        if drive is None:
            return None
        path = _item_path(drive, item_id)
        try:
            one = self._graph.get(f"{path}?$select={graph_items.SELECT}", what=f"item {item_id} of {drive.name}")
        except NotThere:
            return None
        if "deleted" in one or not graph_items.is_document(one):
            return None
        below = self._below(drive, one)
        if below is None:
            return None
        access = self._access(drive)
        readers = None if access is None else access.of_items([item_id])[item_id]
        if isinstance(readers, PermanentError | TransientError):
            raise readers
        return graph_items.to_item(one, drive=drive, below=below, readers=readers)

    def read(self, item: Item, *, max_bytes: int) -> bytes:
        """The bytes of a document as they are now.

        Raises:
            Gone: it is not there any more.
            Refused: too large, without bytes, no file (a notebook, a shortcut), malware, or not to be downloaded.
        """
        drive, item_id = self._split(item.key)
        if drive is None:
            raise Gone(f"The library of {item.path} is none of source {self._settings.name} any more.", code="gone")
        path = _item_path(drive, item_id)
        try:
            one = self._graph.get(path, what=item.path)
            self._check_takeable(item, one, max_bytes)
            link = one.get("@microsoft.graph.downloadUrl")
            if isinstance(link, str) and link:
                return self._graph.download(link, what=item.path, max_bytes=max_bytes)
            return self._graph.content(f"{path}/content", what=item.path, max_bytes=max_bytes)
        except NotThere as error:
            raise Gone(f"{item.path} is not there any more.", code="gone") from error
        except GraphRefused as error:
            if error.status != 403:
                raise
            raise Refused(f"{item.path} may not be downloaded. {error}", code="forbidden") from error

    def interpret(self, event: Event) -> Hint:
        """A notification says that something changed, a lifecycle event that something may have."""
        hint, renew = subscriptions.interpret(event, self._settings)
        if renew:
            self._subscriptions.renew_soon()
        return hint

    def maintain(self, state: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
        """One subscription for each drive while `public_url` is set; without it none."""
        drives = () if self._settings.public_url is None else self._find_drives()
        return self._subscriptions.maintain(state, drives, now)

    def check(self) -> None:
        """See `Checks`: the drives are there, their changes may be followed and the permissions on them read."""
        for drive in self._find_drives():
            delta.latest(self._graph, drive, sharing=self._settings.permissions)
            access = self._access(drive)
            if access is not None:
                root = self._graph.get(f"/drives/{quote(drive.drive_id, safe='!')}/root?$select=id", what=f"library {drive.name}")
                readers = access.of_folder(str(root.get("id")))
                if isinstance(readers, PermanentError | TransientError):
                    raise readers

    def close(self) -> None:
        """Nothing is held: the client is the caller's."""

    def _list(self, drive: Drive, followed: dict[str, Followed]) -> Iterator[Batch]:
        sharing = self._settings.permissions
        before = followed.get(drive.drive_id)
        if before is None:
            link, known = delta.latest(self._graph, drive, sharing=sharing), Known()
            pages = delta.pages(self._graph, delta.start(drive), drive, sharing=sharing)
        else:
            link, known = before.link, before.known
            pages = delta.pages(self._graph, before.listing or delta.start(drive), drive, sharing=sharing, proven=before.proven)
        walk = Walk(self._graph, drive, known, self._access(drive), listing=True)
        for number, page in enumerate(pages, start=1):
            taken = walk.take(page.items, inheriting=page.inheriting)
            yield taken.batch
            yield from walk.below(taken.again)
            followed[drive.drive_id] = Followed(link=link, known=known, listing=page.following, proven=page.inheriting)
            if page.following is not None and number % _CURSOR_PAGES == 0:
                yield Batch(cursor=delta.to_cursor(followed))

    def _follow(self, drive: Drive, followed: dict[str, Followed]) -> Iterator[Batch]:
        before = followed[drive.drive_id]
        walk = Walk(self._graph, drive, before.known, self._access(drive), listing=False)
        for number, page in enumerate(delta.pages(self._graph, before.link, drive, sharing=self._settings.permissions), start=1):
            # Graph says that `shared` stands on what "explicitly has sharing changes": among changes that may mean newly shared
            # only, so what has permissions of its own could look as if it inherited. Each one is asked for.
            taken = walk.take(page.items, inheriting=False)
            yield taken.batch
            yield from walk.below(taken.again)
            link = page.following or page.delta
            if page.following is None:
                walk.check()
            if link is not None:
                followed[drive.drive_id] = Followed(link=link, known=walk.known)
                if page.following is not None and number % _CURSOR_PAGES == 0 and walk.settled:
                    yield Batch(cursor=delta.to_cursor(followed))

    def _access(self, drive: Drive) -> Access | None:
        if not self._settings.permissions:
            return None
        return Access(self._graph, drive, organization_links=self._settings.organization_links)

    def _find_drives(self) -> tuple[Drive, ...]:
        self._drives = find_drives(self._graph, self._settings)
        return self._drives

    def _split(self, key: str) -> tuple[Drive | None, str]:
        drive_id, _, item_id = key.partition("/")
        drives = self._find_drives() if self._drives is None else self._drives
        return next((drive for drive in drives if drive.drive_id == drive_id), None), item_id

    def _below(self, drive: Drive, one: Json) -> str | None:
        """The path of an item that was asked for by itself. It is made of the names of the folders above, as everywhere.

        Raises:
            PermanentError, TransientError: one of these may not be seen.
        """
        taken = Walk(self._graph, drive, Known(), None, listing=True).take([one], inheriting=False)
        for failure in taken.batch.failed:
            raise failure.error
        return next((item.path.removeprefix(f"{drive.name}/") for item in taken.batch.items), None)

    def _check_takeable(self, item: Item, one: Json, max_bytes: int) -> None:
        if "deleted" in one:
            raise Gone(f"{item.path} is not there any more.", code="gone")
        reason = graph_items.left_out(one)
        if reason is not None:
            code, words = reason
            raise Refused(f"{item.path} {words}.", code=code)
        size = one.get("size")
        if isinstance(size, int) and size > max_bytes:
            raise Refused(
                f"{item.path} has {size:,} bytes, the limit is {max_bytes:,}. Raise max_bytes of the source or DOCWELL_MAX_BYTES "
                "to take it.",
                code="too_large",
                size=size,
            )
        if "file" not in one:
            raise PermanentError(f"{item.path} is no file any more.", code="not_a_file")


def _item_path(drive: Drive, item_id: str) -> str:
    return f"/drives/{quote(drive.drive_id, safe='!')}/items/{quote(item_id, safe='!')}"
