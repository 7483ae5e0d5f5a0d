"""Missing contexts of documents whose bytes are unchanged: asked for by the scheduler or a person, without reading the file."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import contexts, documents, versions
from ingest_worker.catalogue.documents import JobDocument
from ingest_worker.jobs import table as jobs
from ingest_worker.publish import NewVersion
from shared.config import Settings
from shared.documents import DocumentState

_AT_ONCE = 100


def as_served(connection: Connection[Any], document: JobDocument) -> NewVersion | None:
    """The version that is served, to be published again with the contexts that it lacks; None when another one is on its way."""
    if document.served_version is None or document.served_version != document.latest_version or document.pinned_version:
        return None
    kept = versions.kept_versions(connection, document.document_id)
    found = next((one for one in kept if one.number == document.served_version and one.has_text), None)
    if found is None:
        return None
    return NewVersion(
        version_id=found.version_id,
        number=found.number,
        audience_id=document.audience_id,
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
        contexts=True,
    )


def ask(
    connection: Connection[Any], wanted: Sequence[uuid.UUID], *, max_attempts: int, afresh: bool = False
) -> dict[uuid.UUID, uuid.UUID]:
    """Queue a look for missing contexts: `{document_id: job_id}`. Documents that are not served as they are now are left out.

    `afresh`: a person asks, so passages that failed are tried again at once.
    """
    with connection.transaction():
        if afresh:
            contexts.forget_failures(connection, wanted)
        asked = contexts.ask(connection, wanted)
        queued = jobs.enqueue(connection, asked, max_attempts=max_attempts)
        documents.record_queued(connection, *queued)
    return queued


def ask_for_due(connection: Connection[Any], settings: Settings) -> int:
    """The scheduler's sweep: documents whose missing contexts are due; returns how many were queued."""
    if settings.context_prefixes == "off":
        return 0
    with connection.transaction():
        due = contexts.take_due(connection, limit=_AT_ONCE, orders=settings.context_batches == "off")
        return len(ask(connection, due, max_attempts=settings.job_attempts)) if due else 0
