"""The order of changes of a pushed document: the newest time that was told of it counts, with a deletion too."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection

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
