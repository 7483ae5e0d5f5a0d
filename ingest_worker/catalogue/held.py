"""Deletions that a sweep holds until a person lets them go."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

_HOLD: LiteralString = """
    INSERT INTO docwell.held_delete (document_id, source_id)
    SELECT d.document_id, d.source_id FROM docwell.document d WHERE d.document_id = ANY (%(documents)s)
    ON CONFLICT (document_id) DO NOTHING
"""
_LET_GO: LiteralString = """
    DELETE FROM docwell.held_delete h WHERE h.source_id = %(source)s
      AND NOT EXISTS (SELECT 1 FROM unnest(%(documents)s::uuid[]) AS still (document_id) WHERE still.document_id = h.document_id)
"""


def replace_held(connection: Connection[Any], source_id: int, documents: Sequence[uuid.UUID]) -> None:
    """Hold these documents of the source and no others, in the caller's transaction. One that is held already keeps its time."""
    values = {"source": source_id, "documents": list(documents)}
    connection.execute(_TURN, (source_id,))
    connection.execute(_LET_GO, values)
    if documents:
        connection.execute(_HOLD, values)


_TURN: LiteralString = "SELECT 1 FROM docwell.source WHERE source_id = %s FOR UPDATE"
_COUNT: LiteralString = "SELECT count(*), clock_timestamp() FROM docwell.held_delete WHERE source_id = %s"


def count_held(connection: Connection[Any], source_id: int) -> tuple[int, datetime]:
    """How many deletions are held, and when that was so: who approves these approves none that are held later."""
    with connection.transaction():
        connection.execute(_TURN, (source_id,))
        row = connection.execute(_COUNT, (source_id,)).fetchone()
    if row is None:
        raise RuntimeError("count(*) gave no row")
    return int(row[0]), row[1]


_APPROVED: LiteralString = """
    SELECT h.document_id FROM docwell.held_delete h JOIN docwell.source s USING (source_id)
    WHERE h.source_id = %s AND h.held_at <= s.approved_at
"""


def approved(connection: Connection[Any], source_id: int) -> set[uuid.UUID]:
    """The documents that were held when a person let go what was held."""
    return {row[0] for row in connection.execute(_APPROVED, (source_id,)).fetchall()}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """A document whose file is gone and which is still served."""

    document_id: uuid.UUID
    path: str
    state: str
    held_at: datetime


_LIST: LiteralString = """
    SELECT h.document_id, d.path, d.state, h.held_at
    FROM docwell.held_delete h JOIN docwell.document d USING (document_id)
    WHERE h.source_id = %s ORDER BY d.path
"""


def stream_held(connection: Connection[Any], source_id: int) -> Generator[HeldRow]:
    """What would be deleted if a person let it go, by path; streamed, however many there are."""
    with connection.transaction(), connection.cursor(name="held", row_factory=class_row(HeldRow)) as cursor:
        cursor.itersize = 1000
        cursor.execute(_LIST, (source_id,))
        yield from cursor
