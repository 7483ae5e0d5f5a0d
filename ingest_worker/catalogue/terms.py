"""The rows of the keyword leg: what terms a served chunk holds, and how often."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
from psycopg import Connection

from ingest_worker.catalogue.binary import integer_array, sparsevec_array
from shared.documents import Chunk
from shared.lexical import MOST_COUNTED, TERM_SPACE, term_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What entered or left the search structures: chunks, and the terms in them. BM25's averages are made of these."""

    chunks: int = 0
    terms: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(chunks=self.chunks + other.chunks, terms=self.terms + other.terms)

    def __neg__(self) -> Weight:
        return Weight(chunks=-self.chunks, terms=-self.terms)


_PRESENT = """
    SELECT t.audience_id, t.chunk_id FROM docwell.chunk_terms t
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id) USING (audience_id, chunk_id)
"""
# The distinct terms of all chunks come as one array, of which each row takes its part.
_INSERT = """
    INSERT INTO docwell.chunk_terms (audience_id, chunk_id, terms, frequencies, length)
    SELECT audience_id, chunk_id, (%(terms)s::integer[])[first:last], frequencies, length
    FROM unnest(%(audiences)s::integer[], %(ids)s::uuid[], %(firsts)s::integer[], %(lasts)s::integer[],
        %(frequencies)s::sparsevec[], %(lengths)s::integer[])
        AS new (audience_id, chunk_id, first, last, frequencies, length)
"""


def insert_terms(connection: Connection[Any], chunks: Mapping[tuple[int, uuid.UUID], Chunk]) -> dict[int, Weight]:
    """Make chunks, by (audience_id, chunk_id), findable by the keyword leg; those that already are stay as they are.

    The caller holds the chunks. Returns what entered, by audience.
    """
    values = {"audiences": [audience for audience, _ in chunks], "ids": [chunk_id for _, chunk_id in chunks]}
    present = set(connection.execute(_PRESENT, values).fetchall())
    entering = [owner for owner in sorted(chunks) if owner not in present]
    if not entering:
        return {}
    counts = [term_counts(chunks[owner].embedded_text) for owner in entering]
    lengths = [sum(counted.values()) for counted in counts]
    lasts = list(accumulate(len(counted) for counted in counts))
    new = {
        "audiences": [audience for audience, _ in entering],
        "ids": [chunk_id for _, chunk_id in entering],
        "terms": integer_array(connection, np.fromiter(chain.from_iterable(counts), np.int32, lasts[-1])),
        "firsts": [last - len(counted) + 1 for last, counted in zip(lasts, counts, strict=True)],
        "lasts": lasts,
        "frequencies": sparsevec_array(connection, counts, most=MOST_COUNTED, dimensions=TERM_SPACE),
        "lengths": lengths,
    }
    connection.execute(_INSERT, new)
    entered: dict[int, Weight] = {}
    for (audience, _), length in zip(entering, lengths, strict=True):
        entered[audience] = entered.get(audience, Weight()) + Weight(chunks=1, terms=length)
    return entered


_REMOVE = """
    WITH gone AS (
        DELETE FROM docwell.chunk_terms WHERE audience_id = %s AND chunk_id = ANY (%s) RETURNING length
    )
    SELECT count(*)::integer, coalesce(sum(length), 0)::bigint FROM gone
"""


def remove_terms(connection: Connection[Any], audience_id: int, chunks: Sequence[uuid.UUID]) -> Weight:
    """Take these chunks out of the keyword leg; returns what left it."""
    row = connection.execute(_REMOVE, (audience_id, list(chunks))).fetchone()
    number, terms = row or (0, 0)
    return Weight(chunks=number, terms=terms)
