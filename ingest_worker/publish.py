"""The swap: one short transaction, no network call in it. A reader sees the old version or the new one, never a mix."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.types.json import Json

from ingest_worker.catalogue import chunks as rows
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.terms import Weight, insert_terms
from ingest_worker.catalogue.vectors import Space, insert_vectors
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, Success
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
class Swap:
    """A version to be served, and the job that asks for it. `embedded`: how many of its vectors were made for it."""

    job: ClaimedJob
    version: NewVersion
    embedded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a swap did: its job's result, and the chunks of the version. `rerun`: the document changed and is queued again."""

    result: str
    chunks: int
    rerun: bool


_HOLD_DOCUMENTS = """
    SELECT document_id, served_version_id, audience_id, state FROM docwell.document
    WHERE document_id = ANY (%s) ORDER BY document_id FOR UPDATE
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    served_id: int | None
    audience_id: int
    state: str

    @property
    def is_out(self) -> bool:
        """Whether it was taken out of the index meanwhile."""
        return self.state in {"deleted", "excluded"}


def publish(
    connection: Connection[Any],
    swaps: Sequence[Swap],
    *,
    space: Space,
    vectors: Mapping[uuid.UUID, NDArray[np.float32]],
    keep_versions: int,
) -> list[Published]:
    """Serve these versions instead of the ones before, and end their jobs, in one transaction: all of them or none.

    Chunks that a served version holds already keep their rows and vectors untouched. `vectors` holds the new ones by
    `Chunk.input_id`, float32 of the space's dimension.

    Raises:
        LeaseLost: one of the jobs is ours no more; nothing was written.
        VectorsMissing: vectors counted on are gone; nothing was written.
    """
    with connection.transaction():
        jobs.fence(connection, *(swap.job for swap in swaps))
        held = _hold_documents(connection, [swap.job.document_id for swap in swaps])
        live = [swap for swap in swaps if not held[swap.job.document_id].is_out]
        if live:
            _swap(connection, live, held, space=space, vectors=vectors, keep_versions=keep_versions)
        return _end(connection, swaps, held)


def _hold_documents(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> dict[uuid.UUID, _Held]:
    rows = connection.execute(_HOLD_DOCUMENTS, (list(documents),)).fetchall()
    return {row[0]: _Held(served_id=row[1], audience_id=row[2], state=row[3]) for row in rows}


def _swap(
    connection: Connection[Any],
    swaps: Sequence[Swap],
    held: Mapping[uuid.UUID, _Held],
    *,
    space: Space,
    vectors: Mapping[uuid.UUID, NDArray[np.float32]],
    keep_versions: int,
) -> None:
    versions = [swap.version for swap in swaps]
    served = [held[swap.job.document_id].served_id for swap in swaps]
    old = rows.chunk_owners(connection, [version_id for version_id in served if version_id is not None])
    new = {(version.audience_id, chunk.chunk_id): chunk for version in versions for chunk in version.chunks}
    doomed = _doomed_versions(connection, swaps, keep_versions)
    leaving = (old | rows.chunk_owners(connection, doomed)) - new.keys()
    added = {owner: chunk for owner, chunk in new.items() if owner not in old}

    rows.insert_chunks(connection, added)
    rows.hold(connection, leaving | added.keys())
    owners = {(audience, chunk.input_id) for (audience, _), chunk in added.items()}
    missing = insert_vectors(connection, space, owners, vectors)
    if missing:
        raise VectorsMissing(frozenset(missing))
    entered = insert_terms(connection, added)
    rows.insert_places(connection, [(version.version_id, version.audience_id, version.chunks) for version in versions])
    _write_facts(connection, swaps)
    _remove(connection, doomed, leaving, entered, {version.audience_id for version in versions})


# Versions older than the last `keep`, and all that stand under other readers than the document now has.
_TO_PRUNE = """
    SELECT v.version_id FROM docwell.version v
    JOIN unnest(%(documents)s::uuid[], %(versions)s::bigint[], %(numbers)s::integer[], %(audiences)s::integer[])
        AS new (document_id, version_id, number, audience_id) USING (document_id)
    WHERE v.version_id <> new.version_id AND (v.number <= new.number - %(keep)s OR v.audience_id <> new.audience_id)
"""


def _doomed_versions(connection: Connection[Any], swaps: Sequence[Swap], keep: int) -> list[int]:
    later = [swap for swap in swaps if swap.version.number > 1]
    if not later:
        return []
    values = {
        "documents": [swap.job.document_id for swap in later],
        "versions": [swap.version.version_id for swap in later],
        "numbers": [swap.version.number for swap in later],
        "audiences": [swap.version.audience_id for swap in later],
        "keep": keep,
    }
    return [row[0] for row in connection.execute(_TO_PRUNE, values).fetchall()]


# A title that was given with pushed bytes wins over the one in the text.
_SERVE = """
    WITH new AS (
        SELECT * FROM json_to_recordset(%s) AS new (document_id uuid, version_id bigint, number integer, audience_id integer,
            state text, reason_code text, reason text, media_type text, title text, encoding text, page_count integer,
            pages_with_text integer, warnings text[], modified timestamptz, chunk_count integer)
    ), versions AS (
        UPDATE docwell.version v SET
            state = new.state, reason_code = new.reason_code, reason = new.reason, media_type = new.media_type,
            title = new.title, encoding = new.encoding, page_count = new.page_count, pages_with_text = new.pages_with_text,
            chunk_count = new.chunk_count, warnings = new.warnings, published_at = now()
        FROM new WHERE v.version_id = new.version_id
    )
    UPDATE docwell.document d SET
        served_version_id = CASE WHEN new.chunk_count > 0 THEN new.version_id END,
        served_version = CASE WHEN new.chunk_count > 0 THEN new.number END,
        audience_id = new.audience_id, state = new.state, reason_code = new.reason_code, reason = new.reason,
        chunk_count = new.chunk_count,
        title = coalesce((SELECT pushed.title FROM docwell.pushed_content pushed WHERE pushed.document_id = d.document_id),
                         new.title),
        source_modified = new.modified, last_indexed = now(), changed_at = now()
    FROM new WHERE d.document_id = new.document_id
"""
_FACTS = tuple(field.name for field in fields(NewVersion) if field.name != "chunks")


def _write_facts(connection: Connection[Any], swaps: Sequence[Swap]) -> None:
    facts = [
        {
            "document_id": swap.job.document_id,
            "chunk_count": len(swap.version.chunks),
            **{name: getattr(swap.version, name) for name in _FACTS},
        }
        for swap in swaps
    ]
    connection.execute(_SERVE, (Json(facts, dumps=orjson.dumps),))


_DROP = "DELETE FROM docwell.version WHERE version_id = ANY (%s)"


def _remove(
    connection: Connection[Any],
    doomed: Sequence[int],
    leaving: set[tuple[int, uuid.UUID]],
    entered: Mapping[int, Weight],
    audiences: set[int],
) -> None:
    """Take out what leaves, then raise the version of every audience that changed."""
    if doomed:
        connection.execute(_DROP, (list(doomed),))
    changes = {audience_id: entered.get(audience_id, Weight()) for audience_id in audiences}
    for audience_id in sorted({audience_id for audience_id, _ in leaving}):
        gone = rows.remove_unserved(connection, audience_id, {chunk for owner, chunk in leaving if owner == audience_id})
        changes[audience_id] = changes.get(audience_id, Weight()) + -gone
    for audience_id, change in sorted(changes.items()):
        rows.raise_version(connection, audience_id, change)


def _end(connection: Connection[Any], swaps: Sequence[Swap], held: Mapping[uuid.UUID, _Held]) -> list[Published]:
    """End the jobs, those whose document was taken out meanwhile too."""
    ended = []
    for swap in swaps:
        document = held[swap.job.document_id]
        if document.is_out:
            ended.append(Success(job=swap.job, result=document.state, chunks=0, embedded=0))
        else:
            chunks = len(swap.version.chunks)
            ended.append(Success(job=swap.job, result=swap.version.state.value, chunks=chunks, embedded=swap.embedded))
    reruns = jobs.succeed_all(connection, ended)
    catalogue.record_queued(
        connection,
        *(one.job.document_id for one in ended if one.job.job_id in reruns and not held[one.job.document_id].is_out),
    )
    return [Published(result=one.result, chunks=one.chunks or 0, rerun=one.job.job_id in reruns) for one in ended]


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
    held = _hold_documents(connection, [document_id]).get(document_id)
    if held is None:
        return
    doomed = [row[0] for row in connection.execute(_VERSIONS_OF, (document_id,)).fetchall()]
    leaving = rows.chunk_owners(connection, doomed)
    rows.hold(connection, leaving)
    connection.execute(_UNSERVE, {"document": document_id, "state": state.value, "code": code, "reason": reason})
    _remove(connection, doomed, leaving, {}, {held.audience_id})


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
