"""Documents of one namespace that have the same bytes: both are searched, and people are told."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.erasures import Place

# Of several documents with the same bytes the one that was there first is the original.
_DUPLICATE_OF: LiteralString = """
    SELECT other.document_id, s.name AS source, n.name AS namespace, other.path
    FROM docwell.document d
    LEFT JOIN docwell.pushed_content pushed USING (document_id)
    JOIN docwell.document other ON other.namespace_id = d.namespace_id
        AND (other.created_at, other.document_id) < (d.created_at, d.document_id)
        AND other.document_id IN (
            SELECT same.document_id FROM docwell.document same WHERE same.sha256 = coalesce(pushed.sha256, d.sha256)
            UNION ALL
            SELECT same.document_id FROM docwell.pushed_content same WHERE same.sha256 = coalesce(pushed.sha256, d.sha256))
    JOIN docwell.source s ON s.source_id = other.source_id
    JOIN docwell.namespace n ON n.namespace_id = other.namespace_id
    WHERE d.document_id = %s AND other.state NOT IN ('deleted', 'excluded')
    ORDER BY other.created_at, other.document_id LIMIT 1
"""


def duplicate_of(connection: Connection[Any], document_id: uuid.UUID) -> Place | None:
    """The oldest other document of the namespace that has the same bytes; None when there is none, or this one is older.

    Of a pushed document the bytes that were pushed last are compared, though they were not read yet.
    """
    with connection.cursor(row_factory=class_row(Place)) as cursor:
        return cursor.execute(_DUPLICATE_OF, (document_id,)).fetchone()


_OF_JOBS: LiteralString = """
    SELECT j.job_id, original.path FROM docwell.job j JOIN docwell.document d USING (document_id)
    CROSS JOIN LATERAL (
        SELECT other.path FROM docwell.document other
        WHERE other.sha256 = d.sha256 AND other.namespace_id = d.namespace_id AND other.state NOT IN ('deleted', 'excluded')
          AND (other.created_at, other.document_id) < (d.created_at, d.document_id)
        ORDER BY other.created_at, other.document_id LIMIT 1
    ) AS original
    WHERE j.job_id = ANY (%s)
"""


def originals(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Of these jobs those whose document has the bytes of an older one of its namespace, and that one's path."""
    return dict(connection.execute(_OF_JOBS, (list(jobs),)).fetchall())
