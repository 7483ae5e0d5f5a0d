"""Erasure: a document and all that was made of it goes at once, its place and its bytes are kept out, and a receipt says so.

Bytes are kept out wherever they are, so other documents that have the same lose them too. Nothing is published while an erasure
is under way: a publisher reads the table of erased bytes when it holds its document, the erasure holds that table alone. So
either the publisher is done, and what it published goes; or it comes afterwards, and sees that its bytes were erased.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection, errors

from ingest_worker.catalogue import caption_erasing, chunks, contexts, deliveries, erasing, erasures, vector_cache
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.erasures import Place
from ingest_worker.catalogue.listing import unknown_document
from ingest_worker.enrich import again
from ingest_worker.enrich.caption_again import ask_captions
from ingest_worker.intake.read import Gone, read_bytes
from ingest_worker.jobs import table as jobs
from ingest_worker.publish import take_out
from shared.errors import DocwellError

# Whoever has an empty file would lose it.
_EMPTY = hashlib.sha256(b"").digest()

_ATTEMPTS = 3
"""An erasure and a publisher may meet on documents that have the same bytes; the loser begins again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """How much was removed, of other documents with the same bytes too: rows of each kind.

    Jobs, the size of what was pushed (bytes), and passages in the usage log are those of the document itself. Deliveries of the
    webhook stay as bare ids, without the document's name and bytes; of events of a source that name it only the hash stays.
    """

    versions: int
    chunks: int
    vectors: int
    keyword_rows: int
    jobs: int
    pushed_bytes: int
    usage_rows: int
    contexts: int
    deliveries: int
    captions: int
    thumbnails: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """What is kept out from now on: whatever stands at the document's place, and these bytes at any place."""

    source: str
    namespace: str
    path: str
    sha256: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another document that had the same bytes.

    `what` became of it: `withdrawn`, since these are its bytes now; `old_version_removed`; or `read_again`, since it served
    these bytes though it has newer ones.
    """

    document_id: uuid.UUID
    source: str
    namespace: str
    path: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Chunks that stay, since other documents hold the same passages."""

    chunks: int
    documents: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an erasure did. `file_remains`: the file lies in its folder still; None where it cannot be known."""

    erasure_id: uuid.UUID
    erased_at: datetime
    document: Place
    removed: Removed
    blocked: Blocked
    others: tuple[Other, ...]
    kept: Kept
    file_remains: bool | None
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an erasure would come to: the document, and the other ones that have the same bytes."""

    document: Place
    others: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    """The file as it lies there now: its sha256, when it can be read."""

    sha256: bytes | None
    remains: bool | None


def preview(connection: Connection[Any], document_id: uuid.UUID, *, max_bytes: int) -> Preview:
    """What a person should know before the erasure.

    Raises:
        Unknown: there is no such document.
    """
    present = _look(connection, document_id, max_bytes)
    others = erasing.documents_with(connection, _digests(connection, document_id, present)) - {document_id}
    return Preview(document=_place(connection, document_id), others=tuple(erasing.places(connection, others)))


def erase(connection: Connection[Any], document_id: uuid.UUID, *, max_bytes: int, max_attempts: int = 5) -> Receipt:
    """Remove a document with all its versions, and keep its place and its bytes out, in one transaction.

    `vacuum` comes afterwards. The caller wakes workers for `Receipt.queued` jobs. No file is touched.

    Raises:
        Unknown: there is no such document.
    """
    present = _look(connection, document_id, max_bytes)
    for attempt in range(_ATTEMPTS):
        try:
            with connection.transaction():
                return _erase(connection, document_id, present, max_attempts)
        except errors.DeadlockDetected:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _look(connection: Connection[Any], document_id: uuid.UUID, max_bytes: int) -> _Present:
    """The file may have changed since it was read last, or have been excluded: its bytes are kept out too."""
    document = catalogue.for_job(connection, document_id)
    if document is None:
        raise unknown_document(str(document_id))
    if document.source_type not in {"folder", "manual"}:
        return _Present(sha256=None, remains=None)
    try:
        return _Present(sha256=read_bytes(connection, document, max_bytes=max_bytes).sha256, remains=True)
    except Gone:
        return _Present(sha256=None, remains=False)
    except DocwellError:
        return _Present(sha256=None, remains=None)


def _place(connection: Connection[Any], document_id: uuid.UUID) -> Place:
    found = erasing.places(connection, [document_id])
    if not found:
        raise unknown_document(str(document_id))
    return found[0]


def _digests(connection: Connection[Any], document_id: uuid.UUID, present: _Present) -> set[bytes]:
    now = set() if present.sha256 is None else {present.sha256}
    return (erasing.digests_of(connection, document_id) | now) - {_EMPTY}


def _erase(connection: Connection[Any], document_id: uuid.UUID, present: _Present, max_attempts: int) -> Receipt:
    digests = _digests(connection, document_id, present)
    held = erasing.hold(connection, {document_id, *erasing.documents_with(connection, digests)})
    if document_id not in held:
        raise unknown_document(str(document_id))
    # What was published while we waited is seen now.
    digests = _digests(connection, document_id, present)
    sharing = erasing.documents_with(connection, digests) - {document_id}
    erasing.hold(connection, sharing - held)

    place = _place(connection, document_id)
    erasure_id, erased_at = erasures.block(connection, place, digests)
    doomed = erasing.versions_with(connection, document_id, digests)
    lent = caption_erasing.take_back(connection, {document_id, *sharing})
    leaving = chunks.chunk_owners(connection, doomed) | lent.passages
    inputs = erasing.inputs_of(connection, leaving)
    before = erasing.count_rows(connection, leaving, inputs)
    thumbnails = caption_erasing.count_thumbnails(connection, leaving)
    chunks.hold(connection, leaving)
    erasing.unserve(connection, doomed)
    take_out(connection, doomed, leaving, {}, erasing.audiences_of(connection, {document_id, *sharing}))
    # It says nothing of the text that its vectors were made of, so all of them go.
    vector_cache.empty(connection)
    after = erasing.count_rows(connection, leaving, inputs)
    gone = before - after
    thumbnails -= caption_erasing.count_thumbnails(connection, leaving)
    taken = contexts.take_back(connection, {document_id, *sharing})
    said = lent.captions + caption_erasing.forget_all(connection, {document_id, *sharing})
    own = erasing.drop_document(connection, document_id)
    forgotten = deliveries.forget(connection, place, digests)
    others, queued = _leave_others(connection, sharing, digests, erasure_id, max_attempts)
    holders = erasing.holders_of(connection, taken.passages)
    queued += len(again.ask(connection, sorted(holders), max_attempts=max_attempts))
    queued += len(ask_captions(connection, sorted(lent.documents), max_attempts=max_attempts))
    return Receipt(
        erasure_id=erasure_id,
        erased_at=erased_at,
        document=place,
        removed=Removed(
            versions=len(doomed),
            chunks=gone.chunks,
            vectors=gone.vectors,
            keyword_rows=gone.terms,
            jobs=own.jobs,
            pushed_bytes=own.pushed_bytes,
            usage_rows=own.usage_rows,
            contexts=taken.contexts,
            deliveries=forgotten,
            captions=said,
            thumbnails=thumbnails,
            events=own.events,
        ),
        blocked=Blocked(source=place.source, namespace=place.namespace, path=place.path, sha256=tuple(sorted(digests))),
        others=others,
        kept=_kept(connection, leaving, after.chunks),
        file_remains=present.remains,
        queued=queued,
    )


def _leave_others(
    connection: Connection[Any],
    documents: Collection[uuid.UUID],
    digests: Collection[bytes],
    erasure_id: uuid.UUID,
    max_attempts: int,
) -> tuple[tuple[Other, ...], int]:
    if not documents:
        return (), 0
    what = dict.fromkeys(documents, "withdrawn")
    for left in erasing.leave_others(connection, documents, digests, erasure_id):
        if left.searchable:
            what[left.document_id] = "old_version_removed"
        elif not left.is_blocked:
            what[left.document_id] = "read_again"
    again = [document_id for document_id, became in what.items() if became == "read_again"]
    jobs.enqueue(connection, again, max_attempts=max_attempts)
    named = erasing.places(connection, documents)
    others = tuple(
        Other(
            document_id=one.document_id,
            source=one.source,
            namespace=one.namespace,
            path=one.path,
            what=what[one.document_id],
        )
        for one in named
    )
    return others, len(again)


def _kept(connection: Connection[Any], leaving: Collection[erasing.Owner], count: int) -> Kept:
    if count == 0:
        return Kept(chunks=0, documents=())
    return Kept(chunks=count, documents=tuple(erasing.places(connection, erasing.holders_of(connection, leaving))))


def lift(connection: Connection[Any], erasure_id: uuid.UUID, *, max_attempts: int = 5) -> int:
    """Let in again what an erasure keeps out; returns how many documents that are there are read again.

    Raises:
        Unknown: there is no such erasure.
    """
    with connection.transaction():
        if not erasures.lift(connection, erasure_id):
            raise Unknown(f"There is no erasure {erasure_id}. `docwell erase --list` shows all.", code="unknown_erasure")
        skipped = erasures.documents_kept_out(connection)
        enqueued = jobs.enqueue(connection, skipped, max_attempts=max_attempts)
        catalogue.record_queued(connection, *enqueued)
        return len(enqueued)
