"""The way of documents, as a story: read → parse → chunk → enrich → embed → publish. No transaction is open on the way.

Several are begun, embedded and published together, since a call and a commit cost much the same for one as for twenty.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ingest_worker.apart import Refusals, set_apart
from ingest_worker.beside import embed_beside
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.vectors import inputs_with_vector
from ingest_worker.embedding import embed, record_embedding, shares_of
from ingest_worker.enrich.caption_step import Captioner
from ingest_worker.enrich.step import Enricher, Wanted
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, Success
from ingest_worker.judging import version_of
from ingest_worker.parse.cage import ParserCage
from ingest_worker.parse.errors import Skipped
from ingest_worker.parsing import parse_and_chunk
from ingest_worker.picturing import describe, look_again, put_back, words_alone
from ingest_worker.publish import NewVersion, Swap, VectorsMissing, publish
from ingest_worker.reading import JobReport, Reading, Ready, Unchanged, gone_meanwhile, picture_limits, read_document
from ingest_worker.spaces import Models, SpaceChanged, SpaceVectors
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk, DocumentState
from shared.embedding.protocol import Embedder
from shared.errors import TransientError
from shared.prices import TokenUse

__all__ = ["JobReport", "Tools", "begin", "count_lacking", "enrich", "keep", "parse", "run_job", "serve"]

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
    captioner: Captioner = field(default_factory=Captioner)
    models: Models = field(default_factory=Models)
    refusals: Refusals = field(default_factory=Refusals)


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
    limits = picture_limits(reading.begins.document, tools.settings)
    try:
        parsed = parse_and_chunk(
            reading.job,
            reading.begins.document.path + content.ending,
            content.data,
            heading=content.heading,
            cage=tools.cage,
            work=tools.work,
            settings=tools.settings,
            pictures=limits,
        )
        version = version_of(parsed, content, version_id=version_id, number=number, audience_id=audience_id)
        pictures = parsed.pictures if limits is not None else None
    except Skipped as skipped:
        pictures = None
        version = NewVersion(
            version_id=version_id,
            number=number,
            audience_id=audience_id,
            state=DocumentState.SKIPPED,
            reason_code=skipped.code,
            reason=str(skipped),
            modified=content.modified,
        )
    return Ready(job=reading.job, version=version, pictures=pictures, document=reading.begins.document)


def count_lacking(ready: Ready, tools: Tools) -> int:
    """How many of its passages have no vector yet.

    Raises:
        ConfigurationError, Outage: of the model, as `Models.targets`.
    """
    inputs = {chunk.input_id for chunk in ready.version.chunks}
    space = tools.models.targets(tools.pool, tools.embedder, tools.settings).active.space
    with tools.pool.connection() as connection:
        return len(inputs - inputs_with_vector(connection, space.space_id, list(inputs)))


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
    documents = {one.job.document_id: one.version.chunks for one in ready}
    targets = tools.models.targets(tools.pool, tools.embedder, tools.settings)
    space, embedder, model = targets.active.space, targets.active.embedder, targets.active.model
    with tools.pool.connection() as connection:
        wanted = chunks.keys() - inputs_with_vector(connection, space.space_id, list(chunks))
        apart = set_apart(connection, targets.active, documents, wanted, tools.settings)
    beside: SpaceVectors | None = None
    vectors: dict[uuid.UUID, NDArray[np.float32]] = {}
    for _ in range(_ROUNDS):
        missing = {key: chunk for key, chunk in chunks.items() if key in wanted and key not in apart}
        if missing:
            with tools.work.stage("embed", held):
                made = embed(embedder, missing, work=tools.work, pay=partial(_pay, ready, tools, model))
            vectors |= made.vectors
            apart |= tools.refusals.judge(documents, made)
        if targets.beside is not None and beside is None:
            pay = partial(_pay, ready, tools, targets.beside.model)
            beside = embed_beside(
                targets.beside,
                documents,
                pool=tools.pool,
                models=tools.models,
                settings=tools.settings,
                work=tools.work,
                pay=pay,
            )
        swaps = _swaps(ready, set(vectors), gone_meanwhile(ready, tools.pool))
        try:
            with tools.work.stage("publish", held), tools.pool.connection() as connection:
                done = publish(
                    connection,
                    swaps,
                    space=space,
                    vectors=vectors,
                    apart=apart,
                    keep_versions=tools.settings.keep_versions,
                    beside=beside,
                )
        except VectorsMissing as gone:
            wanted = set(gone.inputs)
            with tools.pool.connection() as connection:
                apart |= set_apart(connection, targets.active, documents, wanted, tools.settings)
            continue
        return [
            JobReport(result=one.result, chunks=one.chunks, embedded=swap.embedded, rerun=one.rerun)
            for swap, one in zip(swaps, done, strict=True)
        ]
    raise TransientError("Other documents kept changing the same passages while this one was published.", code="busy")


def enrich(ready: Sequence[Ready], tools: Tools) -> list[Ready]:
    """Add what paid models have to say of passages and of pictures, where that is wanted. What fails there fails no document.

    Raises:
        LeaseLost: one of the jobs is ours no more; what was paid is kept.
    """
    look = partial(look_again, cage=tools.cage, work=tools.work, settings=tools.settings, pool=tools.pool)
    looked = [look(one) for one in ready]
    wanted = [Wanted(job=one.job, version=words_alone(one.version)) for one in looked]
    versions = tools.enricher.enrich(wanted, tools.settings, tools.pool)
    enriched = [replace(one, version=put_back(version, one.version)) for one, version in zip(looked, versions, strict=True)]
    return describe(enriched, tools.captioner, tools.settings, tools.pool)


def _pay(ready: Sequence[Ready], tools: Tools, model: str, use: TokenUse, embedded: Mapping[uuid.UUID, Chunk]) -> None:
    shares = shares_of(use, {one.job.document_id: one.version.chunks for one in ready}, embedded)
    with tools.pool.connection() as connection:
        record_embedding(connection, shares, model, tools.settings.prices)


def _swaps(ready: Sequence[Ready], embedded: set[uuid.UUID], gone: set[uuid.UUID]) -> list[Swap]:
    """What is to be published. A passage that two of them hold was embedded for the first."""
    swaps = []
    for one in ready:
        own = embedded & {chunk.input_id for chunk in one.version.chunks}
        embedded -= own
        swaps.append(Swap(job=one.job, version=one.version, embedded=len(own), gone=one.job.document_id in gone))
    return swaps
