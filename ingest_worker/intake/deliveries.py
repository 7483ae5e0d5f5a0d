"""What the generic webhook delivers: stored at once, each delivery one row, and applied in the order in which it came."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal

from psycopg import Connection

from ingest_worker.catalogue import changes, deliveries
from ingest_worker.catalogue.asking import Conflict, Unknown
from ingest_worker.catalogue.deliveries import Applied, Row, Waiting
from ingest_worker.catalogue.erasures import ERASED
from ingest_worker.catalogue.sources import PUSH, ensure_audience, ensure_namespace
from ingest_worker.intake.keeping import Facts, Pushed, again_after_conflict, take_in
from ingest_worker.intake.push import push_source, withdraw_pushed
from shared.errors import PermanentError

GENERIC = "generic"
"""The connection under which deliveries of the generic webhook are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A pushed document that is gone at its sender's, since then if it says so."""

    namespace: str
    path: str
    source_modified: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery: its id, the sha256 of its raw body, and what it says."""

    delivery_id: str
    body_sha256: bytes
    change: Pushed | Deletion


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What became of a delivery when it came: it waits, or it came before; then with what it has come to so far."""

    status: Literal["accepted", "duplicate"]
    document_id: uuid.UUID | None = None
    job_id: uuid.UUID | None = None


def store(connection: Connection[Any], came: Sequence[Delivery]) -> list[Stored | Conflict]:
    """Store deliveries in one transaction, an answer for each. What was refused or given up before waits again.

    `Conflict`: its id came before with another body.
    """
    rows: dict[str, Row] = {}
    for delivery in came:
        rows.setdefault(delivery.delivery_id, _row(delivery))
    with connection.transaction():
        waiting = deliveries.insert(connection, GENERIC, list(rows.values()))
        known = deliveries.find(connection, GENERIC, rows.keys() - waiting)
        for one in known.values():
            row = rows[one.delivery_id]
            same = bytes(one.body_sha256) == row.body_sha256
            if same and one.status in {"refused", "failed"} and deliveries.let_wait_again(connection, GENERIC, row):
                waiting.add(one.delivery_id)
        if waiting:
            deliveries.ring(connection)
    answers: list[Stored | Conflict] = []
    for delivery in came:
        before = known.get(delivery.delivery_id)
        digest = rows[delivery.delivery_id].body_sha256 if before is None else bytes(before.body_sha256)
        if digest != delivery.body_sha256:
            answers.append(_reused(delivery.delivery_id))
        elif delivery.delivery_id in waiting:
            waiting.remove(delivery.delivery_id)  # an equal one that came in the same moment is a duplicate
            answers.append(Stored(status="accepted"))
        elif before is None:
            answers.append(Stored(status="duplicate"))
        else:
            answers.append(Stored(status="duplicate", document_id=before.document_id, job_id=before.job_id))
    return answers


def _reused(delivery_id: str) -> Conflict:
    return Conflict(
        f"The delivery {delivery_id!r} came before with another body; nothing was changed. Give each event an id of its own, and"
        " send the same body when you try again.",
        code="delivery_id_reused",
    )


def _row(delivery: Delivery) -> Row:
    change = delivery.change
    if isinstance(change, Deletion):
        return Row(
            delivery_id=delivery.delivery_id,
            body_sha256=delivery.body_sha256,
            namespace=change.namespace,
            path=change.path,
            action="delete",
            facts=_facts_json(Facts(source_modified=change.source_modified)),
        )
    return Row(
        delivery_id=delivery.delivery_id,
        body_sha256=delivery.body_sha256,
        namespace=change.namespace,
        path=change.path,
        action="upsert",
        facts=_facts_json(change.facts),
        content=None if change.fetch is not None else change.content,
        sha256=change.sha256,
        size=change.size,
        fetch_url=change.fetch,
    )


def _facts_json(facts: Facts) -> bytes:
    plain = {field.name: getattr(facts, field.name) for field in fields(Facts)}
    plain["given"] = sorted(facts.given)
    plain["metadata"] = dict(facts.metadata)
    plain["source_modified"] = None if facts.source_modified is None else facts.source_modified.isoformat()
    return json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _facts(raw: bytes) -> Facts:
    plain = json.loads(raw.decode("utf-8", "surrogatepass"))
    modified, readers = plain["source_modified"], plain["readers"]
    return Facts(
        given=frozenset(plain["given"]),
        title=plain["title"],
        url=plain["url"],
        tags=tuple(plain["tags"]),
        metadata=plain["metadata"],
        readers=None if readers is None else tuple(readers),
        source_modified=None if modified is None else datetime.fromisoformat(modified),
        media_type=plain["media_type"],
        heading=tuple(plain["heading"]),
    )


@again_after_conflict
def apply(connection: Connection[Any], number: int, *, max_attempts: int = 5) -> Applied | None:
    """Apply one delivery that waits, in a transaction with the note of what it came to; None when it does not wait any more.

    `accepted` left a job to do: the caller wakes a worker. What is older than what is known of the document changes nothing.
    """
    # What it leaves is stored for good with the delivery itself: should this commit be lost, it is applied again.
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        delivery = deliveries.get_waiting(connection, number)
        if delivery is None:
            return None
        try:
            with connection.transaction():
                done = _apply(connection, delivery, max_attempts)
        except PermanentError as error:
            done = _Done(status="refused", code=error.code, reason=str(error))
            if error.code == ERASED:
                # Its name was erased too, and stays nowhere because somebody sent it once more.
                deliveries.forget_name(connection, number)
                done = replace(done, reason="It was erased.")
        deliveries.finish(
            connection,
            number,
            status=done.status,
            document_id=done.document_id,
            job_id=done.job_id,
            duplicate_of=done.duplicate_of,
            code=done.code,
            reason=done.reason,
        )
        return done.status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    status: Applied
    document_id: uuid.UUID | None = None
    job_id: uuid.UUID | None = None
    duplicate_of: uuid.UUID | None = None
    code: str | None = None
    reason: str | None = None


def _apply(connection: Connection[Any], delivery: Waiting, max_attempts: int) -> _Done:
    facts = _facts(delivery.facts)
    modified = facts.source_modified
    document_id, newest = changes.newest_modified(connection, PUSH, delivery.namespace, delivery.path)
    if modified is not None and newest is not None and modified < newest:
        return _Done(status="superseded", document_id=document_id)
    if delivery.attempts and deliveries.was_passed(connection, delivery):
        return _Done(status="superseded", document_id=document_id)
    if delivery.action == "delete":
        done = _delete(connection, delivery, modified, document_id, max_attempts)
    else:
        done = _upsert(connection, delivery, facts, max_attempts)
    if modified is not None and done.document_id is not None:
        changes.note_modified(connection, done.document_id, modified)
    return done


def _upsert(connection: Connection[Any], delivery: Waiting, facts: Facts, max_attempts: int) -> _Done:
    pushed = Pushed(
        namespace=delivery.namespace,
        path=delivery.path,
        content=delivery.content or b"",
        sha256=delivery.sha256 or b"",
        size=delivery.size,
        facts=facts,
        fetch=delivery.fetch_url,
    )
    namespace_id = ensure_namespace(connection, delivery.namespace)
    done = take_in(connection, push_source(connection), namespace_id, pushed, max_attempts=max_attempts)
    return _Done(
        status="accepted" if done.changed else "unchanged",
        document_id=done.document_id,
        job_id=done.job_id,
        duplicate_of=None if done.duplicate_of is None else done.duplicate_of.document_id,
    )


def _delete(
    connection: Connection[Any], delivery: Waiting, modified: datetime | None, document_id: uuid.UUID | None, max_attempts: int
) -> _Done:
    """Whoever deletes what is not there has what they want; an excluded document stays excluded."""
    if document_id is not None:
        try:
            with connection.transaction():
                _, job_id = withdraw_pushed(connection, delivery.namespace, delivery.path, max_attempts=max_attempts)
        except (Unknown, Conflict):
            return _Done(status="unchanged", document_id=document_id)
        return _Done(status="accepted", document_id=document_id, job_id=job_id)
    if modified is None:
        return _Done(status="unchanged")
    source = push_source(connection)
    namespace_id = ensure_namespace(connection, delivery.namespace)
    audience_id = ensure_audience(connection, namespace_id, source.readers, restricted=source.readers is not None)
    made = changes.note_deleted(
        connection,
        source_id=source.source_id,
        namespace_id=namespace_id,
        audience_id=audience_id,
        path=delivery.path,
        modified=modified,
    )
    return _Done(status="unchanged", document_id=made)
