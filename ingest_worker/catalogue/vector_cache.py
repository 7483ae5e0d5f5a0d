"""Vectors of passages that are searched no more, kept for a while: text that comes back is not embedded again.

`vectors.insert_vectors` takes from here what no other audience has.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any, LiteralString

from psycopg import Connection, sql

_AT_ONCE = 5_000

# The caller holds the chunks, so nobody else writes these keys.
_MOVE = sql.SQL("""
    WITH gone AS (
        DELETE FROM {table} WHERE audience_id = %(audience)s AND input_id = ANY (%(inputs)s) RETURNING input_id, embedding
    )
    INSERT INTO docwell.vector_cache (input_id, space_id, audience_id, embedding)
    SELECT gone.input_id, %(space)s, %(audience)s, gone.embedding FROM gone ORDER BY gone.input_id
    ON CONFLICT (input_id, space_id, audience_id) DO UPDATE SET embedding = excluded.embedding, removed_at = now()
""")


def move_in(
    connection: Connection[Any], table: sql.Composable, space_id: int, audience_id: int, inputs: Collection[uuid.UUID]
) -> None:
    """Take these inputs out of the space's table, for this audience, and remember their vectors."""
    values = {"space": space_id, "audience": audience_id, "inputs": list(inputs)}
    connection.execute(_MOVE.format(table=table), values)


def empty(connection: Connection[Any]) -> int:
    """Forget all of them; returns how many there were. What they were made of is not known, so an erasure takes all."""
    return connection.execute("DELETE FROM docwell.vector_cache").rowcount


_REMEMBER: LiteralString = "UPDATE docwell.embedding_space SET remembers = %(on)s WHERE remembers <> %(on)s"


def set_remembering(connection: Connection[Any], *, on: bool) -> None:
    """Whether vectors are remembered from now on. Switched off, those that are there go."""
    connection.execute(_REMEMBER, {"on": on})
    if not on:
        empty(connection)


# Publishers may wait for this, so it waits for none of them.
_PRUNE: LiteralString = """
    DELETE FROM docwell.vector_cache v USING (
        SELECT input_id, space_id, audience_id FROM docwell.vector_cache
        WHERE removed_at < now() - make_interval(days => %(days)s)
           OR space_id IN (SELECT space_id FROM docwell.embedding_space WHERE state = 'retired')
           OR removed_at <= (SELECT removed_at FROM docwell.vector_cache ORDER BY removed_at DESC OFFSET %(rows)s LIMIT 1)
        ORDER BY removed_at LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE (v.input_id, v.space_id, v.audience_id) = (old.input_id, old.space_id, old.audience_id)
"""


def prune(connection: Connection[Any], *, days: int, rows: int) -> int:
    """Forget those that are older than `days`, and the oldest of more than `rows`; returns how many, some thousands at most."""
    return connection.execute(_PRUNE, {"days": days, "rows": rows, "most": _AT_ONCE}).rowcount
