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
_SERVE = """
    UPDATE docwell.document SET
        served_version_id = %(served_id)s, served_version = %(served)s, audience_id = %(audience)s, state = %(state)s,
        reason_code = %(reason_code)s, reason = %(reason)s, title = %(title)s, chunk_count = %(chunk_count)s,
        source_modified = %(modified)s, last_indexed = now(), changed_at = now()
    WHERE document_id = %(document)s
"""
_PRUNE = """
    WITH gone AS (
        DELETE FROM docwell.version
        WHERE document_id = %(document)s AND version_id <> %(version)s
          AND (number <= %(number)s - %(keep)s OR audience_id <> %(audience)s)
        RETURNING version_id
    )
    SELECT DISTINCT place.audience_id, place.chunk_id FROM docwell.version_chunk place JOIN gone USING (version_id)
"""
_FORGET_PUSHED = """
    DELETE FROM docwell.pushed_content pushed USING docwell.version v
    WHERE pushed.document_id = %(document)s AND v.version_id = %(version)s AND pushed.sha256 <> v.sha256
"""


def publish(
    connection: Connection[Any],
    job: ClaimedJob,
    version: NewVersion,
    *,
    space_id: int,
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
    with connection.transaction():
        jobs.fence(connection, job)
        held = connection.execute(_HOLD_DOCUMENT, (job.document_id,)).fetchone()
        if held is None or held[2] in {"deleted", "excluded"}:
            return Published(chunks=0, added=0, removed=0, rerun=jobs.succeed(connection, job, held[2] if held else "deleted"))
        served_id, old_audience, _ = held
        old = rows.chunk_ids(connection, served_id) if served_id is not None else set()
        kept = old if old_audience == version.audience_id else set()
        added = [chunk for chunk_id, chunk in unique.items() if chunk_id not in kept]

        change = rows.Weight()
        if added:
            rows.insert_chunks(connection, version.audience_id, added)
            inputs = [chunk.input_id for chunk in added]
            missing = rows.insert_vectors(connection, space_id, version.audience_id, inputs, vectors)
            if missing:
                raise VectorsMissing(frozenset(missing))
            change += rows.insert_terms(connection, version.audience_id, added)
        rows.insert_places(connection, version.version_id, version.audience_id, version.chunks)
        _write_facts(connection, job.document_id, version)
        pruned = connection.execute(
            _PRUNE,
            {
                "document": job.document_id,
                "version": version.version_id,
                "number": version.number,
                "keep": keep_versions,
                "audience": version.audience_id,
            },
        ).fetchall()
        left = {(old_audience, chunk_id) for chunk_id in old if old_audience != version.audience_id or chunk_id not in unique}
        removed = _remove(connection, left | {(row[0], row[1]) for row in pruned}, version.audience_id, change)
        connection.execute(_FORGET_PUSHED, {"document": job.document_id, "version": version.version_id})
        rerun = jobs.succeed(connection, job, version.state.value, chunks=len(version.chunks), embedded=len(vectors))
        if rerun:
            connection.execute("UPDATE docwell.document SET state = 'queued' WHERE document_id = %s", (job.document_id,))
        return Published(chunks=len(version.chunks), added=len(added), removed=removed, rerun=rerun)


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


def _remove(connection: Connection[Any], left: set[tuple[int, uuid.UUID]], audience_id: int | None, change: rows.Weight) -> int:
    """Take out what left and raise the version of every audience that changed; returns the chunks that went."""
    by_audience: dict[int, set[uuid.UUID]] = {} if audience_id is None else {audience_id: set()}
    for audience, chunk_id in left:
        by_audience.setdefault(audience, set()).add(chunk_id)
    removed = 0
    changes: dict[int, rows.Weight] = {}
    for audience in sorted(by_audience):
        gone = rows.remove_unserved(connection, audience, by_audience[audience])
        removed += gone.chunks
        changes[audience] = -gone + (change if audience == audience_id else rows.Weight())
    for audience, delta in changes.items():
        rows.raise_version(connection, audience, delta)
    return removed


_UNSERVE = """
    UPDATE docwell.document SET
        served_version_id = NULL, served_version = NULL, state = 'deleted', reason_code = NULL, reason = NULL,
        chunk_count = 0, size = NULL, modified_ns = NULL, sha256 = NULL, changed_at = now()
    WHERE document_id = %s
"""
_DROP_VERSIONS = """
    WITH gone AS (DELETE FROM docwell.version WHERE document_id = %s RETURNING version_id)
    SELECT DISTINCT place.audience_id, place.chunk_id FROM docwell.version_chunk place JOIN gone USING (version_id)
"""


def unpublish(connection: Connection[Any], job: ClaimedJob) -> bool:
    """Take a deleted document out of the index, all its versions too, and end the job, in one transaction.

    The row stays as `deleted`: it keeps its identity, should the file come back. Returns whether it is queued to run again.

    Raises:
        LeaseLost: the job is ours no more; nothing was written.
    """
    with connection.transaction():
        jobs.fence(connection, job)
        held = connection.execute(_HOLD_DOCUMENT, (job.document_id,)).fetchone()
        if held is not None:
            connection.execute(_UNSERVE, (job.document_id,))
            dropped = connection.execute(_DROP_VERSIONS, (job.document_id,)).fetchall()
            connection.execute("DELETE FROM docwell.pushed_content WHERE document_id = %s", (job.document_id,))
            _remove(connection, {(row[0], row[1]) for row in dropped}, held[1], rows.Weight())
        rerun = jobs.succeed(connection, job, "deleted")
        if rerun:
            connection.execute("UPDATE docwell.document SET state = 'queued' WHERE document_id = %s", (job.document_id,))
        return rerun
