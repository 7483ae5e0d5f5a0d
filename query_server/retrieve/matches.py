"""Chunks that hold terms, with how often each term stands in them: what the keyword leg reads from PostgreSQL."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, LiteralString, TypeAlias

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from query_server.retrieve.candidates import MOST_GROUPS
from query_server.retrieve.columns import fetch_arrays
from query_server.retrieve.filters import DOCUMENT_FILTER, Filters
from query_server.retrieve.scope import Scope
from shared.lexical import COUNTED_AT_ONCE, MOST_COUNTED, counting_vectors
from shared.query_terms import QueryTerm

ChunkKey: TypeAlias = tuple[int, uuid.UUID]

MOST_TERMS = 32
"""Terms of a query that are scored, by falling weight; only a pasted page has more."""

_VECTORS = MOST_TERMS // COUNTED_AT_ONCE

# A NULL vector costs nothing: the operator is strict.
_COUNTS: LiteralString = """
    t.audience_id, t.chunk_id, t.length,
    -(t.frequencies <#> %(vector_0)s::sparsevec) AS product_0, -(t.frequencies <#> %(vector_1)s::sparsevec) AS product_1,
    -(t.frequencies <#> %(vector_2)s::sparsevec) AS product_2, -(t.frequencies <#> %(vector_3)s::sparsevec) AS product_3,
    -(t.frequencies <#> %(vector_4)s::sparsevec) AS product_4, -(t.frequencies <#> %(vector_5)s::sparsevec) AS product_5,
    -(t.frequencies <#> %(vector_6)s::sparsevec) AS product_6, -(t.frequencies <#> %(vector_7)s::sparsevec) AS product_7
"""
# Whether any term is there is asked of the products: `&&` compares every term with every other, 30 microseconds a row.
_ANY: LiteralString = """
    greatest(product_0, product_1, product_2, product_3, product_4, product_5, product_6, product_7) > 0
"""
CANDIDATES: LiteralString = """
    SELECT * FROM docwell.keyword_matches(%(wanted)s, %(together)s, %(audiences)s, %(most)s, %(vectors)s::text[]::sparsevec[])
"""
"""Chunks that hold a term of `wanted`, or all of a group of `together`."""

CANDIDATES_IN_SCOPE: LiteralString = f"""
    WITH found AS MATERIALIZED ({CANDIDATES}), standing AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM found JOIN docwell.version_chunk place USING (audience_id, chunk_id)
        JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE {DOCUMENT_FILTER}
    )
    SELECT found.* FROM found JOIN standing USING (audience_id, chunk_id)
"""
"""Of these those that the filters leave."""

WHOLE_AUDIENCES: LiteralString = f"""
    SELECT * FROM (
        SELECT {_COUNTS} FROM docwell.chunk_terms t WHERE t.audience_id = ANY (%(audiences)s) OFFSET 0
    ) AS counted WHERE {_ANY}
"""
"""Every chunk in sight that holds a term."""

WHOLE_SCOPE: LiteralString = f"""
    WITH scope AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
        WHERE d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
    )
    SELECT * FROM (
        SELECT {_COUNTS} FROM scope JOIN docwell.chunk_terms t USING (audience_id, chunk_id) OFFSET 0
    ) AS counted WHERE {_ANY}
"""
"""Every chunk that the filters leave and that holds a term."""

OF_DOCUMENTS: LiteralString = f"""
    WITH scope AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
        WHERE d.document_id = ANY (%(documents)s) AND d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
        LIMIT %(most)s
    )
    SELECT * FROM (
        SELECT {_COUNTS} FROM scope JOIN docwell.chunk_terms t USING (audience_id, chunk_id) OFFSET 0
    ) AS counted WHERE {_ANY}
"""
"""Of these documents the chunks that the filters leave and that hold a term."""

# As arrays: two thousand rows of a dozen values would be as many Python objects, which took half of the leg's time.
_COLLECT: tuple[LiteralString, ...] = (
    "SELECT array_agg(audience_id), array_agg(chunk_id), array_agg(length)",
    ", array_agg(product_0)",
    ", array_agg(product_1)",
    ", array_agg(product_2)",
    ", array_agg(product_3)",
    ", array_agg(product_4)",
    ", array_agg(product_5)",
    ", array_agg(product_6)",
    ", array_agg(product_7)",
)


@dataclass(frozen=True, kw_only=True)  # no slots: the keys are made once and kept
class Matches:
    """Chunks and what they hold, one row each: `audiences` and `lengths` (in terms) of shape (chunks,), `ids` their 16 bytes,
    `counts` of shape (chunks, terms)."""

    audiences: npt.NDArray[np.int32]
    ids: npt.NDArray[np.void]
    lengths: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.audiences)

    def keys_of(self, places: npt.NDArray[np.intp]) -> list[ChunkKey]:
        """The chunks of these rows."""
        raw = self.ids[places].tobytes()
        audiences = self.audiences[places].tolist()
        return [(audience, uuid.UUID(bytes=raw[16 * row : 16 * row + 16])) for row, audience in enumerate(audiences)]

    @cached_property
    def keys(self) -> list[ChunkKey]:
        """The chunks of all rows. Few questions need them all."""
        return self.keys_of(np.arange(len(self)))

    def with_more(self, more: Matches) -> Matches:
        """These and those of `more` that are not among them."""
        own = set(self.keys)
        fresh = [place for place, key in enumerate(more.keys) if key not in own]
        return Matches(
            audiences=np.concatenate([self.audiences, more.audiences[fresh]]),
            ids=np.concatenate([self.ids, more.ids[fresh]]),
            lengths=np.concatenate([self.lengths, more.lengths[fresh]]),
            counts=np.concatenate([self.counts, more.counts[fresh]]),
        )


def nothing(terms: int) -> Matches:
    """No chunk."""
    return Matches(
        audiences=np.empty(0, np.int32),
        ids=np.empty(0, "V16"),
        lengths=np.empty(0, np.int32),
        counts=np.empty((0, terms), np.int64),
    )


def find_matches(
    connection: Connection[Any],
    statement: LiteralString,
    scope: Scope,
    filters: Filters,
    terms: Sequence[QueryTerm],
    *,
    most: int,
    wanted: Sequence[int] = (),
    together: Sequence[Sequence[int]] = (),
    documents: Sequence[uuid.UUID] = (),
) -> Matches:
    """The chunks of one of the statements above; of candidates and of documents `most` at most.

    At most MOST_TERMS terms are counted.
    """
    vectors = counting_vectors([term.number for term in terms])
    values: dict[str, Any] = {
        "audiences": list(scope.audiences),
        "wanted": list(wanted),
        "together": _rectangle(together),
        "documents": list(documents),
        "most": most,
        "vectors": vectors,
        **filters.parameters,
        **{f"vector_{place}": vectors[place] if place < len(vectors) else None for place in range(_VECTORS)},
    }
    collect: LiteralString = "".join(_COLLECT[: 1 + len(vectors)])
    with connection.cursor(binary=True) as cursor:
        cursor.execute(f"{collect} FROM ({statement}) AS found", values, prepare=False)
        audiences, ids, lengths, *products = fetch_arrays(cursor, [">i4", "V16", ">i4"] + [">f8"] * len(vectors))
    return Matches(
        audiences=audiences.astype(np.int32),
        ids=ids,
        lengths=lengths.astype(np.int32),
        counts=_unpack(products, len(terms)),
    )


def _rectangle(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups as a matrix of MOST_GROUPS rows, filled up with a group's own terms, or with 0, a term of no chunk."""
    rows = [list(group) for group in groups] + [[0]] * (MOST_GROUPS - len(groups))
    width = max(map(len, rows))
    return [row + [row[0]] * (width - len(row)) for row in rows]


def _unpack(products: Sequence[npt.NDArray[np.float64]], terms: int) -> npt.NDArray[np.int64]:
    """The counts in the products of `counting_vectors`, shape (chunks, terms)."""
    packed = np.stack(products, axis=1).astype(np.int64)
    bits = MOST_COUNTED.bit_length()
    places = np.arange(COUNTED_AT_ONCE, dtype=np.int64) * bits
    digits = (packed[:, :, None] >> places[None, None, :]) & MOST_COUNTED
    return digits.reshape(len(packed), len(products) * COUNTED_AT_ONCE)[:, :terms]
