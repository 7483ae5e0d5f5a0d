"""What the generic webhook delivers: taken once, in the order of changes, in one transaction with the note that it was taken."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg import Connection

from ingest_worker.catalogue import deliveries
from ingest_worker.catalogue.asking import Conflict, Unknown
from ingest_worker.catalogue.erasures import Place
from ingest_worker.catalogue.sources import PUSH, ensure_audience, ensure_namespace
from ingest_worker.intake.keeping import Pushed, again_after_conflict, take_in
from ingest_worker.intake.push import push_source, withdraw_pushed

GENERIC = "generic"
"""The connection under which deliveries of the generic webhook are remembered."""

Status = Literal["accepted", "unchanged", "superseded", "duplicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery: its id, and the sha256 of its raw body."""

    delivery_id: str
    body_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A pushed document that is gone at its sender's, since then if it says so."""

    namespace: str
    path: str
    source_modified: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a delivery came to. Only `accepted` left a job to do: the caller wakes a worker."""

    status: Status
    document_id: uuid.UUID | None = None
    job_id: uuid.UUID | None = None
    duplicate_of: Place | None = None


@again_after_conflict
def deliver(connection: Connection[Any], delivery: Delivery, event: Pushed | Deletion, *, max_attempts: int = 5) -> Outcome:
    """Take a delivery, unless it was taken before or is older than what is known of its document.

    Raises:
        Conflict: its id was used for another body, the document is excluded, or its path or bytes were erased; it is not noted.
    """
    with connection.transaction():
        return _deliver(connection, delivery, event, max_attempts)


def _deliver(connection: Connection[Any], delivery: Delivery, event: Pushed | Deletion, max_attempts: int) -> Outcome:
    before = deliveries.remember(connection, GENERIC, delivery.delivery_id, delivery.body_sha256)
    if before is not None:
        if bytes(before.body_sha256) != delivery.body_sha256:
            raise Conflict(
                f"The delivery {delivery.delivery_id!r} came before with another body; nothing was changed. Give each event an id"
                " of its own, and send the same body when you try again.",
                code="delivery_id_reused",
            )
        return Outcome(status="duplicate", document_id=before.document_id, job_id=before.job_id)
    outcome = _apply(connection, event, max_attempts)
    deliveries.finish(
        connection,
        GENERIC,
        delivery.delivery_id,
        status=outcome.status,
        document_id=outcome.document_id,
        job_id=outcome.job_id,
    )
    return outcome


def _apply(connection: Connection[Any], event: Pushed | Deletion, max_attempts: int) -> Outcome:
    modified = event.source_modified if isinstance(event, Deletion) else event.facts.source_modified
    document_id, newest = deliveries.newest_modified(connection, PUSH, event.namespace, event.path)
    if modified is not None and newest is not None and modified < newest:
        return Outcome(status="superseded", document_id=document_id)
    if isinstance(event, Deletion):
        outcome = _delete(connection, event, document_id, max_attempts)
    else:
        namespace_id = ensure_namespace(connection, event.namespace)
        done = take_in(connection, push_source(connection), namespace_id, event, max_attempts=max_attempts)
        outcome = Outcome(
            status="accepted" if done.changed else "unchanged",
            document_id=done.document_id,
            job_id=done.job_id,
            duplicate_of=done.duplicate_of,
        )
    if modified is not None and outcome.document_id is not None:
        deliveries.note_modified(connection, outcome.document_id, modified)
    return outcome


def _delete(connection: Connection[Any], event: Deletion, document_id: uuid.UUID | None, max_attempts: int) -> Outcome:
    """Whoever deletes what is not there has what they want; an excluded document stays excluded."""
    if document_id is not None:
        try:
            with connection.transaction():
                _, job_id = withdraw_pushed(connection, event.namespace, event.path, max_attempts=max_attempts)
        except (Unknown, Conflict):
            return Outcome(status="unchanged", document_id=document_id)
        return Outcome(status="accepted", document_id=document_id, job_id=job_id)
    if event.source_modified is None:
        return Outcome(status="unchanged")
    source = push_source(connection)
    namespace_id = ensure_namespace(connection, event.namespace)
    audience_id = ensure_audience(connection, namespace_id, source.readers, restricted=source.readers is not None)
    made = deliveries.note_deleted(
        connection,
        source_id=source.source_id,
        namespace_id=namespace_id,
        audience_id=audience_id,
        path=event.path,
        modified=event.source_modified,
    )
    return Outcome(status="unchanged", document_id=made)
