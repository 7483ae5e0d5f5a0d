"""Documents whose bytes have still to be fetched from an address. All SQL of that table stands here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Where a document is to be fetched from, and what its sender said of it. `url` may hold a signature: never show it."""

    document_id: uuid.UUID
    request_id: uuid.UUID
    url: str
    namespace: str
    path: str
    title: str | None
    media_type: str | None
    source_modified: datetime | None


_ASK: LiteralString = """
    INSERT INTO docwell.fetch (document_id, url, title, media_type, source_modified)
    VALUES (%(document)s, %(url)s, %(title)s, %(media_type)s, %(modified)s)
    ON CONFLICT (document_id) DO UPDATE SET
        request_id = gen_random_uuid(), url = excluded.url, title = excluded.title, media_type = excluded.media_type,
        source_modified = excluded.source_modified, requested_at = now()
"""


def ask(
    connection: Connection[Any],
    document_id: uuid.UUID,
    url: str,
    *,
    title: str | None,
    media_type: str | None,
    source_modified: datetime | None,
) -> None:
    """Let the document's next job fetch it, in the caller's transaction; an address that waits already is replaced."""
    values = {"document": document_id, "url": url, "title": title, "media_type": media_type, "modified": source_modified}
    connection.execute(_ASK, values)


def forget(connection: Connection[Any], document_id: uuid.UUID) -> None:
    """Fetch nothing for this document any more, in the caller's transaction."""
    connection.execute("DELETE FROM docwell.fetch WHERE document_id = %s", (document_id,))


_PENDING: LiteralString = """
    SELECT f.document_id, f.request_id, f.url, n.name AS namespace, d.path, f.title, f.media_type, f.source_modified
    FROM docwell.fetch f
    JOIN docwell.document d USING (document_id)
    JOIN docwell.namespace n USING (namespace_id)
    WHERE f.document_id = ANY (%s) AND d.state NOT IN ('excluded', 'deleted')
"""


def pending(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> list[Fetch]:
    """What is still to be fetched for these documents."""
    with connection.cursor(row_factory=class_row(Fetch)) as cursor:
        return cursor.execute(_PENDING, (list(documents),)).fetchall()


# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOB: LiteralString = """
    SELECT 1 FROM docwell.job WHERE document_id = %s AND state IN ('queued', 'running', 'retrying') FOR UPDATE
"""
_HOLD: LiteralString = "SELECT 1 FROM docwell.document WHERE document_id = %s FOR UPDATE"
_TAKE: LiteralString = "DELETE FROM docwell.fetch WHERE document_id = %s AND request_id = %s RETURNING 1"


def take(connection: Connection[Any], fetch: Fetch) -> bool:
    """End a request in the caller's transaction, which holds the document then; False when others came meanwhile."""
    connection.execute(_HOLD_JOB, (fetch.document_id,))
    connection.execute(_HOLD, (fetch.document_id,))
    return connection.execute(_TAKE, (fetch.document_id, fetch.request_id)).fetchone() is not None


_RETITLE: LiteralString = """
    UPDATE docwell.document d SET title = coalesce(%(title)s, v.title), changed_at = now()
    FROM docwell.version v
    WHERE d.document_id = %(document)s AND v.version_id = d.served_version_id AND v.sha256 = %(sha256)s
      AND d.title IS DISTINCT FROM coalesce(%(title)s, v.title)
    RETURNING d.audience_id
"""


def retitle(connection: Connection[Any], fetch: Fetch, sha256: bytes) -> int | None:
    """Where the bytes are those that are served, no swap brings the title: apply it now. The audience that it changes for."""
    values = {"title": fetch.title, "document": fetch.document_id, "sha256": sha256}
    row = connection.execute(_RETITLE, values).fetchone()
    return None if row is None else int(row[0])
