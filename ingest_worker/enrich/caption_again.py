"""Missing captions of documents whose bytes are unchanged: asked for by the scheduler or a person."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import captions, documents
from ingest_worker.jobs import table as jobs
from shared.config import Settings

_AT_ONCE = 100


def ask_captions(connection: Connection[Any], wanted: Sequence[uuid.UUID], *, max_attempts: int) -> dict[uuid.UUID, uuid.UUID]:
    """Queue a look for missing captions: `{document_id: job_id}`. Documents that are not served as they are now are left out."""
    with connection.transaction():
        asked = captions.ask(connection, wanted)
        queued = jobs.enqueue(connection, asked, max_attempts=max_attempts)
        documents.record_queued(connection, *queued)
    return queued


def ask_for_due_captions(connection: Connection[Any], settings: Settings) -> int:
    """The scheduler's sweep: documents whose missing captions are due; returns how many were queued."""
    if settings.vision_captions == "off":
        return 0
    with connection.transaction():
        due = captions.take_due(connection, limit=_AT_ONCE)
        return len(ask_captions(connection, due, max_attempts=settings.job_attempts)) if due else 0
