"""Deliveries that were taken, and the order of changes of a document. All SQL of webhooks' bookkeeping stands here."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

KEPT_DAYS = 30
"""How long a delivery is remembered; senders give up after a few days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A delivery that was taken before, and what it came to."""

    body_sha256: bytes
    status: str
    document_id: uuid.UUID | None
    job_id: uuid.UUID | None


_REMEMBER: LiteralString = """
    INSERT INTO docwell.delivery (connection, delivery_id, body_sha256) VALUES (%s, %s, %s)
    ON CONFLICT (connection, delivery_id) DO NOTHING
    RETURNING 1
"""
_FIND: LiteralString = """
    SELECT body_sha256, status, document_id, job_id FROM docwell.delivery WHERE connection = %s AND delivery_id = %s
"""


def remember(connection: Connection[Any], name: str, delivery_id: str, body_sha256: bytes) -> Remembered | None:
    """Note a delivery in the caller's transaction; one that was noted before is returned instead.

    Of two at once the second waits for the first to commit.
    """
    if connection.execute(_REMEMBER, (name, delivery_id, body_sha256)).fetchone() is not None:
        return None
    with connection.cursor(row_factory=class_row(Remembered)) as cursor:
        found = cursor.execute(_FIND, (name, delivery_id)).fetchone()
    if found is None:
        raise RuntimeError("a delivery that is in the way is not there")
    return found


# With each delivery some old ones go: so their number follows what comes in thirty days, and nobody has to sweep.
_FINISH: LiteralString = """
    WITH forgotten AS (
        DELETE FROM docwell.delivery WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM docwell.delivery WHERE received_at < now() - make_interval(days => %(days)s)
            ORDER BY received_at LIMIT 2 FOR UPDATE SKIP LOCKED
        ))
    )
    UPDATE docwell.delivery SET status = %(status)s, document_id = %(document)s, job_id = %(job)s
    WHERE connection = %(connection)s AND delivery_id = %(delivery)s
"""


def finish(
    connection: Connection[Any],
    name: str,
    delivery_id: str,
    *,
    status: str,
    document_id: uuid.UUID | None,
    job_id: uuid.UUID | None,
) -> None:
    """Note what a delivery came to, and forget two that are older than `KEPT_DAYS`, when there are any."""
    values = {
        "days": KEPT_DAYS,
        "status": status,
        "document": document_id,
        "job": job_id,
        "connection": name,
        "delivery": delivery_id,
    }
    connection.execute(_FINISH, values)


_TURN: LiteralString = "SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(10), %s::text, %s::text, %s::text), 0))"
_NEWEST: LiteralString = """
    SELECT d.document_id,
           greatest(d.pushed_modified, coalesce(f.source_modified, pushed.source_modified)) AS modified
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    LEFT JOIN docwell.pushed_content pushed USING (document_id)
    LEFT JOIN docwell.fetch f USING (document_id)
    WHERE s.name = %s AND n.name = %s AND d.path = %s
"""


def newest_modified(
    connection: Connection[Any], source: str, namespace: str, path: str
) -> tuple[uuid.UUID | None, datetime | None]:
    """The document at a place, and the newest time of change that was told of it; others who ask wait for this transaction."""
    connection.execute(_TURN, (source, namespace, path))
    row = connection.execute(_NEWEST, (source, namespace, path)).fetchone()
    return (None, None) if row is None else (row[0], row[1])


def note_modified(connection: Connection[Any], document_id: uuid.UUID, modified: datetime) -> None:
    """What is older than this comes too late for the document from now on."""
    connection.execute("UPDATE docwell.document SET pushed_modified = %s WHERE document_id = %s", (modified, document_id))


_TOMBSTONE: LiteralString = """
    INSERT INTO docwell.document (source_id, namespace_id, audience_id, path, state, pushed_modified)
    VALUES (%(source)s, %(namespace)s, %(audience)s, %(path)s, 'deleted', %(modified)s)
    ON CONFLICT (source_id, namespace_id, path) DO UPDATE SET pushed_modified = excluded.pushed_modified
    RETURNING document_id
"""


def note_deleted(
    connection: Connection[Any], *, source_id: int, namespace_id: int, audience_id: int, path: str, modified: datetime
) -> uuid.UUID:
    """A document that was deleted before it was ever told of: what comes late finds that out."""
    values = {"source": source_id, "namespace": namespace_id, "audience": audience_id, "path": path, "modified": modified}
    row = connection.execute(_TOMBSTONE, values).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING gave no row")
    found: uuid.UUID = row[0]
    return found
