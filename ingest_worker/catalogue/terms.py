"""The rows of the keyword leg: what terms a served chunk holds, and how often."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, LiteralString

import numpy as np
from psycopg import Connection

from ingest_worker.catalogue.binary import integer_array, sparsevec_array
from ingest_worker.catalogue.portions import portions
from shared.documents import Chunk, ChunkKind
from shared.lexical import LEXICAL_VERSION, MOST_COUNTED, TERM_SPACE, term_counts


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
_NEW: LiteralString = """
    SELECT audience_id, chunk_id, (%(terms)s::integer[])[first:last] AS terms, frequencies, length
    FROM unnest(%(audiences)s::integer[], %(ids)s::uuid[], %(firsts)s::integer[], %(lasts)s::integer[],
        %(frequencies)s::sparsevec[], %(lengths)s::integer[])
        AS new (audience_id, chunk_id, first, last, frequencies, length)
"""
_INSERT: LiteralString = f"""
    INSERT INTO docwell.chunk_terms (audience_id, chunk_id, terms, frequencies, length, lexical_version)
    SELECT new.*, %(version)s FROM ({_NEW}) AS new
"""


def insert_terms(connection: Connection[Any], chunks: Mapping[tuple[int, uuid.UUID], Chunk]) -> dict[int, Weight]:
    """Make chunks, by (audience_id, chunk_id), findable by the keyword leg; those that already are stay as they are.

    The caller holds the chunks. Returns what entered, by audience.
    """
    values = {"audiences": [audience for audience, _ in chunks], "ids": [chunk_id for _, chunk_id in chunks]}
    present = set(connection.execute(_PRESENT, values).fetchall())
    entering = [owner for owner in sorted(chunks) if owner not in present]
    entered: dict[int, Weight] = {}
    for some in portions(entering):
        counts = [term_counts(chunks[owner].embedded_text) for owner in some]
        lengths = [sum(counted.values()) for counted in counts]
        connection.execute(_INSERT, _parameters(connection, some, counts, lengths))
        for (audience, _), length in zip(some, lengths, strict=True):
            entered[audience] = entered.get(audience, Weight()) + Weight(chunks=1, terms=length)
    return entered


def _parameters(
    connection: Connection[Any],
    owners: Sequence[tuple[int, uuid.UUID]],
    counts: Sequence[Mapping[int, int]],
    lengths: Sequence[int],
) -> dict[str, Any]:
    lasts = list(accumulate(len(counted) for counted in counts))
    return {
        "audiences": [audience for audience, _ in owners],
        "ids": [chunk_id for _, chunk_id in owners],
        "terms": integer_array(connection, np.fromiter(chain.from_iterable(counts), np.int32, lasts[-1])),
        "firsts": [last - len(counted) + 1 for last, counted in zip(lasts, counts, strict=True)],
        "lasts": lasts,
        "frequencies": sparsevec_array(connection, counts, most=MOST_COUNTED, dimensions=TERM_SPACE),
        "lengths": list(lengths),
        "version": LEXICAL_VERSION,
    }


_OLDEST = "SELECT min(lexical_version) FROM docwell.chunk_terms"
# As every publisher does, it holds the chunks; it waits for none, so it stands in nobody's ring.
_HOLD_OUTDATED = """
    SELECT t.audience_id, t.chunk_id, t.length, c.kind, c.text, c.section, c.symbol, c.context
    FROM docwell.chunk_terms t JOIN docwell.chunk c USING (audience_id, chunk_id)
    WHERE t.lexical_version < %s LIMIT %s
    FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_REMAKE: LiteralString = f"""
    UPDATE docwell.chunk_terms t
    SET terms = new.terms, frequencies = new.frequencies, length = new.length, lexical_version = %(version)s
    FROM ({_NEW}) AS new WHERE t.audience_id = new.audience_id AND t.chunk_id = new.chunk_id
"""


def terms_are_outdated(connection: Connection[Any]) -> bool:
    """Whether chunks have terms that were made by older rules than this program's."""
    row = connection.execute(_OLDEST).fetchone()
    return row is not None and row[0] is not None and row[0] < LEXICAL_VERSION


def remake_terms(connection: Connection[Any], *, batch: int) -> tuple[dict[int, Weight], int]:
    """Make the terms of up to `batch` chunks again that were made by older rules, in the caller's transaction.

    Returns how much heavier each audience is for it, by audience, and how many chunks these were: none when nothing is left to do
    or others hold it.
    """
    outdated = connection.execute(_HOLD_OUTDATED, (LEXICAL_VERSION, batch)).fetchall()
    if not outdated:
        return {}, 0
    counts = [
        term_counts(
            Chunk(
                kind=ChunkKind(kind), text=text, tokens=0, section=(section,) if section else (), symbol=symbol, context=context
            ).embedded_text
        )
        for _, _, _, kind, text, section, symbol, context in outdated
    ]
    lengths = [sum(counted.values()) for counted in counts]
    connection.execute(_REMAKE, _parameters(connection, [row[:2] for row in outdated], counts, lengths))
    changed: dict[int, Weight] = {}
    for (audience, _, before, *_), length in zip(outdated, lengths, strict=True):
        changed[audience] = changed.get(audience, Weight()) + Weight(terms=length - before)
    return changed, len(outdated)


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
