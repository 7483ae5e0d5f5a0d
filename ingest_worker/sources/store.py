"""What was seen at a source, stored: bytes or facts, a job and the note of it in one transaction. No network call in here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import exclusion, remote_items
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.documents import Observed
from ingest_worker.catalogue.erasures import ERASED
from ingest_worker.catalogue.moving import move_documents
from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.catalogue.source_state import still_takes
from ingest_worker.catalogue.sources import Source, ensure_audience
from ingest_worker.intake.keeping import Facts, Pushed, again_after_conflict, take_in
from ingest_worker.intake.packing import Body
from ingest_worker.sources.naming import facts_revision, fit_path, with_suffix
from ingest_worker.sources.protocol import Item
from shared.errors import PermanentError
from shared.instants import is_storable
from shared.text import clean_text

_ALL_FACTS = frozenset({"title", "url", "tags", "metadata", "readers", "source_modified", "media_type", "heading"})


class Resting(Exception):
    """A person paused the source, or took it out: nothing more is stored of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Where things of a source are stored: its row, the listing under way, and whether it tells who may read what."""

    source: Source
    listing: int
    permissions: bool
    max_attempts: int = 5
    bulk: bool = False

    @property
    def namespace_id(self) -> int:
        """The namespace of all of the source's documents."""
        if self.source.namespace_id is None:
            raise PermanentError(f"Source {self.source.name} has no namespace.", code="no_namespace")
        return self.source.namespace_id

    def readers(self, item: Item) -> tuple[str, ...] | None:
        """Who may read an item; None: whoever may read the source."""
        if not self.permissions or item.readers is None:
            return None
        return tuple(sorted({clean_text(reader) for reader in item.readers}))

    def facts(self, item: Item) -> str:
        """The revision of all that is said of an item."""
        return facts_revision(item, readers=self.readers(item), path=fit_path(item.path, item.key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What storing came to: the document, and whether a job was asked for."""

    document_id: uuid.UUID
    changed: bool


@again_after_conflict
def store_item(connection: Connection[Any], shelf: Shelf, item: Item, body: Body | None, known: KnownItem | None) -> Kept:
    """Store an item with its bytes, or (`body` None) what is said of bytes that are here.

    Raises:
        Resting: the source was paused or taken out.
        Conflict: its document is excluded, or its path or bytes were erased.
        NothingKept: no bytes of it are here.
    """
    wanted = fit_path(item.path, item.key)
    with connection.transaction():
        _must_take(connection, shelf)
        path = _own_path(connection, shelf, item, known)
        pushed = Pushed(
            namespace=shelf.source.namespace or "",
            path=path,
            content=None if body is None else body.content,
            sha256=b"" if body is None else body.sha256,
            size=0 if body is None else body.size,
            facts=_facts(shelf, item),
        )
        accepted = take_in(connection, shelf.source, shelf.namespace_id, pushed, max_attempts=shelf.max_attempts, bulk=shelf.bulk)
        remote_items.record_stored(
            connection,
            shelf.source.source_id,
            item.key,
            document_id=accepted.document_id,
            path=wanted,
            content=item.content if body is not None or (known is not None and known.content == item.content) else None,
            facts=shelf.facts(item),
            listing=shelf.listing,
        )
        if path != wanted and (known is None or known.path != wanted):
            _move(connection, shelf, {accepted.document_id: (wanted, item.key)})
    return Kept(document_id=accepted.document_id, changed=accepted.changed)


def _facts(shelf: Shelf, item: Item) -> Facts:
    return Facts(
        given=_ALL_FACTS,
        title=None if item.title is None else clean_text(item.title).strip() or None,
        url=None if item.url is None else clean_text(item.url),
        tags=tuple(sorted({clean_text(tag) for tag in item.tags})),
        metadata=item.metadata,
        readers=shelf.readers(item),
        source_modified=item.source_modified if item.source_modified is not None and is_storable(item.source_modified) else None,
        media_type=item.media_type,
        heading=tuple(clean_text(part) for part in item.heading if part.strip()),
    )


_HOLDER: LiteralString = """
    SELECT document_id FROM docwell.document
    WHERE source_id = %s AND namespace_id = %s AND path = %s AND state <> 'deleted'
"""


def _own_path(connection: Connection[Any], shelf: Shelf, item: Item, known: KnownItem | None) -> str:
    """Where the item's document stands; for a new one the first place of its own that nothing else holds."""
    if known is not None and known.document_path is not None:
        return known.document_path
    wanted = fit_path(item.path, item.key)
    for path in (wanted, with_suffix(wanted, item.key)):
        if connection.execute(_HOLDER, (shelf.source.source_id, shelf.namespace_id, path)).fetchone() is None:
            return path
    return with_suffix(wanted, item.key, sure=True)


@again_after_conflict
def move_items(connection: Connection[Any], shelf: Shelf, places: Mapping[uuid.UUID, tuple[str, str]]) -> int:
    """Move documents to the paths of their items (`{document: (path, key)}`), which may change places; returns how many moved.

    One whose place another document holds gets a suffix.

    Raises:
        Resting: the source was paused or taken out.
    """
    with connection.transaction():
        _must_take(connection, shelf)
        return _move(connection, shelf, places)


def _move(connection: Connection[Any], shelf: Shelf, places: Mapping[uuid.UUID, tuple[str, str]]) -> int:
    source_id = shelf.source.source_id
    moved = move_documents(connection, source_id, {one: Observed(name=path) for one, (path, _) in places.items()})
    left = {one: with_suffix(*place) for one, place in places.items() if one not in moved}
    return len(moved) + len(move_documents(connection, source_id, {one: Observed(name=path) for one, path in left.items()}))


@again_after_conflict
def settle_paths(connection: Connection[Any], shelf: Shelf) -> int:
    """Give documents with a suffix their own path where it has become free; returns how many moved."""
    with connection.transaction():
        _must_take(connection, shelf)
        free = remote_items.displaced(connection, shelf.source.source_id)
        return len(move_documents(connection, shelf.source.source_id, {one: Observed(name=path) for one, path in free.items()}))


_MAKE: LiteralString = """
    INSERT INTO docwell.document AS d (source_id, namespace_id, audience_id, path, title, url, tags, readers, state)
    VALUES (%(source)s, %(namespace)s, %(audience)s, %(path)s, %(title)s, %(url)s, %(tags)s, %(readers)s, 'skipped')
    ON CONFLICT (source_id, namespace_id, path) DO UPDATE SET path = d.path
    RETURNING document_id
"""


@again_after_conflict
def refuse_item(
    connection: Connection[Any],
    shelf: Shelf,
    item: Item,
    known: KnownItem | None,
    *,
    code: str,
    reason: str,
    retry_at: datetime | None = None,
) -> None:
    """Note that an item is not taken as it is: its document, made when it is new, is skipped with the reason.

    It is looked at again when it changes, and at `retry_at`.

    Of what was erased no name is kept: it gets no document.

    Raises:
        Resting: the source was paused or taken out.
    """
    with connection.transaction():
        _must_take(connection, shelf)
        document_id = known.document_id if known is not None else None
        if code not in {ERASED, "excluded"}:
            if document_id is None:
                document_id = _make(connection, shelf, item, known)
            exclusion.set_aside(connection, document_id, code=code, reason=reason)
        remote_items.record_refused(
            connection,
            shelf.source.source_id,
            item.key,
            document_id=document_id,
            path="" if code == ERASED else fit_path(item.path, item.key),
            content=item.content,
            facts=shelf.facts(item),
            listing=shelf.listing,
            code=code,
            error=reason,
            retry_at=retry_at,
        )


def _make(connection: Connection[Any], shelf: Shelf, item: Item, known: KnownItem | None) -> uuid.UUID:
    facts = _facts(shelf, item)
    restricted = shelf.source.readers is not None
    readers = shelf.source.readers if facts.readers is None else facts.readers
    values = {
        "source": shelf.source.source_id,
        "namespace": shelf.namespace_id,
        "audience": ensure_audience(connection, shelf.namespace_id, readers, restricted=restricted),
        "path": _own_path(connection, shelf, item, known),
        "title": facts.title,
        "url": facts.url,
        "tags": sorted({*shelf.source.tags, *facts.tags}),
        "readers": None if facts.readers is None else list(facts.readers),
    }
    row = connection.execute(_MAKE, values).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING gave no row")
    found: uuid.UUID = row[0]
    return found


@again_after_conflict
def delete_document(connection: Connection[Any], document_id: uuid.UUID, *, source: str) -> bool:
    """Take a document out of the index whose item is gone; False when it was out already."""
    try:
        return exclusion.remove(connection, document_id, reason=f"It is gone from source {source}.")
    except Unknown:  # it was erased meanwhile
        return False


def _must_take(connection: Connection[Any], shelf: Shelf) -> None:
    if not still_takes(connection, shelf.source.source_id):
        raise Resting
