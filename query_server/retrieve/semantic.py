"""The semantic leg: cosine over one narrow halfvec table, by HNSW, or exactly where that is the better way."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector
from psycopg import Connection, sql

from query_server.retrieve.filters import DOCUMENT_FILTER, Filters
from query_server.retrieve.keyword import ChunkKey
from query_server.retrieve.scope import Scope

EXACT_UP_TO = 4_000
"""Chunks of a scope that are compared one by one: about a millisecond for a thousand, and every one is found."""

EXACT_UP_TO_HIDDEN = 20_000
"""The same where filters or row-level security hide rows from HNSW, which then finds four of five at 26 ms (1 % of 100,000)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The embedding space in force: the model that made the vectors of `docwell.vector_<space_id>`."""

    space_id: int
    fingerprint: str
    provider: str
    model: str
    dimension: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticHit:
    """A chunk near to the query; `similarity` is the cosine, -1.0 to 1.0."""

    key: ChunkKey
    similarity: float


_ACTIVE: LiteralString = (
    "SELECT space_id, fingerprint, provider, model, dimension FROM docwell.embedding_space WHERE state = 'active'"
)


def active_space(connection: Connection[Any]) -> Space | None:
    """The space that is served; None before the first document was indexed."""
    row = connection.execute(_ACTIVE).fetchone()
    if row is None:
        return None
    return Space(space_id=row[0], fingerprint=row[1], provider=row[2], model=row[3], dimension=row[4])


_SETTINGS: LiteralString = (
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true)"
)
# MATERIALIZED computes every distance; otherwise the planner may take HNSW here too, which may return fewer than there are.
_EXACT_AUDIENCES = sql.SQL("""
    WITH near AS MATERIALIZED (
        SELECT v.input_id, v.audience_id, v.embedding <=> %(vector)s::halfvec AS distance
        FROM {table} v WHERE v.audience_id = ANY (%(audiences)s)
    )
    SELECT c.audience_id, c.chunk_id, near.distance
    FROM (SELECT * FROM near ORDER BY distance, input_id, audience_id LIMIT %(limit)s) AS near
    JOIN docwell.chunk c USING (audience_id, input_id)
    ORDER BY near.distance, c.chunk_id, c.audience_id
""")
_EXACT_SCOPE = sql.SQL(f"""
    WITH scope AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
        WHERE d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
    ), near AS MATERIALIZED (
        SELECT c.audience_id, c.chunk_id, v.embedding <=> %(vector)s::halfvec AS distance
        FROM scope JOIN docwell.chunk c USING (audience_id, chunk_id)
        JOIN {{table}} v ON v.input_id = c.input_id AND v.audience_id = c.audience_id
    )
    SELECT audience_id, chunk_id, distance FROM near ORDER BY distance, chunk_id, audience_id LIMIT %(limit)s
""")
_HNSW = sql.SQL(f"""
    WITH near AS MATERIALIZED (
        SELECT v.input_id, v.audience_id, v.embedding <=> %(vector)s::halfvec AS distance
        FROM {{table}} v
        WHERE v.audience_id = ANY (%(audiences)s)
          AND (NOT %(narrowed)s OR EXISTS (
              SELECT 1 FROM docwell.chunk t
              JOIN docwell.version_chunk place ON place.audience_id = t.audience_id AND place.chunk_id = t.chunk_id
              JOIN docwell.document d ON d.served_version_id = place.version_id
              WHERE t.input_id = v.input_id AND t.audience_id = v.audience_id AND {DOCUMENT_FILTER} OFFSET 0))
        ORDER BY v.embedding <=> %(vector)s::halfvec LIMIT %(limit)s
    )
    SELECT c.audience_id, c.chunk_id, near.distance FROM near JOIN docwell.chunk c USING (audience_id, input_id)
    ORDER BY near.distance, c.chunk_id, c.audience_id
""")


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
    if scope.searched <= (EXACT_UP_TO_HIDDEN if hidden else EXACT_UP_TO):
        return _exact(connection, scope, filters, space, vector, limit)
    connection.execute(_SETTINGS, (str(max(100, min(1000, limit + limit // 4))),))
    hits = _run(connection, _HNSW, scope, filters, space, vector, limit)
    # Dead rows and filters can leave HNSW short of what exists (pgvector issues 244 and 259).
    return hits if len(hits) >= min(limit, scope.searched) else _exact(connection, scope, filters, space, vector, limit)


def _exact(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    space: Space,
    vector: npt.NDArray[np.float32],
    limit: int,
) -> list[SemanticHit]:
    return _run(connection, _EXACT_SCOPE if scope.narrowed else _EXACT_AUDIENCES, scope, filters, space, vector, limit)


def _run(
    connection: Connection[Any],
    statement: sql.SQL,
    scope: Scope,
    filters: Filters,
    space: Space,
    vector: npt.NDArray[np.float32],
    limit: int,
) -> list[SemanticHit]:
    query = statement.format(table=sql.Identifier("docwell", f"vector_{space.space_id}"))
    values: dict[str, Any] = {
        "audiences": list(scope.audiences),
        "vector": HalfVector(vector),
        "limit": limit,
        "narrowed": scope.narrowed,
        **filters.parameters,
    }
    rows: list[tuple[int, uuid.UUID, float]] = connection.execute(query, values, prepare=False).fetchall()
    return [SemanticHit(key=(row[0], row[1]), similarity=1.0 - float(row[2])) for row in rows]
