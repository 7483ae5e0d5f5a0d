"""Documents that others push to us: bytes, facts and job are stored in one transaction before anything is answered."""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import fetches
from ingest_worker.catalogue.asking import BadQuestion
from ingest_worker.catalogue.exclusion import request_deletion
from ingest_worker.catalogue.listing import unknown_document
from ingest_worker.catalogue.sources import PUSH, Source, ensure_namespace, ensure_source, get_source, set_confinement
from ingest_worker.intake.keeping import Accepted, Facts, Pushed, again_after_conflict, keep_bytes, take_in
from shared.config import Settings
from shared.source_settings import PushSettings
from shared.text import normalise_path

__all__ = [
    "Accepted",
    "Facts",
    "Pushed",
    "accept",
    "checked_path",
    "confine_pushed",
    "keep_bytes",
    "push_source",
    "withdraw_pushed",
]

LONGEST_PATH_BYTES = 1024
"""UTF-8; PostgreSQL's index on the path takes some 2,700 bytes."""


def checked_path(path: str) -> str:
    """A pushed document's path in its one spelling: NFC, `/` between its parts.

    Raises:
        BadQuestion: empty, absolute, with an empty, `.` or `..` part, with control characters, not UTF-8, or too long.
    """
    spelled = normalise_path(path)
    wrong = None
    if not spelled:
        wrong = "it is empty"
    elif spelled.startswith("/"):
        wrong = "it begins with `/`; paths are relative"
    elif any(part in {"", ".", ".."} for part in spelled.split("/")):
        wrong = "it has an empty part, `.` or `..`"
    elif any(ord(character) < 32 or 127 <= ord(character) < 160 for character in spelled):
        wrong = "it has control characters"
    elif "\ufffd" in spelled or any("\ud800" <= character <= "\udfff" for character in spelled):
        wrong = "it is not UTF-8"
    elif len(spelled.encode()) > LONGEST_PATH_BYTES:
        wrong = f"it is longer than {LONGEST_PATH_BYTES} bytes"
    if wrong is not None:
        raise BadQuestion(f"The path {path[:200]!r} cannot name a document: {wrong}.", code="bad_path")
    return spelled


@again_after_conflict
def accept(connection: Connection[Any], pushed: Pushed, *, max_attempts: int = 5) -> Accepted:
    """Store a pushed document and its job in one transaction. The caller wakes a worker when something changed.

    Tags, metadata, URL and, while the bytes are the same, the title apply at once; readers with the job, which moves the
    document's passages to those who may see them.

    Raises:
        Conflict: the document is excluded, or its path or bytes were erased.
    """
    with connection.transaction():
        namespace_id = ensure_namespace(connection, pushed.namespace)
        return take_in(connection, push_source(connection), namespace_id, pushed, max_attempts=max_attempts)


def withdraw_pushed(
    connection: Connection[Any], namespace: str, path: str, *, max_attempts: int = 5
) -> tuple[uuid.UUID, uuid.UUID]:
    """Queue the deletion of a pushed document: `(document_id, job_id)`. The caller wakes a worker.

    Raises:
        Unknown: nothing is there, or it is deleted already.
        Conflict: it is excluded.
    """
    row = connection.execute(
        "SELECT d.document_id FROM docwell.document d JOIN docwell.source s USING (source_id)"
        " JOIN docwell.namespace n ON n.namespace_id = d.namespace_id WHERE s.name = %s AND n.name = %s AND d.path = %s",
        (PUSH, namespace, path),
    ).fetchone()
    if row is None:
        raise unknown_document(f"{PUSH}:{namespace}:{path}", " Nothing was pushed there.")
    with connection.transaction():
        job_id = request_deletion(connection, row[0], max_attempts=max_attempts)
        fetches.forget(connection, row[0])
    return row[0], job_id


def push_source(connection: Connection[Any]) -> Source:
    """The source that every pushed document belongs to, made at the first push."""
    return get_source(connection, PUSH) or ensure_source(connection, PUSH, kind=PUSH)


def confine_pushed(connection: Connection[Any], settings: Settings) -> None:
    """What of the pushed documents may go to paid services, as `[[sources]]` says it now; without a table everything may."""
    told = next((source for source in settings.sources if isinstance(source, PushSettings)), None)
    with connection.transaction():
        source = get_source(connection, PUSH)
        if told is not None:
            set_confinement(
                connection, source or push_source(connection), enrich=told.enrich, embed_anyway=told.embed == "anyway"
            )
        elif source is not None and source.type == PUSH:
            set_confinement(connection, source, enrich=True, embed_anyway=False)
