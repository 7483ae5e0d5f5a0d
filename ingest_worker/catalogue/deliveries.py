"""Deliveries of the generic webhook as they wait, are applied and are remembered. All SQL of that table stands here."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.erasures import Place
from ingest_worker.catalogue.sources import PUSH

KEPT_DAYS = 30
"""How long a delivery is remembered; senders give up after a few days."""

CHANNEL = "docwell_delivery"
"""PostgreSQL tells whoever listens there that deliveries wait."""

MOST_ATTEMPTS = 5
_FIRST_WAIT_SECONDS = 10

Applied = Literal["accepted", "unchanged", "superseded", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A delivery with what it brings. `facts` is JSON, `content` zlib, `sha256` and `size` are those of the bytes in it."""

    delivery_id: str
    body_sha256: bytes
    namespace: str
    path: str
    action: Literal["upsert", "delete"]
    facts: bytes
    content: bytes | None = None
    sha256: bytes | None = None
    size: int = 0
    fetch_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A delivery that came before, and what it came to so far."""

    delivery_id: str
    body_sha256: bytes
    status: str
    document_id: uuid.UUID | None
    job_id: uuid.UUID | None


_INSERT: LiteralString = """
    INSERT INTO docwell.delivery
        (connection, delivery_id, body_sha256, namespace, path, action, facts, content, sha256, size, fetch_url)
    SELECT %(connection)s, brought.*
    FROM unnest(%(delivery_id)s::text[], %(body_sha256)b::bytea[], %(namespace)s::text[], %(path)s::text[], %(action)s::text[],
                %(facts)b::bytea[], %(content)b::bytea[], %(sha256)b::bytea[], %(size)s::bigint[], %(fetch_url)s::text[])
        AS brought
    ON CONFLICT (connection, delivery_id) DO NOTHING
    RETURNING delivery_id
"""
_KNOWN: LiteralString = """
    SELECT delivery_id, body_sha256, status, document_id, job_id FROM docwell.delivery
    WHERE connection = %s AND delivery_id = ANY (%s)
"""


def insert(connection: Connection[Any], name: str, rows: Sequence[Row]) -> set[str]:
    """Let deliveries of different ids wait, in the caller's transaction; returns the ids of those that were new.

    One that another transaction is storing is waited for.
    """
    values: dict[str, Any] = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Row)}
    return {row[0] for row in connection.execute(_INSERT, {**values, "connection": name}).fetchall()}


def find(connection: Connection[Any], name: str, ids: Collection[str]) -> dict[str, Known]:
    """Those of these deliveries that are remembered."""
    with connection.cursor(row_factory=class_row(Known)) as cursor:
        return {one.delivery_id: one for one in cursor.execute(_KNOWN, (name, list(ids))).fetchall()}


_AGAIN: LiteralString = """
    UPDATE docwell.delivery SET status = 'waiting', facts = %(facts)s, content = %(content)b, sha256 = %(sha256)b,
        size = %(size)s, fetch_url = %(fetch_url)s, namespace = %(namespace)s, path = %(path)s, action = %(action)s,
        attempts = 0, next_at = now(), code = NULL, reason = NULL, applied_at = NULL
    WHERE connection = %(connection)s AND delivery_id = %(delivery_id)s AND status IN ('refused', 'failed')
"""


def let_wait_again(connection: Connection[Any], name: str, row: Row) -> bool:
    """A delivery that was refused or given up has been sent again: it waits in its old place; False when it is neither."""
    values = {field.name: getattr(row, field.name) for field in fields(Row)}
    return connection.execute(_AGAIN, {**values, "connection": name}).rowcount == 1


def ring(connection: Connection[Any]) -> None:
    """Tell whoever listens, when the caller's transaction commits."""
    connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))


_TURN: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended('docwell.delivery', 0))"
_END_TURN: LiteralString = "SELECT pg_advisory_unlock(hashtextextended('docwell.delivery', 0))"


def take_turn(connection: Connection[Any]) -> bool:
    """Be the one who applies deliveries until `end_turn`, or the end of the connection; False while somebody else is."""
    row = connection.execute(_TURN).fetchone()
    return row is not None and bool(row[0])


def end_turn(connection: Connection[Any]) -> None:
    """Let others apply."""
    connection.execute(_END_TURN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Row):
    """A delivery that is to be applied, and how often that was tried."""

    number: int
    attempts: int


_DUE: LiteralString = """
    SELECT number FROM docwell.delivery WHERE status = 'waiting' AND next_at <= clock_timestamp() ORDER BY number LIMIT %s
"""
_WAITING: LiteralString = """
    SELECT number, attempts, delivery_id, body_sha256, namespace, path, action, facts, content, sha256, size, fetch_url
    FROM docwell.delivery WHERE number = %s AND status = 'waiting'
"""


def due(connection: Connection[Any], *, limit: int) -> list[int]:
    """The numbers of the oldest deliveries that are to be applied now."""
    return [row[0] for row in connection.execute(_DUE, (limit,)).fetchall()]


def get_waiting(connection: Connection[Any], number: int) -> Waiting | None:
    """A delivery with what it brings; None when it does not wait any more."""
    with connection.cursor(row_factory=class_row(Waiting), binary=True) as cursor:
        return cursor.execute(_WAITING, (number,)).fetchone()


_PASSED: LiteralString = """
    SELECT EXISTS (SELECT 1 FROM docwell.delivery WHERE (namespace, path) = (%(namespace)s, %(path)s) AND number > %(number)s
                   AND status IN ('accepted', 'unchanged'))
"""


def was_passed(connection: Connection[Any], delivery: Waiting) -> bool:
    """Whether a delivery that came later has been applied to the same document already."""
    values = {"namespace": delivery.namespace, "path": delivery.path, "number": delivery.number}
    row = connection.execute(_PASSED, values).fetchone()
    return row is not None and bool(row[0])


# With each delivery some old ones go: so their number follows what comes in thirty days, and nobody has to sweep.
_FINISH: LiteralString = """
    WITH forgotten AS (
        DELETE FROM docwell.delivery WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM docwell.delivery WHERE received_at < now() - make_interval(days => %(days)s) AND status <> 'waiting'
            ORDER BY received_at LIMIT 2 FOR UPDATE SKIP LOCKED
        ))
    )
    UPDATE docwell.delivery SET status = %(status)s, document_id = %(document)s, job_id = %(job)s, duplicate_of = %(twin)s,
        code = %(code)s, reason = %(reason)s, applied_at = now(), facts = NULL, content = NULL, fetch_url = NULL
    WHERE number = %(number)s
"""


def finish(
    connection: Connection[Any],
    number: int,
    *,
    status: Applied,
    document_id: uuid.UUID | None = None,
    job_id: uuid.UUID | None = None,
    duplicate_of: uuid.UUID | None = None,
    code: str | None = None,
    reason: str | None = None,
) -> None:
    """Note what a delivery came to, keep what it brought no longer, and forget two that are older than `KEPT_DAYS`."""
    values = {
        "days": KEPT_DAYS,
        "number": number,
        "status": status,
        "document": document_id,
        "job": job_id,
        "twin": duplicate_of,
        "code": code,
        "reason": reason,
    }
    connection.execute(_FINISH, values)


_FAIL: LiteralString = """
    UPDATE docwell.delivery SET attempts = attempts + 1, reason = %(reason)s, code = 'failed',
        status = CASE WHEN attempts + 1 >= %(most)s THEN 'failed' ELSE 'waiting' END,
        next_at = clock_timestamp() + %(first)s * 4 ^ attempts * interval '1 second'
    WHERE number = %(number)s
"""


def fail(connection: Connection[Any], number: int, reason: str) -> None:
    """A delivery could not be applied: it waits for longer and longer; after `MOST_ATTEMPTS` it is given up, and kept."""
    values = {"number": number, "reason": reason, "most": MOST_ATTEMPTS, "first": _FIRST_WAIT_SECONDS}
    connection.execute(_FAIL, values)


_FORGET: LiteralString = """
    UPDATE docwell.delivery SET namespace = NULL, path = NULL, facts = NULL, content = NULL, fetch_url = NULL, sha256 = NULL,
        status = CASE WHEN status IN ('waiting', 'failed') THEN 'refused' ELSE status END,
        code = CASE WHEN status IN ('waiting', 'failed') THEN 'erased' ELSE code END,
        reason = CASE WHEN status IN ('waiting', 'failed') THEN 'It was erased.' END
    WHERE %(pushed)s AND (namespace, path) = (%(namespace)s, %(path)s)
       OR status IN ('waiting', 'failed') AND sha256 = ANY (%(digests)s)
"""


def forget(connection: Connection[Any], place: Place, digests: Collection[bytes]) -> int:
    """Keep neither the name nor the bytes of what was brought for this place, nor these bytes for any; returns how many rows."""
    values = {
        "pushed": place.source == PUSH,
        "namespace": place.namespace,
        "path": place.path,
        "digests": list(digests),
    }
    return connection.execute(_FORGET, values).rowcount


def forget_name(connection: Connection[Any], number: int) -> None:
    """Keep no longer which document a delivery was for."""
    connection.execute("UPDATE docwell.delivery SET namespace = NULL, path = NULL WHERE number = %s", (number,))
