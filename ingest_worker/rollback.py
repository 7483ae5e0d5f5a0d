"""Serving an old version again: asked for at once, done as a job, since its passages have to be embedded anew.

Requests count in the order in which they are made. What was on its way when a person rolled back is read and kept, and not
served. Bytes that are asked for later, and differ from the newest version's, are served as always; bytes that do not differ
leave the old version where it is, whatever else has changed: the parser, or the readers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import versions
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.documents import JobDocument
from ingest_worker.catalogue.listing import unknown_document
from ingest_worker.catalogue.versions import KeptVersion, Standing
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.publish import NewVersion
from shared.documents import DocumentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """A rollback that was asked for: the version to be served, the one that was served before, and the job that does it."""

    document_id: uuid.UUID
    version: int
    before: int | None
    job_id: uuid.UUID


def request_rollback(
    connection: Connection[Any], document_id: uuid.UUID, number: int | None = None, *, max_attempts: int = 5
) -> Rollback:
    """Ask for version `number`, or the newest one before that which is served. The caller wakes a worker.

    Raises:
        Unknown: there is no such document.
        Conflict: it is deleted, excluded or being deleted, or that version is not kept, has no text, or is served already.
    """
    with connection.transaction():
        standing = versions.hold_standing(connection, document_id)
        if standing is None:
            raise unknown_document(str(document_id))
        chosen = _choose(standing, versions.kept_versions(connection, document_id), number)
        versions.pin(connection, document_id, chosen)
        enqueued = jobs.enqueue(connection, [document_id], kind="rollback", version=chosen, max_attempts=max_attempts)
    return Rollback(document_id=document_id, version=chosen, before=standing.served_version, job_id=enqueued[document_id])


def _choose(standing: Standing, kept: Sequence[KeptVersion], number: int | None) -> int:
    path = standing.path
    if standing.state == DocumentState.EXCLUDED:
        raise Conflict(f"{path} is excluded: no version is kept. Take it back with `docwell documents include`.", code="excluded")
    if standing.state == DocumentState.DELETED or (standing.live_kind, standing.live_state) == ("delete", "running"):
        raise Conflict(f"{path} is deleted: no version is kept. It comes back with its file.", code="deleted")
    with_text = [one.number for one in kept if one.has_text]
    if number is None:
        before = [one for one in with_text if standing.served_version is None or one < standing.served_version]
        if not before:
            raise Conflict(f"No older version of {path} can be served. {_can_be_served(with_text)}", code="not_kept")
        return before[0]
    found = next((one for one in kept if one.number == number), None)
    if found is None:
        raise Conflict(f"Version {number} of {path} is not kept. {_can_be_served(with_text)}", code="not_kept")
    if not found.has_text:
        why = f" ({found.reason})" if found.reason else ""
        raise Conflict(
            f"Version {number} of {path} is {found.state} and has no text to serve{why}. {_can_be_served(with_text)}",
            code="no_text",
        )
    if number == standing.served_version and standing.pinned_version in {None, number}:
        raise Conflict(f"Version {number} of {path} is served already.{_newer(standing)}", code="served_already")
    return number


def _can_be_served(numbers: Sequence[int]) -> str:
    if not numbers:
        return "No version with text is kept."
    return f"Kept with text: {', '.join(map(str, numbers))}; `docwell documents history` shows all."


def _newer(standing: Standing) -> str:
    if standing.live_job is None:
        return ""
    return f" What is on its way is kept out with `docwell jobs cancel {standing.live_job}`."


_POLL_SECONDS = 0.1
_OUTCOME: LiteralString = """
    SELECT d.served_version = %(version)s AS is_served, j.state IN ('succeeded', 'dead', 'cancelled') AS is_over
    FROM docwell.document d LEFT JOIN docwell.job j ON j.job_id = %(job)s
    WHERE d.document_id = %(document)s
"""


def wait_until_served(connection: Connection[Any], asked: Rollback, *, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until the version is served (True), or until it will not be (False): the job ended, or the document is gone."""
    values = {"version": asked.version, "job": asked.job_id, "document": asked.document_id}
    while True:
        is_served, is_over = connection.execute(_OUTCOME, values).fetchone() or (False, True)
        if is_served:
            return True
        if is_over is None or is_over:
            return False
        sleep(_POLL_SECONDS)


def wanted_version(connection: Connection[Any], job: ClaimedJob, document: JobDocument, audience_id: int) -> NewVersion | None:
    """The version that this job has to serve again for these readers; None when it has to look at the source.

    A rollback looks there only when its version is not kept any more; any other job afterwards, in a run of its own.
    """
    number = document.pinned_version
    if number is None:
        return None
    if job.kind != "rollback" and (document.served_version, document.audience_id) == (number, audience_id):
        return None
    kept = versions.kept_versions(connection, document.document_id)
    found = next((one for one in kept if one.number == number and one.has_text), None)
    if found is None:
        versions.unpin(connection, [document.document_id])
        return None
    return _again(connection, found, audience_id)


def served_for_others(connection: Connection[Any], document: JobDocument, audience_id: int) -> NewVersion | None:
    """The version that is served, for these readers; None when it is served to them already, or there is none."""
    if document.served_version is None or document.audience_id == audience_id:
        return None
    kept = versions.kept_versions(connection, document.document_id)
    found = next((one for one in kept if one.number == document.served_version and one.has_text), None)
    return None if found is None else _again(connection, found, audience_id)


def _again(connection: Connection[Any], found: KeptVersion, audience_id: int) -> NewVersion:
    return NewVersion(
        version_id=found.version_id,
        number=found.number,
        audience_id=audience_id,
        state=DocumentState(found.state),
        reason_code=found.reason_code,
        reason=found.reason,
        media_type=found.media_type,
        title=found.title,
        encoding=found.encoding,
        page_count=found.page_count,
        pages_with_text=found.pages_with_text,
        warnings=tuple(found.warnings),
        modified=found.modified,
        chunks=versions.load_chunks(connection, found.version_id),
        again=True,
    )
