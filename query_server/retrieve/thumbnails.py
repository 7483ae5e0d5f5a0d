"""The picture that a caption describes, small."""

from __future__ import annotations

import uuid
from typing import Any, LiteralString

from psycopg import Connection

from shared.errors import PermanentError

# Only what is served now: row-level security has the say on who may see it.
_THUMBNAIL: LiteralString = """
    SELECT t.image FROM docwell.thumbnail t
    WHERE t.chunk_id = %s AND EXISTS (
        SELECT FROM docwell.version_chunk place JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE (place.audience_id, place.chunk_id) = (t.audience_id, t.chunk_id))
    LIMIT 1
"""


def read_thumbnail(connection: Connection[Any], chunk_id: uuid.UUID) -> bytes:
    """A JPEG.

    Raises:
        PermanentError: `not_found`, there is no such caption in sight.
    """
    row = connection.execute(_THUMBNAIL, (chunk_id,)).fetchone()
    if row is None:
        raise PermanentError(f"There is no picture of a passage {chunk_id}.", code="not_found")
    return bytes(row[0])
