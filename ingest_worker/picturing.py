"""Captions on a document's way: set apart while contexts are bought, and made of the pictures of its file afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from ingest_worker.catalogue import captions
from ingest_worker.enrich.caption_step import Captioner, Shown
from ingest_worker.parse.cage import ParserCage
from ingest_worker.parsing import parse_and_chunk
from ingest_worker.publish import NewVersion
from ingest_worker.reading import Ready, picture_limits
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import ChunkKind
from shared.errors import PermanentError

log = structlog.get_logger(__name__)


def look_again(ready: Ready, *, cage: ParserCage, work: Work, settings: Settings, pool: Pool) -> Ready:
    """With the pictures of its file, where somebody asked for captions that a version lacks which is served already.

    A file whose pictures cannot be cut out any more keeps the captions that it has.

    Raises:
        TransientError: of the parser.
    """
    if ready.again is None:
        return ready
    document, content = ready.again.begins.document, ready.again.begins.content
    try:
        parsed = parse_and_chunk(
            ready.job,
            document.path + content.ending,
            content.data,
            heading=content.heading,
            cage=cage,
            work=work,
            settings=settings,
            pictures=picture_limits(document, settings),
        )
    except PermanentError as error:
        pictures, code, reason = None, error.code, str(error)
    else:
        pictures, code, reason = parsed.pictures, "pictures_unread", " ".join(parsed.warnings)
    if pictures is None:
        log.warning("pictures_not_cut_out", path=document.path, code=code, reason=reason)
        with pool.connection() as connection:
            captions.note_failure(connection, document.document_id, code=code, reason=reason)
    return replace(ready, again=None, pictures=pictures, version=replace(ready.version, captioned=True))


def words_alone(version: NewVersion) -> NewVersion:
    """The version without its captions: a model that places passages is shown the document's own words."""
    if all(chunk.kind is not ChunkKind.CAPTION for chunk in version.chunks):
        return version
    return replace(version, chunks=tuple(chunk for chunk in version.chunks if chunk.kind is not ChunkKind.CAPTION))


def put_back(version: NewVersion, before: NewVersion) -> NewVersion:
    """The version with the captions that it had before `words_alone`, each in its place."""
    if len(version.chunks) == len(before.chunks):
        return version
    words = iter(version.chunks)
    return replace(version, chunks=tuple(chunk if chunk.kind is ChunkKind.CAPTION else next(words) for chunk in before.chunks))


def describe(ready: Sequence[Ready], captioner: Captioner, settings: Settings, pool: Pool) -> list[Ready]:
    """With captions of those pictures that were looked for. What fails there fails no document.

    Raises:
        LeaseLost: one of the jobs is ours no more; what was paid is kept.
    """
    return [
        one
        if one.pictures is None
        else replace(
            one,
            pictures=None,
            version=captioner.caption(Shown(job=one.job, version=one.version, pictures=one.pictures), settings, pool),
        )
        for one in ready
    ]
