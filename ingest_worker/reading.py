"""The first step of a job: what is there now, and whether there is anything to take in.

What ends here, a deletion or a file that is left out, ends in the job row.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from psycopg import Connection

from ingest_worker import rollback
from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.documents import Beginning, Content, JobDocument
from ingest_worker.catalogue.sources import ensure_audience
from ingest_worker.enrich import again
from ingest_worker.intake.read import Gone, Refused, gone_seconds, is_gone, read_content
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.fingerprint import ocr_settings, parser_fingerprint
from ingest_worker.parse.ocr import ocr_identity
from ingest_worker.parse.pictures import Picture, PictureLimits
from ingest_worker.parsing import heading_mark, heading_of
from ingest_worker.publish import NewVersion, unpublish, withdraw
from shared.config import Settings
from shared.database import Pool
from shared.documents import DocumentState
from shared.errors import DocwellError, Postponed, TransientError


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
    """A version whose passages wait for their vectors.

    `pictures` are those of its file; None: nobody looked for them, and its captions stay as they are. `again` is what they are to
    be looked for in. `document` is the row by which its bytes were read just now; None: it was there before.
    """

    job: ClaimedJob
    version: NewVersion
    pictures: tuple[Picture, ...] | None = None
    again: Reading | None = None
    document: JobDocument | None = None

    @property
    def size(self) -> int:
        """Bytes held in memory beside its passages."""
        own = self.again.size if self.again is not None else 0
        return own + sum(len(picture.data) + len(picture.thumbnail) for picture in self.pictures or ())


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
    except DocwellError:
        served = _for_new_readers(connection, job, document, audience_id)
        if served is None:
            raise
        return served
    if job.attempts > 1 or document.sha256 != content.sha256 or document.latest_state not in _WITH_TEXT:
        served = _for_new_readers(connection, job, document, audience_id)
        if served is not None:
            return served
    if _is_unchanged(document, content, audience_id, settings):
        wants_captions = document.captions_asked and settings.vision_captions == "on"
        as_served = again.as_served(connection, document) if document.contexts_asked or wants_captions else None
        if as_served is not None:
            begins = Beginning(document=document, content=content, audience_id=audience_id, fingerprint="")
            return Ready(job=job, version=as_served, again=Reading(job=job, begins=begins) if wants_captions else None)
        if document.served_version is not None or not wants_captions:
            return Unchanged(job=job, document=document, content=content)
    rest = _rest_seconds(document, content, settings)
    if rest > 0:
        raise Postponed(
            f"{document.path} was written a moment ago: it is read when it has rested.", code="settling", retry_after=rest
        )
    fingerprint = _fingerprint(settings, content)
    begins = Beginning(document=document, content=content, audience_id=audience_id, fingerprint=fingerprint)
    return Reading(job=job, begins=begins)


def gone_meanwhile(ready: Sequence[Ready], pool: Pool) -> set[uuid.UUID]:
    """The documents whose files went while their versions were on their way, which can take minutes."""
    gone = {one.document.document_id for one in ready if one.document is not None and is_gone(one.document)}
    if not gone:
        return gone
    with pool.connection() as connection:
        now = catalogue.for_jobs(connection, list(gone))
    # One that moved, and is known to have moved, is not gone.
    return {document_id for document_id, document in now.items() if is_gone(document)}


def _for_new_readers(connection: Connection[Any], job: ClaimedJob, document: JobDocument, audience_id: int) -> Ready | None:
    """What is served, where others may read the document by now; its bytes are looked at in a run of its own afterwards.

    Those who may read it no more must not keep it for as long as its new bytes cannot be had or read.
    """
    served = None if job.kind == "rollback" else rollback.served_for_others(connection, document, audience_id)
    return None if served is None else Ready(job=job, version=served)


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
    has_text = document.latest_state in _WITH_TEXT and not document.only_captions
    return (
        document.sha256 == content.sha256
        and document.latest_state in _SETTLED
        and (as_before or (under_the_same and not document.reprocess and has_text))
        and document.audience_id == audience_id
        and (document.served_version is not None or document.latest_state not in _WITH_TEXT)
    )


def picture_limits(document: JobDocument, settings: Settings) -> PictureLimits | None:
    """What is cut out of the document's file; None: nothing. Captions that were bought stay when no more are."""
    if (settings.vision_captions == "on" and document.enrich) or document.has_captions:
        return PictureLimits(pictures=settings.caption_pictures)
    return None


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
