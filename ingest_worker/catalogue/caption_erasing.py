"""Captions that an erasure takes away: of the document, and those that it lent to others."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

Owner = tuple[int, uuid.UUID]
"""(audience_id, chunk_id)"""

# A caption that was bought for the erased document was written beside its words; others with the same picture have it too.
_LENT: LiteralString = """
    WITH lent AS (
        DELETE FROM docwell.caption k
        WHERE k.lender_id = ANY (%(documents)s) AND k.document_id <> ALL (%(documents)s)
        RETURNING k.document_id, k.caption
    ), gone AS (
        DELETE FROM docwell.version_chunk place
        USING docwell.version v, lent, docwell.chunk c
        WHERE v.version_id = place.version_id AND v.document_id = lent.document_id
          AND (c.audience_id, c.chunk_id) = (place.audience_id, place.chunk_id)
          AND c.kind = 'caption' AND right(c.text, length(lent.caption)) = lent.caption
        RETURNING place.version_id, place.audience_id, place.chunk_id
    )
    SELECT (SELECT count(*) FROM lent), (SELECT coalesce(array_agg(DISTINCT document_id), '{}') FROM lent),
           coalesce(array_agg(DISTINCT version_id), '{}'), coalesce(array_agg(audience_id), '{}'),
           coalesce(array_agg(chunk_id), '{}')
    FROM gone
"""
_RECOUNT: LiteralString = """
    UPDATE docwell.version v SET
        chunk_count = (SELECT count(*) FROM docwell.version_chunk place WHERE place.version_id = v.version_id)
    WHERE version_id = ANY (%(versions)s)
"""
# A document that was found by such captions alone is found by nothing until it has its own.
_RESERVE: LiteralString = """
    UPDATE docwell.document d SET
        chunk_count = v.chunk_count, changed_at = now(),
        served_version_id = CASE WHEN v.chunk_count > 0 THEN d.served_version_id END,
        served_version = CASE WHEN v.chunk_count > 0 THEN d.served_version END
    FROM docwell.version v WHERE v.version_id = d.served_version_id AND v.version_id = ANY (%(versions)s)
"""
_UNSERVED: LiteralString = """
    UPDATE docwell.version v SET state = 'needs_ocr', reason_code = 'no_text', reason = 'Its captions were erased.'
    WHERE version_id = ANY (%(versions)s) AND chunk_count = 0 AND state IN ('indexed', 'partial')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """What other documents had of an erased one: captions, the documents, and passages that they hold no more."""

    captions: int
    documents: set[uuid.UUID]
    passages: set[Owner]


def take_back(connection: Connection[Any], documents: Collection[uuid.UUID]) -> Lent:
    """Take captions that these documents lent out of others, which hold them no more; the caller takes out the passages.

    In the transaction of an erasure, which holds every publisher off.
    """
    values: dict[str, Any] = {"documents": list(documents)}
    row = connection.execute(_LENT, values).fetchone()
    count, borrowers, versions, audiences, chunks = row if row is not None else (0, [], [], [], [])
    if versions:
        values["versions"] = versions
        connection.execute(_RECOUNT, values)
        connection.execute(_RESERVE, values)
        connection.execute(_UNSERVED, values)
    return Lent(captions=count, documents=set(borrowers), passages=set(zip(audiences, chunks, strict=True)))


_OWN: LiteralString = "DELETE FROM docwell.caption WHERE document_id = ANY (%s) RETURNING caption IS NOT NULL"
_FORGET: LiteralString = "DELETE FROM docwell.captioning WHERE document_id = ANY (%s)"


def forget_all(connection: Connection[Any], documents: Collection[uuid.UUID]) -> int:
    """Erase what was said of the pictures of these documents; returns how many captions that were."""
    rows = connection.execute(_OWN, (list(documents),)).fetchall()
    connection.execute(_FORGET, (list(documents),))
    return sum(1 for row in rows if row[0])


_THUMBNAILS: LiteralString = """
    SELECT count(*) FROM docwell.thumbnail
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id) USING (audience_id, chunk_id)
"""


def count_thumbnails(connection: Connection[Any], chunks: Collection[Owner]) -> int:
    """How many of these passages have a picture."""
    values = {"audiences": [audience for audience, _ in chunks], "ids": [chunk for _, chunk in chunks]}
    row = connection.execute(_THUMBNAILS, values).fetchone()
    return int(row[0]) if row else 0
