"""Documents that a person takes out of the index for good, and takes back."""

from __future__ import annotations

import uuid
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import fetches
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.listing import unknown_document
from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.publish import withdraw
from shared.documents import DocumentState

# Jobs before documents: the order in which every publisher holds them.
_HOLD_LIVE_JOB: LiteralString = """
    SELECT job_id FROM docwell.job WHERE document_id = %s AND state IN ('queued', 'running', 'retrying') FOR UPDATE
"""
_HOLD_DOCUMENT: LiteralString = "SELECT state FROM docwell.document WHERE document_id = %s FOR UPDATE"
_REASON = "A person excluded it. Take it back with `docwell documents include`."


def exclude(connection: Connection[Any], document_id: uuid.UUID) -> bool:
    """Take a document out of the index at once; no sweep, push or retry brings it back. False when it was out already.

    One transaction: its live job is cancelled, its versions go. Pushed bytes stay, for `include`.

    Raises:
        Unknown: there is no such document.
    """
    with connection.transaction():
        state = _hold(connection, document_id)
        if state == DocumentState.EXCLUDED:
            return False
        withdraw(connection, document_id, state=DocumentState.EXCLUDED, code="excluded", reason=_REASON)
        return True


def remove(connection: Connection[Any], document_id: uuid.UUID, *, reason: str) -> bool:
    """Take a document out of the index at once, as deleted; pushed bytes go too. False when it was out, or is excluded.

    One transaction: its live job is cancelled, its versions go. What brings its file back brings it back.

    Raises:
        Unknown: there is no such document.
    """
    with connection.transaction():
        if _hold(connection, document_id) in {DocumentState.EXCLUDED, DocumentState.DELETED}:
            return False
        withdraw(connection, document_id, state=DocumentState.DELETED, code="removed", reason=reason)
        connection.execute("DELETE FROM docwell.pushed_content WHERE document_id = %s", (document_id,))
        fetches.forget(connection, document_id)
        return True


def set_aside(connection: Connection[Any], document_id: uuid.UUID, *, code: str, reason: str) -> None:
    """What stands at the source now is not taken: nothing of the document is served, and no bytes of it are kept.

    In the caller's transaction; its live job is cancelled. An excluded document stays so.

    Raises:
        Unknown: there is no such document.
    """
    if _hold(connection, document_id) != DocumentState.EXCLUDED:
        withdraw(connection, document_id, state=DocumentState.SKIPPED, code=code, reason=reason)
        connection.execute("DELETE FROM docwell.pushed_content WHERE document_id = %s", (document_id,))


def include(connection: Connection[Any], document_id: uuid.UUID, *, max_attempts: int = 5) -> uuid.UUID:
    """Let an excluded document come back: returns the job that reads it again. The caller wakes a worker.

    Raises:
        Unknown: there is no such document.
        Conflict: it is not excluded.
    """
    with connection.transaction():
        state = _hold(connection, document_id, cancel=False)
        if state != DocumentState.EXCLUDED:
            raise Conflict(f"Document {document_id} is not excluded, it is {state}.", code="not_excluded")
        connection.execute(
            "UPDATE docwell.document SET state = 'queued', reason_code = NULL, reason = NULL, changed_at = now()"
            " WHERE document_id = %s",
            (document_id,),
        )
        return jobs.enqueue(connection, [document_id], max_attempts=max_attempts)[document_id]


def request_deletion(connection: Connection[Any], document_id: uuid.UUID, *, max_attempts: int = 5) -> uuid.UUID:
    """Queue the deletion that a person asked for: returns its job. The caller wakes a worker.

    Raises:
        Unknown: there is no such document, or it is deleted already.
        Conflict: it is excluded.
    """
    with connection.transaction():
        state = _hold(connection, document_id, cancel=False)
        if state == DocumentState.DELETED:
            raise unknown_document(str(document_id), " It is deleted already.")
        if state == DocumentState.EXCLUDED:
            raise Conflict(f"Document {document_id} is excluded: the index holds nothing of it.", code="excluded")
        return jobs.enqueue(connection, [document_id], kind="delete", max_attempts=max_attempts)[document_id]


def _hold(connection: Connection[Any], document_id: uuid.UUID, *, cancel: bool = True) -> str:
    live = [row[0] for row in connection.execute(_HOLD_LIVE_JOB, (document_id,)).fetchall()]
    if cancel and live:
        control.cancel(connection, live)
    row = connection.execute(_HOLD_DOCUMENT, (document_id,)).fetchone()
    if row is None:
        raise unknown_document(str(document_id))
    return str(row[0])
