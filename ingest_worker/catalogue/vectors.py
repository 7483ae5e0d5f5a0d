"""The vector tables: one for each embedding space, keyed by the embedded input and by who may see it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, sql

from ingest_worker.catalogue import vector_cache
from ingest_worker.catalogue.binary import halfvec_array
from ingest_worker.catalogue.portions import portions

Owner = tuple[int, uuid.UUID]
"""Who a vector belongs to: (audience_id, input_id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An embedding space, and whether its fresh vectors are too many already for more of them."""

    space_id: int
    crowded: bool = False


def vector_table(space_id: int) -> sql.Composable:
    """The table of a space's vectors."""
    return sql.Identifier("docwell", f"vector_{space_id}")


_WITH_VECTOR = sql.SQL("""
    SELECT input_id FROM {table} WHERE input_id = ANY (%(inputs)s)
    UNION SELECT input_id FROM docwell.vector_cache WHERE input_id = ANY (%(inputs)s) AND space_id = %(space)s
""")


def inputs_with_vector(connection: Connection[Any], space_id: int, inputs: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Which of the embedded inputs have a vector in this space already, in any audience, or had one not long ago."""
    if not inputs:
        return set()
    query = _WITH_VECTOR.format(table=vector_table(space_id))
    return {row[0] for row in connection.execute(query, {"inputs": list(inputs), "space": space_id}).fetchall()}


_PRESENT = sql.SQL("""
    SELECT v.audience_id, v.input_id FROM {table} v
    WHERE v.input_id = ANY (%(inputs)s) AND v.audience_id = ANY (%(audiences)s)
""")
_INSERT = sql.SQL("""
    INSERT INTO {table} (input_id, audience_id, indexed, embedding)
    SELECT input_id, audience_id, %(indexed)s, embedding
    FROM unnest(%(audiences)s::integer[], %(inputs)s::uuid[], %(embeddings)s::halfvec[])
        AS new (audience_id, input_id, embedding)
""")
_BORROW = sql.SQL("""
    INSERT INTO {table} (input_id, audience_id, indexed, embedding)
    SELECT DISTINCT ON (wanted.audience_id, v.input_id) v.input_id, wanted.audience_id, %(indexed)s, v.embedding
    FROM unnest(%(audiences)s::integer[], %(inputs)s::uuid[]) AS wanted (audience_id, input_id)
    JOIN (SELECT input_id, embedding FROM {table} WHERE input_id = ANY (%(inputs)s)
          UNION ALL
          SELECT input_id, embedding FROM docwell.vector_cache
          WHERE input_id = ANY (%(inputs)s) AND space_id = %(space)s) AS v USING (input_id)
    RETURNING audience_id, input_id
""")


def insert_vectors(
    connection: Connection[Any], space: Space, owners: Iterable[Owner], vectors: Mapping[uuid.UUID, NDArray[np.float32]]
) -> set[uuid.UUID]:
    """Give every owner its vector: from `vectors` (float32 of the space's dimension), else copied from another audience or from
    those that are remembered.

    The caller holds the owners' chunks, so nobody else writes these rows meanwhile.

    Returns the inputs that still have none, since their row went while we were embedding.
    """
    wanted = sorted(owners)
    if not wanted:
        return set()
    table = vector_table(space.space_id)
    values = {"audiences": sorted({audience for audience, _ in wanted}), "inputs": [input_id for _, input_id in wanted]}
    present = set(connection.execute(_PRESENT.format(table=table), values).fetchall())
    missing = [owner for owner in wanted if owner not in present]
    new = [owner for owner in missing if owner[1] in vectors]
    for some in portions(new):
        made = {
            "audiences": [audience for audience, _ in some],
            "inputs": [input_id for _, input_id in some],
            "embeddings": halfvec_array(connection, [vectors[input_id] for _, input_id in some]),
            "indexed": space.crowded,
        }
        connection.execute(_INSERT.format(table=table), made)
    elsewhere = [owner for owner in missing if owner[1] not in vectors]
    if not elsewhere:
        return set()
    lent = {
        "audiences": [audience for audience, _ in elsewhere],
        "inputs": [input_id for _, input_id in elsewhere],
        "indexed": space.crowded,
        "space": space.space_id,
    }
    borrowed = set(connection.execute(_BORROW.format(table=table), lent).fetchall())
    return {input_id for audience, input_id in elsewhere if (audience, input_id) not in borrowed}


_SPACES = """
    SELECT space_id, remembers AND state <> 'retired' FROM docwell.embedding_space WHERE NOT is_dropped ORDER BY space_id
"""
_REMOVE = sql.SQL("DELETE FROM {table} WHERE audience_id = %s AND input_id = ANY (%s)")


def remove_vectors(connection: Connection[Any], audience_id: int, inputs: Sequence[uuid.UUID]) -> None:
    """Take these inputs out of every space, for this audience, and remember their vectors for a while."""
    for space_id, remembers in connection.execute(_SPACES).fetchall():
        table = vector_table(space_id)
        if remembers:
            vector_cache.move_in(connection, table, space_id, audience_id, inputs)
        else:
            connection.execute(_REMOVE.format(table=table), (audience_id, list(inputs)))
