"""The semantic leg: cosine over one narrow halfvec table, by HNSW, or exactly where that is the better way."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector
from psycopg import Connection, sql

from query_server.retrieve.filters import Filters
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.scope import Scope

EXACT_UP_TO = 4_000
"""Chunks of a scope that are compared one by one: about a millisecond for a thousand, and every one is found."""

EXACT_UP_TO_HIDDEN = 20_000
"""The same where filters or row-level security hide most rows from HNSW, which then finds four of five at 26 ms (1 % of
100,000)."""

MOSTLY_SEEN = 0.2
"""From this share of all vectors on HNSW is taken in spite of filters: it looks at five times as many at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The embedding space in force: the model that made the vectors of `docwell.vector_<space_id>`.

    `indexed` is how many of these are under the HNSW index, of all principals, as PostgreSQL last estimated; 0 when it never did.
    `beside` is the fingerprint of the model that the index is being changed to, or was changed from.
    """

    space_id: int
    fingerprint: str
    provider: str
    model: str
    dimension: int
    indexed: int = 0
    beside: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticHit:
    """A chunk near to the query; `similarity` is the cosine, -1.0 to 1.0."""

    key: ChunkKey
    similarity: float


_ACTIVE: LiteralString = """
    SELECT s.space_id, s.fingerprint, s.provider, s.model, s.dimension, c.reltuples::bigint,
           (SELECT b.fingerprint FROM docwell.embedding_space b WHERE b.state = 'filling')
    FROM docwell.embedding_space s
    LEFT JOIN pg_catalog.pg_class c ON c.oid = to_regclass(format('docwell.vector_%s_indexed', s.space_id))
    WHERE s.state = 'active'
"""


def active_space(connection: Connection[Any]) -> Space | None:
    """The space that is served; None before the first document was indexed."""
    row = connection.execute(_ACTIVE).fetchone()
    if row is None:
        return None
    return Space(
        space_id=row[0],
        fingerprint=row[1],
        provider=row[2],
        model=row[3],
        dimension=row[4],
        indexed=max(0, row[5] or 0),
        beside=row[6],
    )


_INDEXED: LiteralString = """
    SELECT c.reltuples::bigint FROM docwell.embedding_space s
    JOIN pg_catalog.pg_class c ON c.oid = to_regclass(format('docwell.vector_%s_indexed', s.space_id))
    WHERE s.state = 'active'
"""


def count_indexed(connection: Connection[Any]) -> int:
    """About how many chunks the index holds, of all principals: `Space.indexed`, where nothing else of the space is needed."""
    row = connection.execute(_INDEXED).fetchone()
    return max(0, row[0]) if row is not None else 0


_SETTINGS: LiteralString = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true)"
)
# MATERIALIZED computes every distance; otherwise the planner may take HNSW here too, which may return fewer than there are.
_EXACT_AUDIENCES: LiteralString = """
    WITH near AS MATERIALIZED (
        SELECT v.input_id, v.audience_id, v.embedding <=> %(vector)b::halfvec AS distance
        FROM {table} v WHERE v.audience_id = ANY (%(audiences)s)
    )
    SELECT c.audience_id, c.chunk_id, near.distance
    FROM (SELECT * FROM near ORDER BY distance, input_id, audience_id LIMIT %(limit)s) AS near
    JOIN docwell.chunk c USING (audience_id, input_id)
    ORDER BY near.distance, c.chunk_id, c.audience_id
"""
_SCOPE: LiteralString = """
    WITH scope AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
        WHERE d.audience_id = ANY (%(audiences)s)
"""
_EXACT_IN_SCOPE: LiteralString = """
    ), near AS MATERIALIZED (
        SELECT c.audience_id, c.chunk_id, v.embedding <=> %(vector)b::halfvec AS distance
        FROM scope JOIN docwell.chunk c USING (audience_id, chunk_id)
        JOIN {table} v ON v.input_id = c.input_id AND v.audience_id = c.audience_id
    )
    SELECT audience_id, chunk_id, distance FROM near ORDER BY distance, chunk_id, audience_id LIMIT %(limit)s
"""
_HNSW: LiteralString = """
    WITH near AS MATERIALIZED (
        SELECT v.input_id, v.audience_id, v.embedding <=> %(vector)b::halfvec AS distance
        FROM {table} v
        WHERE v.audience_id = ANY (%(audiences)s)
"""
_HELD: LiteralString = """
          AND EXISTS (
              SELECT 1 FROM docwell.chunk t
              JOIN docwell.version_chunk place ON place.audience_id = t.audience_id AND place.chunk_id = t.chunk_id
              JOIN docwell.document d ON d.served_version_id = place.version_id
              WHERE t.input_id = v.input_id AND t.audience_id = v.audience_id
"""
_NEAREST: LiteralString = """
        ORDER BY v.embedding <=> %(vector)b::halfvec LIMIT %(limit)s
    )
    SELECT c.audience_id, c.chunk_id, near.distance FROM near JOIN docwell.chunk c USING (audience_id, input_id)
    ORDER BY near.distance, c.chunk_id, c.audience_id
"""


def semantic_leg(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    space: Space,
    vector: npt.NDArray[np.float32],
    *,
    limit: int,
    sees_everything: bool,
) -> list[SemanticHit]:
    """The chunks of the scope nearest to `vector` (shape (dimension,), length 1), at most `limit`, nearest first."""
    if scope.empty:
        return []
    hidden = scope.narrowed or bool(filters.namespace) or not sees_everything
    if is_exact(scope, space, hidden=hidden):
        return _exact(connection, scope, filters, space, vector, limit)
    with connection.pipeline():
        connection.execute(_SETTINGS, (str(max(100, min(1000, limit + limit // 4))),))
        held: LiteralString = _HELD + filters.on_passages + " OFFSET 0)" if scope.narrowed else ""
        hits = _run(connection, _HNSW + held + _NEAREST, scope, filters, space, vector, limit)
    # Dead rows and filters can leave HNSW short of what exists (pgvector issues 244 and 259).
    return hits if len(hits) >= min(limit, scope.searched) else _exact(connection, scope, filters, space, vector, limit)


def is_exact(scope: Scope, space: Space, *, hidden: bool) -> bool:
    """Whether comparing one by one is the better way: always when there are few, and for more when HNSW would mostly walk past
    what does not belong to the scope."""
    if scope.searched <= EXACT_UP_TO:
        return True
    return hidden and scope.searched <= EXACT_UP_TO_HIDDEN and scope.searched < MOSTLY_SEEN * (space.indexed or math.inf)


def _exact(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    space: Space,
    vector: npt.NDArray[np.float32],
    limit: int,
) -> list[SemanticHit]:
    statement: LiteralString = _SCOPE + filters.on_passages + _EXACT_IN_SCOPE if scope.narrowed else _EXACT_AUDIENCES
    return _run(connection, statement, scope, filters, space, vector, limit)


def _run(
    connection: Connection[Any],
    statement: LiteralString,
    scope: Scope,
    filters: Filters,
    space: Space,
    vector: npt.NDArray[np.float32],
    limit: int,
) -> list[SemanticHit]:
    query = sql.SQL(statement).format(table=sql.Identifier("docwell", f"vector_{space.space_id}"))
    values: dict[str, Any] = {
        "audiences": list(scope.audiences),
        "vector": HalfVector(vector),
        "limit": limit,
        **filters.parameters,
    }
    with connection.cursor(binary=True) as cursor:
        # Planned anew each time: with a LIMIT that it does not know PostgreSQL might keep a plan without HNSW.
        rows: list[tuple[int, uuid.UUID, float]] = cursor.execute(query, values, prepare=False).fetchall()
    return [SemanticHit(key=(row[0], row[1]), similarity=1.0 - float(row[2])) for row in rows]
