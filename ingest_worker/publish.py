"""The swap: one short transaction, no network call in it. A reader sees the old version or the new one, never a mix."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.types.json import Json

from ingest_worker.catalogue import captions, contexts, without_vector
from ingest_worker.catalogue import chunks as rows
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.erasures import ERASED, erased_reason
from ingest_worker.catalogue.settling import settle
from ingest_worker.catalogue.terms import Weight, insert_terms
from ingest_worker.catalogue.vectors import Space, insert_vectors
from ingest_worker.catalogue.without_vector import Gap
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, Success
from ingest_worker.new_version import NewVersion
from ingest_worker.spaces import SpaceVectors, hold_spaces
from shared.documents import Chunk, DocumentState
from shared.errors import DocwellError

__all__ = [
    "KEPT",
    "ROLLED_BACK",
    "NewVersion",
    "Published",
    "Swap",
    "VectorsMissing",
    "publish",
    "take_out",
    "unpublish",
    "withdraw",
]

ROLLED_BACK = "rolled_back"
"""The result of a job that served an old version again."""
KEPT = "kept"
"""The result of a job whose version was read, and is not served since a person rolled back meanwhile."""
GONE = "gone"
"""The result of a job whose file went meanwhile: it runs again, and finds out what became of it."""


class VectorsMissing(DocwellError):
    """Vectors that were there when we looked went before we could hold them: embed these inputs and publish again."""

    def __init__(self, inputs: frozenset[uuid.UUID]) -> None:
        super().__init__(f"{len(inputs)} vectors were removed meanwhile.", code="vectors_missing")
        self.inputs = inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A version to be served, and the job that asks for it. `embedded`: how many of its vectors were made for it. `gone`: the
    file that it was read from is not there any more."""

    job: ClaimedJob
    version: NewVersion
    embedded: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a swap did: its job's result, and the chunks of the version. `rerun`: the document changed and is queued again."""

    result: str
    chunks: int
    rerun: bool


# Reading the table of erased bytes keeps an erasure from beginning until we have committed; see `erasure.py`.
_HOLD_DOCUMENTS = """
    SELECT d.document_id, d.served_version_id, d.audience_id, d.state, d.pinned_version,
           (SELECT e.erasure_id FROM docwell.version v JOIN docwell.erased_content e USING (sha256)
            WHERE v.document_id = d.document_id AND v.number = d.latest_version LIMIT 1)
    FROM docwell.document d
    WHERE d.document_id = ANY (%s) ORDER BY d.document_id FOR UPDATE OF d
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    served_id: int | None
    audience_id: int
    state: str
    pinned: int | None
    erasure_id: uuid.UUID | None

    def instead(self, swap: Swap) -> str | None:
        """The result of a job whose version is not to be published any more; None when it is."""
        version = swap.version
        if self.state in {"deleted", "excluded"}:
            return self.state
        if self.erasure_id is not None:
            return "skipped"
        if swap.gone:
            return GONE
        # A person wants another old version by now. What is served may go to other readers all the same.
        return "unchanged" if version.again and version.number != self.pinned and version.version_id != self.served_id else None

    def only_keeps(self, version: NewVersion) -> bool:
        """Whether a person asked for an older version while this one was on its way: it is kept, and not served."""
        return self.pinned is not None and not version.again


def publish(
    connection: Connection[Any],
    swaps: Sequence[Swap],
    *,
    space: Space,
    vectors: Mapping[uuid.UUID, NDArray[np.float32]],
    keep_versions: int,
    beside: SpaceVectors | None = None,
    apart: Mapping[uuid.UUID, Gap] = MappingProxyType({}),
) -> list[Published]:
    """Serve these versions instead of the ones before, and end their jobs, in one transaction: all of them or none.

    Chunks that a served version holds already keep their rows and vectors untouched. `vectors` holds the new ones by
    `Chunk.input_id`, float32 of the space's dimension. Inputs in `apart` may have none, for these reasons. What `beside` lacks is
    filled in later.

    Raises:
        LeaseLost: one of the jobs is ours no more; nothing was written.
        VectorsMissing: vectors counted on are gone; nothing was written.
        SpaceChanged: the space is not the active one any more; nothing was written.
    """
    with connection.transaction():
        still = hold_spaces(connection, space, beside.space if beside is not None else None)
        jobs.fence(connection, *(swap.job for swap in swaps))
        held = _hold_documents(connection, [swap.job.document_id for swap in swaps])
        live = [swap for swap in swaps if held[swap.job.document_id].instead(swap) is None]
        if live:
            spaces = [SpaceVectors(space=space, vectors=vectors, apart=apart), *([beside] if still and beside else [])]
            _swap(connection, live, held, spaces=spaces, keep_versions=keep_versions)
        return _end(connection, swaps, held)


def _hold_documents(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> dict[uuid.UUID, _Held]:
    rows = connection.execute(_HOLD_DOCUMENTS, (list(documents),)).fetchall()
    return {row[0]: _Held(served_id=row[1], audience_id=row[2], state=row[3], pinned=row[4], erasure_id=row[5]) for row in rows}


def _swap(
    connection: Connection[Any],
    swaps: Sequence[Swap],
    held: Mapping[uuid.UUID, _Held],
    *,
    spaces: Sequence[SpaceVectors],
    keep_versions: int,
) -> None:
    kept = [swap for swap in swaps if held[swap.job.document_id].only_keeps(swap.version)]
    serving = [swap for swap in swaps if swap not in kept]
    versions = [swap.version for swap in swaps]
    served = [served_id for swap in serving if (served_id := held[swap.job.document_id].served_id) is not None]
    staying = [served_id for swap in kept if (served_id := held[swap.job.document_id].served_id) is not None]
    again = [swap.version.version_id for swap in serving if swap.version.again]  # it may have stood under other readers
    old = rows.chunk_owners(connection, served)
    new = _by_owner(serving)
    doomed = _doomed_versions(connection, swaps, staying, keep_versions)
    leaving = (old | rows.chunk_owners(connection, [*doomed, *again])) - new.keys()
    added = {owner: chunk for owner, chunk in new.items() if owner not in old}
    made = added | _by_owner(kept)
    told_otherwise: set[tuple[int, uuid.UUID]] = set()
    if any(version.contexts for version in versions):
        told_otherwise = rows.with_other_input(connection, {owner: chunk for owner, chunk in new.items() if owner in old})
        added |= {owner: new[owner] for owner in told_otherwise}

    rows.insert_chunks(connection, made)
    inputs = rows.hold(connection, leaving | made.keys() | added.keys())
    captions.insert_thumbnails(connection, _thumbnails(versions))
    changed = {owner: chunk for owner, chunk in added.items() if owner in told_otherwise or inputs[owner] != chunk.input_id}
    left = rows.change_context(connection, changed, inputs) if changed else {}
    owners = {(audience, chunk.input_id) for (audience, _), chunk in added.items()}
    lacking = [insert_vectors(connection, one.space, owners, one.vectors) for one in spaces]
    if lacking[0] - spaces[0].apart.keys():
        raise VectorsMissing(frozenset(lacking[0] - spaces[0].apart.keys()))
    for one, without in zip(spaces, lacking, strict=True):
        without_vector.settle(connection, one.space.space_id, owners, lacking=without, gaps=one.apart)
    entered = insert_terms(connection, added)
    for audience, weight in left.items():
        entered[audience] = entered.get(audience, Weight()) + -weight
    rows.insert_places(connection, [(version.version_id, version.audience_id, version.chunks) for version in versions])
    _write_facts(connection, serving, kept)
    take_out(connection, doomed, leaving, entered, {version.audience_id for version in versions})
    contexts.settle(connection, [swap.job.document_id for swap in swaps if swap.version.contexts])
    captions.settle(connection, [swap.job.document_id for swap in swaps if swap.version.captioned])


def _thumbnails(versions: Sequence[NewVersion]) -> Mapping[captions.Owner, captions.Thumbnail]:
    return {(version.audience_id, chunk_id): one for version in versions for chunk_id, one in version.thumbnails.items()}


def _by_owner(swaps: Sequence[Swap]) -> dict[tuple[int, uuid.UUID], Chunk]:
    return {(swap.version.audience_id, chunk.chunk_id): chunk for swap in swaps for chunk in swap.version.chunks}


# All but the last `keep`, and of those with text, which can be served again, the last `keep`. Versions that stand under other
# readers than the document now has go too.
_TO_PRUNE = """
    SELECT version_id FROM (
        SELECT v.version_id, v.audience_id <> new.audience_id AS is_foreign, had.text AS has_text,
               row_number() OVER (PARTITION BY v.document_id ORDER BY v.number DESC) AS place,
               row_number() OVER (PARTITION BY v.document_id, had.text ORDER BY v.number DESC) AS place_with_text
        FROM docwell.version v
        JOIN unnest(%(documents)s::uuid[], %(versions)s::bigint[], %(audiences)s::integer[])
            AS new (document_id, version_id, audience_id) USING (document_id)
        CROSS JOIN LATERAL (SELECT v.chunk_count > 0 OR v.version_id = new.version_id AS text) AS had
    ) AS v
    WHERE version_id <> ALL (%(staying)s)
      AND (is_foreign OR (place > %(keep)s AND NOT (has_text AND place_with_text <= %(keep)s)))
"""


def _doomed_versions(connection: Connection[Any], swaps: Sequence[Swap], served: Sequence[int], keep: int) -> list[int]:
    later = [swap for swap in swaps if swap.version.number > 1 or swap.version.again]
    if not later:
        return []
    values = {
        "documents": [swap.job.document_id for swap in later],
        "versions": [swap.version.version_id for swap in later],
        "audiences": [swap.version.audience_id for swap in later],
        "staying": [*served, *(swap.version.version_id for swap in later)],
        "keep": keep,
    }
    return [row[0] for row in connection.execute(_TO_PRUNE, values).fetchall()]


# A title that was given with pushed bytes wins over the one in the text.
_SERVE = """
    WITH new AS (
        SELECT * FROM json_to_recordset(%s) AS new (document_id uuid, version_id bigint, number integer, audience_id integer,
            state text, reason_code text, reason text, media_type text, title text, encoding text, page_count integer,
            pages_with_text integer, warnings text[], modified timestamptz, chunk_count integer, again boolean, is_kept boolean)
    ), versions AS (
        UPDATE docwell.version v SET
            state = new.state, reason_code = new.reason_code, reason = new.reason, media_type = new.media_type,
            title = new.title, encoding = new.encoding, page_count = new.page_count, pages_with_text = new.pages_with_text,
            chunk_count = new.chunk_count, warnings = new.warnings, published_at = now()
        FROM new WHERE v.version_id = new.version_id AND NOT new.again
    )
    UPDATE docwell.document d SET
        served_version_id = CASE WHEN new.chunk_count > 0 THEN new.version_id END,
        served_version = CASE WHEN new.chunk_count > 0 THEN new.number END,
        audience_id = new.audience_id, state = CASE WHEN new.again THEN 'queued' ELSE new.state END,
        reason_code = new.reason_code, reason = new.reason, chunk_count = new.chunk_count,
        title = coalesce((SELECT pushed.title FROM docwell.pushed_content pushed WHERE pushed.document_id = d.document_id),
                         new.title),
        source_modified = new.modified, last_indexed = now(), changed_at = now()
    FROM new WHERE d.document_id = new.document_id AND NOT new.is_kept
"""
_MOVE_VERSION = "UPDATE docwell.version SET audience_id = %s WHERE version_id = %s"
_FACTS = tuple(field.name for field in fields(NewVersion) if field.name not in {"chunks", "thumbnails"})


def _write_facts(connection: Connection[Any], serving: Sequence[Swap], kept: Sequence[Swap]) -> None:
    facts = [
        {
            "document_id": swap.job.document_id,
            "chunk_count": len(swap.version.chunks),
            "is_kept": swap in kept,
            **{name: getattr(swap.version, name) for name in _FACTS},
        }
        for swap in (*serving, *kept)
    ]
    connection.execute(_SERVE, (Json(facts, dumps=orjson.dumps),))
    again = [swap for swap in serving if swap.version.again]
    for swap in again:
        connection.execute(_MOVE_VERSION, (swap.version.audience_id, swap.version.version_id))
    settle(connection, [swap.job.document_id for swap in (*kept, *again)])


_DROP = "DELETE FROM docwell.version WHERE version_id = ANY (%s)"


def take_out(
    connection: Connection[Any],
    doomed: Sequence[int],
    leaving: set[tuple[int, uuid.UUID]],
    entered: Mapping[int, Weight],
    audiences: set[int],
) -> None:
    """Drop these versions, take out the chunks that leave, then raise the version of every audience that changed.

    The caller holds the chunks; `entered` is what came into the search structures, by audience.
    """
    if doomed:
        connection.execute(_DROP, (list(doomed),))
    changes = {audience_id: entered.get(audience_id, Weight()) for audience_id in audiences}
    for audience_id in sorted({audience_id for audience_id, _ in leaving}):
        gone = rows.remove_unserved(connection, audience_id, {chunk for owner, chunk in leaving if owner == audience_id})
        changes[audience_id] = changes.get(audience_id, Weight()) + -gone
    for audience_id, change in sorted(changes.items()):
        rows.raise_version(connection, audience_id, change)


_UNPIN_NEWEST = """
    UPDATE docwell.document SET pinned_version = NULL
    WHERE document_id = ANY (%s) AND pinned_version = latest_version AND pinned_version = served_version
"""


def _end(connection: Connection[Any], swaps: Sequence[Swap], held: Mapping[uuid.UUID, _Held]) -> list[Published]:
    """End the jobs, those whose version was not wanted any more too. One that has yet to look at its source runs again."""
    ended = [_result(swap, held[swap.job.document_id]) for swap in swaps]
    for swap in swaps:
        erasure_id = held[swap.job.document_id].erasure_id
        if erasure_id is not None:
            reason = erased_reason(erasure_id)
            withdraw(connection, swap.job.document_id, state=DocumentState.SKIPPED, code=ERASED, reason=reason)
    again = [swap.job for swap in swaps if swap.version.again or swap.gone]
    if again:
        jobs.run_again(connection, [job for job in again if job.kind != "rollback"])
        connection.execute(_UNPIN_NEWEST, ([job.document_id for job in again if job.kind == "rollback"],))
    reruns = jobs.succeed_all(connection, ended)
    out = {DocumentState.DELETED, DocumentState.EXCLUDED}
    catalogue.record_queued(
        connection, *(one.job.document_id for one in ended if one.job.job_id in reruns and one.result not in out)
    )
    return [Published(result=one.result, chunks=one.chunks or 0, rerun=one.job.job_id in reruns) for one in ended]


def _result(swap: Swap, document: _Held) -> Success:
    version = swap.version
    instead = document.instead(swap)
    if instead is not None:
        return Success(job=swap.job, result=instead, chunks=0, embedded=0)
    result = ROLLED_BACK if version.again else KEPT if document.only_keeps(version) else version.state.value
    return Success(job=swap.job, result=result, chunks=len(version.chunks), embedded=swap.embedded)


_UNSERVE = """
    UPDATE docwell.document SET
        served_version_id = NULL, served_version = NULL, state = %(state)s, reason_code = %(code)s, reason = %(reason)s,
        chunk_count = 0, size = NULL, modified_ns = NULL, sha256 = NULL, pinned_version = NULL, changed_at = now()
    WHERE document_id = %(document)s
"""
# Of what was erased not even the name is kept, once its file is gone. Its jobs go with it.
_FORGET_ERASED = """
    DELETE FROM docwell.document d WHERE document_id = %s AND reason_code = 'erased'
      AND NOT EXISTS (SELECT 1 FROM docwell.version v WHERE v.document_id = d.document_id)
      AND NOT EXISTS (SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id AND j.rerun)
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
    take_out(connection, doomed, leaving, {}, {held.audience_id})
    if state in {DocumentState.DELETED, DocumentState.EXCLUDED}:
        contexts.forget(connection, document_id)
        captions.forget(connection, document_id)


def unpublish(connection: Connection[Any], job: ClaimedJob) -> bool:
    """Take a deleted document out of the index and end the job, in one transaction.

    Returns whether it is queued to run again: then something came meanwhile, and pushed bytes are kept for that run.

    Raises:
        LeaseLost: the job is ours no more; nothing was written.
    """
    with connection.transaction():
        jobs.fence(connection, job)
        if connection.execute(_FORGET_ERASED, (job.document_id,)).rowcount:
            return False
        withdraw(connection, job.document_id, state=DocumentState.DELETED)
        rerun = jobs.succeed(connection, job, "deleted")
        if rerun:
            catalogue.record_queued(connection, job.document_id)
        else:
            connection.execute("DELETE FROM docwell.pushed_content WHERE document_id = %s", (job.document_id,))
        return rerun
