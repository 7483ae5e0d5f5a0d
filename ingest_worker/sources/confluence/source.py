"""A Confluence site as a source of documents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import httpx
import structlog

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.confluence import events
from ingest_worker.sources.confluence.cloud import Cloud
from ingest_worker.sources.confluence.data_center import DataCenter
from ingest_worker.sources.confluence.items import ATTACHMENT, attachment_item, folder_of, name_of, page_item
from ingest_worker.sources.confluence.model import BLOG, PAGE, Attachment, Node, Page, Space, Wiki
from ingest_worker.sources.confluence.rest import NotThere, Rest
from ingest_worker.sources.confluence.storage import People, to_markdown
from ingest_worker.sources.confluence.surroundings import LISTING_KEEP, Surroundings
from ingest_worker.sources.protocol import Batch, CursorExpired, Event, Failure, Hint, Item, concerns_one
from shared.errors import DocwellError, PermanentError
from shared.source_settings import ConfluenceSettings

OVERLAP = timedelta(minutes=15)
"""How far before the cursor changes are asked for: the search's index lags behind, and its times have minutes at best."""

OLDEST_CURSOR = timedelta(days=30)
"""After that everything is looked at: a search that far back costs as much, and tells neither deletions nor permissions."""

SPACE = "space/"
FILES = "files/"
"""What a `Failure` of a whole space, or of a page's attachments, is called: this and the space's key, or the page's id."""

_AHEAD = timedelta(hours=1)
_PAGES_AT_ONCE = 50
_MOST_ALONE = 10
"""When so many pages fail one by one, and none comes, it is not for them."""

log = structlog.get_logger(__name__)


class ConfluenceSource:
    """What an account sees of a site, within the source's settings. The client belongs to the caller.

    Beside the protocol `Source` it implements `Listens`, `Trees`, `Checks` and `ReadsAhead`.
    """

    reads_at_once = 4

    def __init__(self, settings: ConfluenceSettings, wiki: Wiki, rest: Rest, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._wiki = wiki
        self._rest = rest
        self._clock = clock
        self._around = Surroundings(settings, wiki, clock)

    def everything(self) -> Iterator[Batch]:
        """See `Source`. From the database, not from the search; what has no place in the settings does not come."""
        began = self._clock()
        self._around.forget(keep=LISTING_KEEP)
        self._wiki.check_account()
        with self._rest.waiting_out():
            spaces = self._around.spaces()
            for space in spaces:
                try:
                    # A space that is hidden meanwhile breaks the listing off: it is no reason to take its pages for gone.
                    yield from self._space_batches(space)
                except PermanentError as error:
                    if not concerns_one(error) or len(spaces) < 2:
                        raise
                    yield Batch(failed=[Failure(key=SPACE + space.key, path=name_of(space.key), error=error, below=True)])
        yield Batch(cursor=_cursor(began))

    def _space_batches(self, space: Space) -> Iterator[Batch]:
        for kind in (PAGE, BLOG) if self._settings.blogs else (PAGE,):
            for pages in self._wiki.pages(space, kind):
                yield from self._batches(pages)

    def changes(self, cursor: str) -> Iterator[Batch]:
        """See `Source`. What the search finds as modified: neither deletions nor permissions, which `everything` tells."""
        began = self._clock()
        minutes = _minutes_since(cursor, began)
        self._around.forget()
        self._wiki.check_account()
        keys = [space.key for space in self._around.spaces()] if self._settings.spaces else []
        seen: set[str] = set()
        for found in self._wiki.changed(keys, minutes):
            fresh = [one for one in dict.fromkeys(found.pages) if one not in seen]
            files = [one for one in dict.fromkeys(found.attachments) if one not in seen] if self._settings.attachments else []
            seen.update(fresh, files)
            for first in range(0, len(fresh), _PAGES_AT_ONCE):
                yield from self._items_of(self._pages_by_id(fresh[first : first + _PAGES_AT_ONCE]))
            yield from self._items_of(self._found(key) for key in files)
        yield Batch(cursor=_cursor(began))

    def below(self, key: str) -> Iterator[Batch]:
        """See `Trees`: a page's attachments, and the pages below it with theirs; or what could not be listed, by its mark."""
        if key.startswith(SPACE):
            for space in self._around.spaces():
                if space.key == key.removeprefix(SPACE):
                    yield from self._space_batches(space)
            return
        only_files = key.startswith(FILES)
        key = key.removeprefix(FILES)
        if not (key.isascii() and key.isdigit()):
            return
        for page in self._wiki.pages_by_id([key]):
            yield from self._files([page])
            if only_files:
                continue
            for pages in self._wiki.below(page):
                yield from self._batches(pages)

    def find(self, key: str) -> Item | None:
        """See `Source`."""
        item = self._find_attachment(key) if key.startswith(ATTACHMENT) else self._find_page(key)
        if item is None:
            # Who is not known any more sees little or nothing, and must not take that for deletions.
            self._wiki.check_account()
        return item

    def read(self, item: Item, *, max_bytes: int) -> bytes:
        """See `Source`. A page as Markdown, under its title; an attachment as it is."""
        if item.key.startswith(ATTACHMENT):
            return self._read_attachment(item, max_bytes)
        kind = item.metadata.get("type")
        body = self._wiki.body(item.key, kind if kind in {PAGE, BLOG} else None)
        if body is None:
            raise Gone(f"The page {item.title!r} ({item.key}) is not in Confluence any more.", code="gone")
        text = to_markdown(body.storage, title=item.title or "", people=self._people(body.storage)).encode()
        if len(text) > max_bytes:
            raise Refused(
                f"The page {item.title!r} has {len(text):,} bytes as text, the limit is {max_bytes:,}. Raise max_bytes of source"
                f" {self._settings.name}, or DOCWELL_MAX_BYTES, to take it.",
                code="too_large",
                size=len(text),
            )
        return text

    def interpret(self, event: Event) -> Hint:
        """See `Listens`. What was remembered of permissions and places is not believed after an event."""
        hint = events.interpret(event)
        if hint != Hint():
            self._around.forget()
        if self._settings.attachments:
            return hint
        return Hint(
            keys=tuple(key for key in hint.keys if not key.startswith(ATTACHMENT)),
            trees=hint.trees,
            changed=hint.changed,
            everything=hint.everything,
        )

    def check(self) -> None:
        """See `Checks`: the account is known, and sees spaces that the settings mean."""
        self._wiki.check_account()
        self._around.forget()
        self._around.spaces()

    def close(self) -> None:
        """See `Source`. The client is the caller's."""

    def _batches(self, pages: Sequence[Page]) -> Iterator[Batch]:
        for page in pages:
            self._around.remember(page)
        yield from self._items_of(pages)
        yield from self._files(pages)

    def _items_of(self, found: Iterable[Page | Item | Failure | None]) -> Iterator[Batch]:
        """These as one batch. What cannot be told of one of them says nothing of the others."""
        items: list[Item] = []
        failed: list[Failure] = []
        for one in found:
            made = self._told(one) if isinstance(one, Page) else one
            if isinstance(made, Item):
                items.append(made)
            elif isinstance(made, Failure):
                failed.append(made)
        if items or failed:
            yield Batch(items=items, failed=failed)

    def _told(self, page: Page) -> Item | Failure | None:
        try:
            return self._page_item(page)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            return Failure(key=page.page_id, path=f"{self._place(page)}.md", error=error)

    def _found(self, key: str) -> Item | Failure | None:
        try:
            return self.find(key)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            return Failure(key=key, error=error)

    def _pages_by_id(self, ids: Sequence[str]) -> Iterator[Page | Failure]:
        """The pages; when not all can be had together, those that can, and which cannot."""
        waiting, alone, some_came = [list(ids)], 0, False
        while waiting:
            wanted = waiting.pop()
            try:
                found = self._wiki.pages_by_id(wanted)
            except DocwellError as error:
                alone += len(wanted) == 1
                if not concerns_one(error) or (alone >= _MOST_ALONE and not some_came):
                    raise
                if len(wanted) == 1:
                    yield Failure(key=wanted[0], error=error)
                else:
                    half = len(wanted) // 2
                    waiting += [wanted[half:], wanted[:half]]
            else:
                some_came = True
                yield from found

    def _place(self, page: Page) -> str:
        """Where what is attached to a page stands, as far as that is known."""
        space = self._space(page)
        if space is None:
            return ""
        above = self._around.above(page)
        if any(node.trouble is not None for node in above):
            return name_of(space.key)
        return folder_of(page, space=space, above=above)

    def _files(self, pages: Sequence[Page]) -> Iterator[Batch]:
        if not self._settings.attachments:
            return
        for page in pages:
            if page.has_attachments:
                try:
                    for files in self._wiki.attachments(page):
                        found = [item for one in files if (item := self._attachment_item(one, page)) is not None]
                        if found:
                            yield Batch(items=found)
                except NotThere:  # the page went meanwhile
                    continue
                except DocwellError as error:
                    if not concerns_one(error):
                        raise
                    place = self._place(page)
                    yield Batch(failed=[Failure(key=FILES + page.page_id, path=place, error=error, below=True, partly=True)])

    def _find_page(self, key: str) -> Item | None:
        if not (key.isascii() and key.isdigit()):
            return None
        found = self._wiki.pages_by_id([key])
        return self._page_item(found[0]) if found else None

    def _find_attachment(self, key: str) -> Item | None:
        attachment = self._wiki.attachment(key) if self._settings.attachments and key.isalnum() else None
        if attachment is None:
            return None
        found = self._wiki.pages_by_id([attachment.page_id])
        return self._attachment_item(attachment, found[0]) if found else None

    def _page_item(self, page: Page) -> Item | None:
        space = self._space(page)
        if space is None:
            return None
        above, readers = self._surroundings(page, space)
        return page_item(page, space=space, above=above, readers=readers, base=self._settings.base_url)

    def _attachment_item(self, attachment: Attachment, page: Page) -> Item | None:
        space = self._space(page)
        if space is None:
            return None
        above, readers = self._surroundings(page, space)
        return attachment_item(attachment, page, space=space, above=above, readers=readers, base=self._settings.base_url)

    def _surroundings(self, page: Page, space: Space) -> tuple[tuple[Node, ...], tuple[str, ...] | None]:
        """What a page stands under, and who may read it.

        Raises:
            DocwellError: it, or something above it, does not tell all that this is made of.
        """
        above = self._around.above(page)
        for trouble in (page.trouble, *(node.trouble for node in above)):
            if trouble is not None:
                raise trouble
        return above, self._around.readers(page, space, above)

    def _space(self, page: Page) -> Space | None:
        if page.kind == BLOG and not self._settings.blogs:
            return None
        return self._around.space(page.space)

    def _read_attachment(self, item: Item, max_bytes: int) -> bytes:
        if item.size is not None and item.size > max_bytes:
            raise Refused(
                f"{item.title!r} has {item.size:,} bytes, the limit is {max_bytes:,}. Raise max_bytes of source"
                f" {self._settings.name}, or DOCWELL_MAX_BYTES, to take it.",
                code="too_large",
                size=item.size,
            )
        attachment = self._wiki.attachment(item.key)
        data = None if attachment is None else self._wiki.download(attachment, max_bytes=max_bytes)
        if data is None:
            raise Gone(f"The attachment {item.title!r} ({item.key}) is not in Confluence any more.", code="gone")
        return data

    def _people(self, storage: str) -> People:
        try:
            return self._around.people(storage)
        except PermanentError as error:
            # A page without the names of those whom it mentions is better than no page.
            log.warning("confluence_names_unknown", source=self._settings.name, error=str(error))
            return {}


def open_source(settings: ConfluenceSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> ConfluenceSource:
    """The source of these settings. Nothing is asked before it is used."""
    rest = Rest(settings, client=client, clock=clock)
    make = Cloud if settings.deployment == "cloud" else DataCenter
    return ConfluenceSource(settings, make(rest, permissions=settings.permissions), rest, clock)


def _cursor(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _minutes_since(cursor: str, now: datetime) -> int:
    try:
        since = datetime.fromisoformat(cursor)
    except ValueError as error:
        raise CursorExpired(f"{cursor!r} is no cursor of Confluence.", code="cursor") from error
    if since.tzinfo is None or since > now + _AHEAD or now - since > OLDEST_CURSOR:
        raise CursorExpired(f"The cursor {cursor} is too old, or the clock was set back.", code="cursor")
    return math.ceil((max(now - since, timedelta()) + OVERLAP) / timedelta(minutes=1))
