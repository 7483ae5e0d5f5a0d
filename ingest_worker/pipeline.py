"""The way of documents, as a story: read → parse → chunk → enrich → embed → publish. No transaction is open on the way.

Several are begun, embedded and published together, since a call and a commit cost much the same for one as for twenty.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection

from ingest_worker import rollback
from ingest_worker.beside import embed_beside
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.documents import Beginning, Content, JobDocument
from ingest_worker.catalogue.sources import ensure_audience
from ingest_worker.catalogue.vectors import inputs_with_vector
from ingest_worker.embedding import embed, record_embedding, shares_of
from ingest_worker.enrich import again
from ingest_worker.enrich.step import Enricher, Wanted
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.intake.read import Gone, Refused, gone_seconds, read_content
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, Success
from ingest_worker.judging import version_of
from ingest_worker.parse.cage import ParserCage
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.fingerprint import ocr_settings, parser_fingerprint
from ingest_worker.parse.ocr import ocr_identity
from ingest_worker.parsing import heading_mark, heading_of, parse_and_chunk
from ingest_worker.publish import NewVersion, Swap, VectorsMissing, publish, unpublish, withdraw
from ingest_worker.spaces import Beside, Models, SpaceChanged
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk, DocumentState
from shared.embedding.protocol import Embedder
from shared.errors import DocwellError, Postponed, TransientError
from shared.prices import TokenUse

_ROUNDS = 3
"""How often a swap is prepared anew when vectors that it counted on went meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a worker process owns: its connections, its caged parser, its embedder, and the books of what it does."""

    settings: Settings
    pool: Pool
    cage: ParserCage
    embedder: Callable[[], Embedder]
    work: Work = field(default_factory=Work)
    enricher: Enricher = field(default_factory=Enricher)
    models: Models = field(default_factory=Models)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What became of a job: its result, the chunks of the document, and how many of them had to be embedded."""

    result: str
    chunks: int = 0
    embedded: int = 0
    rerun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A document whose bytes were read and have to be parsed."""

    job: ClaimedJob
    begins: Beginning

    @property
    def size(self) -> int:
        """Bytes held in memory."""
        return self.begins.content.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """A document whose bytes are those of its latest version."""

    job: ClaimedJob
    document: JobDocument
    content: Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A version whose passages wait for their vectors."""

    job: ClaimedJob
    version: NewVersion


def run_job(job: ClaimedJob, tools: Tools) -> JobReport:
    """Do one job to its end in the job row.

    Raises:
        PermanentError, TransientError: the attempt failed; the caller records it.
        LeaseLost: another worker holds the job; nothing was written.
    """
    with tools.work.stage("read", [job]):
        stopped = fetch_pending([job], tools.pool, tools.settings)
        with tools.pool.connection() as connection:
            documents = catalogue.for_jobs(connection, [job.document_id])
            read = read_document(connection, job, documents, tools.settings, stopped=stopped)
    if isinstance(read, JobReport):
        return read
    if isinstance(read, Unchanged):
        return keep([read], tools)[0]
    if isinstance(read, Ready):
        return serve(enrich([read], tools), tools)[0]
    (version_id,) = begin([read], tools)
    return serve(enrich([parse(read, version_id, tools)], tools), tools)[0]


def read_document(
    connection: Connection[Any],
    job: ClaimedJob,
    documents: Mapping[uuid.UUID, JobDocument],
    settings: Settings,
    *,
    stopped: Mapping[uuid.UUID, DocwellError] = MappingProxyType({}),
) -> Reading | Unchanged | Ready | JobReport:
    """Read what is there now; when there is nothing to take in, do the job to its end. `documents` are rows just read.

    An old version that a person wants back is ready as it is, and so is one whose contexts are asked for. `stopped`: those that
    could not be fetched, and why.

    Raises:
        PermanentError, TransientError, LeaseLost: as `run_job`.
    """
    document = documents.get(job.document_id)
    if document is None:
        raise jobs.LeaseLost(f"The document of job {job.job_id} was erased.", code="lease_lost")
    if job.kind == "delete":
        return _delete(connection, job)
    audience_id = _audience(connection, document)
    old = rollback.wanted_version(connection, job, document, audience_id)
    if old is not None:
        return Ready(job=job, version=old)
    try:
        if document.document_id in stopped:
            raise stopped[document.document_id]
        content = read_content(connection, document, max_bytes=settings.max_bytes)
    except Gone as error:
        now = catalogue.for_job(connection, job.document_id)
        if now is not None and (now.path, now.locator) != (document.path, document.locator):
            raise TransientError(f"{document.path} was moved to {now.path} meanwhile: tried again.", code="moved") from error
        if job.attempts == 1 and document.served_version is not None and _went_just_now(document, settings):
            raise TransientError(
                f"{document.path} went a moment ago. Editors save like that, and files move: it is looked for again.",
                code="gone_just_now",
                retry_after=settings.delete_grace_seconds,
            ) from error
        return _delete(connection, job)
    except Refused as refusal:
        return _skip_unread(connection, job, document, refusal)
    if _is_unchanged(document, content, audience_id, settings):
        as_served = again.as_served(connection, document) if document.contexts_asked else None
        if as_served is not None:
            return Ready(job=job, version=as_served)
        return Unchanged(job=job, document=document, content=content)
    rest = _rest_seconds(document, content, settings)
    if rest > 0:
        raise Postponed(
            f"{document.path} was written a moment ago: it is read when it has rested.", code="settling", retry_after=rest
        )
    fingerprint = _fingerprint(settings, content)
    begins = Beginning(document=document, content=content, audience_id=audience_id, fingerprint=fingerprint)
    return Reading(job=job, begins=begins)


def keep(unchanged: Sequence[Unchanged], tools: Tools) -> list[JobReport]:
    """End the jobs of documents that stay as they are.

    Raises:
        LeaseLost: one of the jobs is ours no more; nothing was written.
    """
    with tools.pool.connection() as connection, connection.transaction():
        jobs.fence(connection, *(one.job for one in unchanged))
        reruns = jobs.succeed_all(connection, [Success(job=one.job, result="unchanged") for one in unchanged])
        catalogue.record_unchanged(
            connection,
            {one.document.document_id: one.content for one in unchanged},
            again={one.document.document_id for one in unchanged if one.job.job_id in reruns},
        )
    return [JobReport(result="unchanged", rerun=one.job.job_id in reruns) for one in unchanged]


def begin(readings: Sequence[Reading], tools: Tools) -> list[int]:
    """Note that these bytes are being worked on; returns the `version_id` of each.

    Raises:
        LeaseLost: one of the jobs is ours no more; nothing was written.
    """
    with tools.pool.connection() as connection, connection.transaction():
        jobs.fence(connection, *(reading.job for reading in readings))
        versions = catalogue.begin_versions(connection, [reading.begins for reading in readings])
    return [versions[reading.job.document_id] for reading in readings]


def parse(reading: Reading, version_id: int, tools: Tools) -> Ready:
    """Parse and chunk in the cage. A document that is left out on purpose is a version without passages.

    Raises:
        PermanentError, TransientError: of the parser.
    """
    content = reading.begins.content
    number, audience_id = reading.begins.number, reading.begins.audience_id
    try:
        parsed = parse_and_chunk(
            reading.job,
            reading.begins.document.path + content.ending,
            content.data,
            heading=content.heading,
            cage=tools.cage,
            work=tools.work,
            settings=tools.settings,
        )
        version = version_of(parsed, content, version_id=version_id, number=number, audience_id=audience_id)
    except Skipped as skipped:
        version = NewVersion(
            version_id=version_id,
            number=number,
            audience_id=audience_id,
            state=DocumentState.SKIPPED,
            reason_code=skipped.code,
            reason=str(skipped),
            modified=content.modified,
        )
    return Ready(job=reading.job, version=version)


def serve(ready: Sequence[Ready], tools: Tools) -> list[JobReport]:
    """Embed what has no vector yet, and swap these versions in together.

    Raises:
        PermanentError, TransientError, LeaseLost: nothing was written.
    """
    for _ in range(_ROUNDS):
        try:
            return _embed_and_publish(ready, tools)
        except SpaceChanged:
            continue
    raise TransientError("The embedding model of the index was changed again and again meanwhile.", code="space_changed")


def _embed_and_publish(ready: Sequence[Ready], tools: Tools) -> list[JobReport]:
    held = [one.job for one in ready]
    chunks = {chunk.input_id: chunk for one in ready for chunk in one.version.chunks}
    targets = tools.models.targets(tools.pool, tools.embedder, tools.settings)
    space, embedder, model = targets.active.space, targets.active.embedder, targets.active.model
    with tools.pool.connection() as connection:
        wanted = chunks.keys() - inputs_with_vector(connection, space.space_id, list(chunks))
    beside: Beside | None = None
    vectors: dict[uuid.UUID, NDArray[np.float32]] = {}
    for _ in range(_ROUNDS):
        missing = {key: chunk for key, chunk in chunks.items() if key in wanted}
        if missing:
            with tools.work.stage("embed", held):
                vectors |= embed(embedder, missing, work=tools.work, pay=partial(_pay, ready, tools, model))
        if targets.beside is not None and beside is None:
            pay = partial(_pay, ready, tools, targets.beside.model)
            beside = embed_beside(targets.beside, chunks, pool=tools.pool, models=tools.models, work=tools.work, pay=pay)
        swaps = _swaps(ready, set(vectors))
        try:
            with tools.work.stage("publish", held), tools.pool.connection() as connection:
                done = publish(
                    connection,
                    swaps,
                    space=space,
                    vectors=vectors,
                    keep_versions=tools.settings.keep_versions,
                    beside=beside,
                )
        except VectorsMissing as gone:
            wanted = set(gone.inputs)
            continue
        return [
            JobReport(result=one.result, chunks=one.chunks, embedded=swap.embedded, rerun=one.rerun)
            for swap, one in zip(swaps, done, strict=True)
        ]
    raise TransientError("Other documents kept changing the same passages while this one was published.", code="busy")


def enrich(ready: Sequence[Ready], tools: Tools) -> list[Ready]:
    """Add what a paid model has to say of passages, where that is wanted. What fails there fails no document.

    Raises:
        LeaseLost: one of the jobs is ours no more; what was paid is kept.
    """
    wanted = [Wanted(job=one.job, version=one.version) for one in ready]
    versions = tools.enricher.enrich(wanted, tools.settings, tools.pool)
    return [replace(one, version=version) for one, version in zip(ready, versions, strict=True)]


def _pay(ready: Sequence[Ready], tools: Tools, model: str, use: TokenUse, embedded: Mapping[uuid.UUID, Chunk]) -> None:
    shares = shares_of(use, {one.job.document_id: one.version.chunks for one in ready}, embedded)
    with tools.pool.connection() as connection:
        record_embedding(connection, shares, model, tools.settings.prices)


def _swaps(ready: Sequence[Ready], embedded: set[uuid.UUID]) -> list[Swap]:
    """What is to be published. A passage that two of them hold was embedded for the first."""
    swaps = []
    for one in ready:
        own = embedded & {chunk.input_id for chunk in one.version.chunks}
        embedded -= own
        swaps.append(Swap(job=one.job, version=one.version, embedded=len(own)))
    return swaps


def _audience(connection: Connection[Any], document: JobDocument) -> int:
    readers = document.readers if document.readers is not None else document.source_readers
    return ensure_audience(connection, document.namespace_id, readers, restricted=document.source_readers is not None)


def _rest_seconds(document: JobDocument, content: Content, settings: Settings) -> float:
    """How long a folder's file has still to rest: who saves in place first makes it empty, and may write it in pieces.

    The watcher waits for that, but a job of an earlier change comes when it comes. A time in the future proves nothing.
    """
    if document.source_type != "folder" or content.modified_ns is None:
        return 0.0
    age = (time.time_ns() - content.modified_ns) / 1e9
    return settings.watch_settle_seconds - age if age >= 0 else 0.0


def _went_just_now(document: JobDocument, settings: Settings) -> bool:
    try:
        return gone_seconds(document, now_ns=time.time_ns()) < settings.delete_grace_seconds
    except OSError:
        return True


_WITH_TEXT = {"indexed", "partial"}
_SETTLED = {*_WITH_TEXT, "needs_ocr", "skipped"}


def _is_unchanged(document: JobDocument, content: Content, audience_id: int, settings: Settings) -> bool:
    """A newer parser alone is no reason to read it again: a person asks for that (see `reprocessing.py`). For a page without text
    it is one, since the newer one may find some.
    """
    fingerprint = document.latest_fingerprint or ""
    as_before = fingerprint == _fingerprint(settings, content)
    under_the_same = heading_of(fingerprint) == heading_mark(content.heading)
    return (
        document.sha256 == content.sha256
        and document.latest_state in _SETTLED
        and (as_before or (under_the_same and not document.reprocess and document.latest_state in _WITH_TEXT))
        and document.audience_id == audience_id
        and (document.served_version is not None or document.latest_state not in _WITH_TEXT)
    )


def _delete(connection: Connection[Any], job: ClaimedJob) -> JobReport:
    return JobReport(result="deleted", rerun=unpublish(connection, job))


def _skip_unread(connection: Connection[Any], job: ClaimedJob, document: JobDocument, refusal: Refused) -> JobReport:
    with connection.transaction():
        jobs.fence(connection, job)
        # What was served before is no longer what is there.
        withdraw(connection, document.document_id, state=DocumentState.SKIPPED, code=refusal.code, reason=str(refusal))
        catalogue.record_seen(connection, document.document_id, size=refusal.size, modified_ns=refusal.modified_ns)
        rerun = jobs.succeed(connection, job, "skipped")
        if rerun:
            catalogue.record_queued(connection, document.document_id)
    return JobReport(result="skipped", rerun=rerun)


def _fingerprint(settings: Settings, content: Content) -> str:
    own = parser_fingerprint(settings.chunk_tokens, settings.chunk_overlap, ocr_identity(ocr_settings(settings)))
    return own + heading_mark(content.heading)
