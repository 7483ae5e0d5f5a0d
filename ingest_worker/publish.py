"""The swap: one short transaction, no network call in it. A reader sees the old version or the new one, never a mix."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection

from ingest_worker.catalogue import chunks as rows
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from shared.documents import Chunk, DocumentState
from shared.errors import DocwellError


class VectorsMissing(DocwellError):
    """Vectors that were there when we looked went before we could hold them: embed these inputs and publish again."""

    def __init__(self, inputs: frozenset[uuid.UUID]) -> None:
        super().__init__(f"{len(inputs)} vectors were removed meanwhile.", code="vectors_missing")
        self.inputs = inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version ready to be served: its facts and its chunks in reading order.

    `state` is INDEXED or PARTIAL with chunks, NEEDS_OCR or SKIPPED without: then nothing of the document is served any more,
    since the old text is no longer what is in the folder.
    """

    version_id: int
    number: int
    audience_id: int
    state: DocumentState
    reason_code: str | None = None
    reason: str | None = None
    media_type: str | None = None
    title: str | None = None
    encoding: str | None = None
    page_count: int | None = None
    pages_with_text: int | None = None
    warnings: tuple[str, ...] = ()
    modified: datetime | None = None
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a swap did. `rerun` says that the document changed meanwhile and is queued again."""

    chunks: int
    added: int
    removed: int
    rerun: bool


_HOLD_DOCUMENT = """
    SELECT served_version_id, audience_id, state FROM docwell.document WHERE document_id = %s FOR UPDATE
"""
_PUBLISH_VERSION = """
    UPDATE docwell.version SET
        state = %(state)s, reason_code = %(reason_code)s, reason = %(reason)s, media_type = %(media_type)s,
        title = %(title)s, encoding = %(encoding)s, page_count = %(page_count)s, pages_with_text = %(pages_with_text)s,
        chunk_count = %(chunk_count)s, warnings = %(warnings)s, published_at = now()
    WHERE version_id = %(version)s
"""
# A title that was given with pushed bytes wins over the one in the text.
_SERVE = """
    UPDATE docwell.document d SET
        served_version_id = %(served_id)s, served_version = %(served)s, audience_id = %(audience)s, state = %(state)s,
        reason_code = %(reason_code)s, reason = %(reason)s, chunk_count = %(chunk_count)s,
        title = coalesce((SELECT pushed.title FROM docwell.pushed_content pushed WHERE pushed.document_id = d.document_id),
                         %(title)s),
        source_modified = %(modified)s, last_indexed = now(), changed_at = now()
    WHERE document_id = %(document)s
"""
# Versions older than the last `keep`, and all that stand under other readers than the document now has.
_TO_PRUNE = """
    SELECT version_id FROM docwell.version
    WHERE document_id = %(document)s AND version_id <> %(version)s
      AND (number <= %(number)s - %(keep)s OR audience_id <> %(audience)s)
"""
_CHUNKS_OF = "SELECT DISTINCT audience_id, chunk_id FROM docwell.version_chunk WHERE version_id = ANY (%s)"
_DROP = "DELETE FROM docwell.version WHERE version_id = ANY (%s)"


def publish(
    connection: Connection[Any],
    job: ClaimedJob,
    version: NewVersion,
    *,
    space: rows.Space,
    vectors: Mapping[uuid.UUID, NDArray[np.float32]],
    keep_versions: int,
) -> Published:
    """Serve this version instead of the one before, and end the job, in one transaction.

    Chunks that the served version holds already keep their rows and vectors untouched. `vectors` holds the new ones by
    `Chunk.input_id`, float32 of the space's dimension.

    Raises:
        LeaseLost: the job is ours no more; nothing was written.
        VectorsMissing: vectors counted on are gone; nothing was written.
    """
    unique = {chunk.chunk_id: chunk for chunk in version.chunks}
    # Statements whose answer nobody waits for share round trips.
    with connection.pipeline(), connection.transaction():
        jobs.fence(connection, job)
        held = connection.execute(_HOLD_DOCUMENT, (job.document_id,)).fetchone()
        if held is None or held[2] in {"deleted", "excluded"}:
            return Published(chunks=0, added=0, removed=0, rerun=jobs.succeed(connection, job, held[2] if held else "deleted"))
        served_id, old_audience, _ = held
        served = rows.chunk_ids(connection, served_id) if served_id is not None else set()
        old = {(old_audience, chunk_id) for chunk_id in served}
        new = {(version.audience_id, chunk_id) for chunk_id in unique}
        doomed = _doomed_versions(connection, job.document_id, version, keep_versions)
        leaving = (old | _chunks_of(connection, doomed)) - new
        added = [unique[chunk_id] for _, chunk_id in sorted(new - old)]

        rows.insert_chunks(connection, version.audience_id, added)
        rows.hold(connection, leaving | (new - old))
        missing = rows.insert_vectors(connection, space, version.audience_id, [chunk.input_id for chunk in added], vectors)
        if missing:
            raise VectorsMissing(frozenset(missing))
        entered = rows.insert_terms(connection, version.audience_id, added)
        rows.insert_places(connection, version.version_id, version.audience_id, version.chunks)
        _write_facts(connection, job.document_id, version)
        connection.execute(_DROP, (doomed,))
        removed = _remove(connection, leaving, {version.audience_id: entered})
        rerun = jobs.succeed(connection, job, version.state.value, chunks=len(version.chunks), embedded=len(vectors))
        if rerun:
            catalogue.record_queued(connection, job.document_id)
        return Published(chunks=len(version.chunks), added=len(added), removed=removed, rerun=rerun)


def _doomed_versions(connection: Connection[Any], document_id: uuid.UUID, version: NewVersion, keep: int) -> list[int]:
    values = {
        "document": document_id,
        "version": version.version_id,
        "number": version.number,
        "keep": keep,
        "audience": version.audience_id,
    }
    return [row[0] for row in connection.execute(_TO_PRUNE, values).fetchall()]


def _chunks_of(connection: Connection[Any], versions: list[int]) -> set[tuple[int, uuid.UUID]]:
    if not versions:
        return set()
    return {(row[0], row[1]) for row in connection.execute(_CHUNKS_OF, (versions,)).fetchall()}


def _write_facts(connection: Connection[Any], document_id: uuid.UUID, version: NewVersion) -> None:
    values = {
        "document": document_id,
        "version": version.version_id,
        "served_id": version.version_id if version.chunks else None,
        "served": version.number if version.chunks else None,
        "audience": version.audience_id,
        "state": version.state.value,
        "reason_code": version.reason_code,
        "reason": version.reason,
        "media_type": version.media_type,
        "title": version.title,
        "encoding": version.encoding,
        "page_count": version.page_count,
        "pages_with_text": version.pages_with_text,
        "warnings": list(version.warnings),
        "modified": version.modified,
        "chunk_count": len(version.chunks),
    }
    connection.execute(_PUBLISH_VERSION, values)
    connection.execute(_SERVE, values)


def _remove(connection: Connection[Any], leaving: set[tuple[int, uuid.UUID]], entered: dict[int, rows.Weight]) -> int:
    """Take out what leaves, then raise the version of every audience that changed; returns the chunks that went."""
    removed = 0
    changes = dict(entered)
    for audience_id in sorted({audience_id for audience_id, _ in leaving}):
        gone = rows.remove_unserved(connection, audience_id, {chunk for owner, chunk in leaving if owner == audience_id})
        removed += gone.chunks
        changes[audience_id] = changes.get(audience_id, rows.Weight()) + -gone
    for audience_id, change in sorted(changes.items()):
        rows.raise_version(connection, audience_id, change)
    return removed


_UNSERVE = """
    UPDATE docwell.document SET
        served_version_id = NULL, served_version = NULL, state = %(state)s, reason_code = %(code)s, reason = %(reason)s,
        chunk_count = 0, size = NULL, modified_ns = NULL, sha256 = NULL, changed_at = now()
    WHERE document_id = %(document)s
"""
_VERSIONS_OF = "SELECT version_id FROM docwell.version WHERE document_id = %s"


def withdraw(
    connection: Connection[Any],
    document_id: uuid.UUID,
    *,
    state: DocumentState,
    code: str | None = None,
    reason: str | None = None,
) -> None:
    """Take a document out of the index, all its versions too, in the caller's transaction.

    The row stays in this state: it keeps its identity, should the file come back. Who holds a job of the document too holds it
    before this is called, as every publisher does.
    """
    held = connection.execute(_HOLD_DOCUMENT, (document_id,)).fetchone()
    if held is None:
        return
    doomed = [row[0] for row in connection.execute(_VERSIONS_OF, (document_id,)).fetchall()]
    leaving = _chunks_of(connection, doomed)
    rows.hold(connection, leaving)
    connection.execute(_UNSERVE, {"document": document_id, "state": state.value, "code": code, "reason": reason})
    connection.execute(_DROP, (doomed,))
    _remove(connection, leaving, {held[1]: rows.Weight()})


def unpublish(connection: Connection[Any], job: ClaimedJob) -> bool:
    """Take a deleted document out of the index and end the job, in one transaction.

    Returns whether it is queued to run again: then something came meanwhile, and pushed bytes are kept for that run.

    Raises:
        LeaseLost: the job is ours no more; nothing was written.
    """
    with connection.transaction():
        jobs.fence(connection, job)
        withdraw(connection, job.document_id, state=DocumentState.DELETED)
        rerun = jobs.succeed(connection, job, "deleted")
        if rerun:
            catalogue.record_queued(connection, job.document_id)
        else:
            connection.execute("DELETE FROM docwell.pushed_content WHERE document_id = %s", (job.document_id,))
        return rerun
