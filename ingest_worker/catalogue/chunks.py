"""The rows that a search reads: chunks, their places, their terms and their vectors. All SQL of publishing stands here."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import Connection, sql

from shared.documents import Chunk, Span
from shared.lexical import sparsevec_text, term_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What entered or left the search structures: chunks, and the terms in them. BM25's averages are made of these."""

    chunks: int = 0
    terms: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(chunks=self.chunks + other.chunks, terms=self.terms + other.terms)

    def __neg__(self) -> Weight:
        return Weight(chunks=-self.chunks, terms=-self.terms)


_INSERT_CHUNKS = """
    INSERT INTO docwell.chunk (audience_id, chunk_id, input_id, kind, text, section, symbol, language, tokens)
    SELECT %(audience)s, * FROM unnest(%(ids)s::uuid[], %(inputs)s::uuid[], %(kinds)s::text[], %(texts)s::text[],
        %(sections)s::text[], %(symbols)s::text[], %(languages)s::text[], %(tokens)s::integer[])
    ON CONFLICT DO NOTHING
"""


def insert_chunks(connection: Connection[Any], audience_id: int, chunks: Sequence[Chunk]) -> None:
    """Make the rows of those chunks that have none, in the order of their ids: publishers who meet wait, and never in a ring."""
    ordered = sorted(chunks, key=lambda chunk: chunk.chunk_id)
    values = {
        "audience": audience_id,
        "ids": [chunk.chunk_id for chunk in ordered],
        "inputs": [chunk.input_id for chunk in ordered],
        "kinds": [chunk.kind.value for chunk in ordered],
        "texts": [chunk.text for chunk in ordered],
        "sections": [chunk.section_text for chunk in ordered],
        "symbols": [chunk.symbol for chunk in ordered],
        "languages": [chunk.language for chunk in ordered],
        "tokens": [chunk.tokens for chunk in ordered],
    }
    connection.execute(_INSERT_CHUNKS, values)


_HOLD = """
    SELECT 1 FROM docwell.chunk c
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS held (audience_id, chunk_id) USING (audience_id, chunk_id)
    ORDER BY c.audience_id, c.chunk_id
    FOR NO KEY UPDATE OF c
"""


def hold(connection: Connection[Any], chunks: Iterable[tuple[int, uuid.UUID]]) -> None:
    """Hold these chunks until we commit, so that no other publisher brings one in while we take it out, or the reverse.

    All at once and in one order, after the inserts: so no two publishers wait for each other. NO KEY UPDATE leaves room
    for the foreign keys of those who merely keep a chunk.
    """
    ordered = sorted(set(chunks))
    connection.execute(_HOLD, {"audiences": [audience for audience, _ in ordered], "ids": [chunk for _, chunk in ordered]})


_INSERT_TERMS = """
    WITH made AS (
        INSERT INTO docwell.chunk_terms (audience_id, chunk_id, terms, frequencies, length)
        SELECT %(audience)s, id, terms::integer[], frequencies::sparsevec, length
        FROM unnest(%(ids)s::uuid[], %(terms)s::text[], %(frequencies)s::text[], %(lengths)s::integer[])
            AS made (id, terms, frequencies, length)
        ON CONFLICT DO NOTHING
        RETURNING length
    )
    SELECT count(*)::integer, coalesce(sum(length), 0)::bigint FROM made
"""


def insert_terms(connection: Connection[Any], audience_id: int, chunks: Sequence[Chunk]) -> Weight:
    """Make the chunks findable by the keyword leg; those that already are stay as they are."""
    counted = [(chunk.chunk_id, term_counts(chunk.embedded_text)) for chunk in chunks]
    values = {
        "audience": audience_id,
        "ids": [chunk_id for chunk_id, _ in counted],
        "terms": ["{" + ",".join(map(str, counts)) + "}" for _, counts in counted],
        "frequencies": [sparsevec_text(counts) for _, counts in counted],
        "lengths": [sum(counts.values()) for _, counts in counted],
    }
    return _weight(connection.execute(_INSERT_TERMS, values).fetchone())


def _weight(row: tuple[Any, ...] | None) -> Weight:
    chunks, terms = row or (0, 0)
    return Weight(chunks=chunks, terms=terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """An embedding space, and whether its fresh vectors are too many already for more of them."""

    space_id: int
    crowded: bool = False


def vector_table(space_id: int) -> sql.Composable:
    """The table of a space's vectors."""
    return sql.Identifier("docwell", f"vector_{space_id}")


_WITH_VECTOR = sql.SQL("SELECT DISTINCT input_id FROM {table} WHERE input_id = ANY (%s)")


def inputs_with_vector(connection: Connection[Any], space_id: int, inputs: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Which of the embedded inputs have a vector in this space already, in any audience."""
    query = _WITH_VECTOR.format(table=vector_table(space_id))
    return {row[0] for row in connection.execute(query, (list(inputs),)).fetchall()}


# The two parts of the table have no key in common; who holds the chunk may look in both and then write.
_INSERT_VECTOR = sql.SQL("""
    INSERT INTO {table} (input_id, audience_id, indexed, embedding)
    SELECT %(input)s, %(audience)s, %(indexed)s, %(embedding)s
    WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE input_id = %(input)s AND audience_id = %(audience)s)
""")
_COPY_VECTORS = sql.SQL("""
    INSERT INTO {table} (input_id, audience_id, indexed, embedding)
    SELECT DISTINCT ON (v.input_id) v.input_id, %(audience)s, %(indexed)s, v.embedding
    FROM {table} v
    WHERE v.input_id = ANY (%(inputs)s)
      AND NOT EXISTS (SELECT 1 FROM {table} here WHERE here.input_id = v.input_id AND here.audience_id = %(audience)s)
    ON CONFLICT DO NOTHING
""")
_MISSING_VECTORS = sql.SQL("""
    SELECT wanted FROM unnest(%(inputs)s::uuid[]) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM {table} v WHERE v.input_id = wanted AND v.audience_id = %(audience)s)
""")


def insert_vectors(
    connection: Connection[Any],
    space: Space,
    audience_id: int,
    inputs: Sequence[uuid.UUID],
    vectors: Mapping[uuid.UUID, NDArray[np.float32]],
) -> set[uuid.UUID]:
    """Give every input its vector in this audience: from `vectors`, else copied from another one. The caller holds the chunks.

    Returns the inputs that still have none, since their row went while we were embedding.
    """
    table = vector_table(space.space_id)
    common = {"audience": audience_id, "indexed": space.crowded}
    if vectors:
        with connection.cursor() as cursor:
            cursor.executemany(
                _INSERT_VECTOR.format(table=table),
                [{**common, "input": key, "embedding": HalfVector(vectors[key])} for key in sorted(vectors)],
            )
    known = [key for key in inputs if key not in vectors]
    if not known:
        return set()
    values = {**common, "inputs": known}
    connection.execute(_COPY_VECTORS.format(table=table), values)
    return {row[0] for row in connection.execute(_MISSING_VECTORS.format(table=table), values).fetchall()}


_PLACE = """
    INSERT INTO docwell.version_chunk
        (version_id, ordinal, audience_id, chunk_id, page_start, page_end, page_label, line_start, line_end, slide, sheet,
         row_start, row_end, attachment)
    SELECT %(version)s, (place.ordinality - 1)::integer, %(audience)s, chunk_id, page_start, page_end, page_label, line_start,
        line_end, slide, sheet, row_start, row_end, attachment
    FROM unnest(%(ids)s::uuid[], %(page_start)s::integer[], %(page_end)s::integer[], %(page_label)s::text[],
        %(line_start)s::integer[], %(line_end)s::integer[], %(slide)s::integer[], %(sheet)s::text[], %(row_start)s::integer[],
        %(row_end)s::integer[], %(attachment)s::text[]) WITH ORDINALITY
        AS place (chunk_id, page_start, page_end, page_label, line_start, line_end, slide, sheet, row_start, row_end, attachment,
                  ordinality)
"""


def insert_places(connection: Connection[Any], version_id: int, audience_id: int, chunks: Sequence[Chunk]) -> None:
    """Write where each chunk of the version stands, in reading order."""
    connection.execute("DELETE FROM docwell.version_chunk WHERE version_id = %s", (version_id,))
    columns = {field.name: [getattr(chunk.span, field.name) for chunk in chunks] for field in fields(Span)}
    ids = [chunk.chunk_id for chunk in chunks]
    connection.execute(_PLACE, {"version": version_id, "audience": audience_id, "ids": ids, **columns})


def chunk_ids(connection: Connection[Any], version_id: int) -> set[uuid.UUID]:
    """The chunks of a version."""
    rows = connection.execute("SELECT chunk_id FROM docwell.version_chunk WHERE version_id = %s", (version_id,)).fetchall()
    return {row[0] for row in rows}


# A statement of its own, so a new snapshot: what a publisher wrote who held a chunk before us is seen.
_NOT_SERVED = """
    SELECT c.chunk_id, c.input_id
    FROM docwell.chunk c
    WHERE c.audience_id = %(audience)s AND c.chunk_id = ANY (%(ids)s)
      AND NOT EXISTS (
          SELECT 1 FROM docwell.version_chunk place
          JOIN docwell.document d ON d.served_version_id = place.version_id
          WHERE place.audience_id = c.audience_id AND place.chunk_id = c.chunk_id)
"""
_REMOVE_TERMS = """
    WITH gone AS (
        DELETE FROM docwell.chunk_terms WHERE audience_id = %(audience)s AND chunk_id = ANY (%(ids)s) RETURNING length
    )
    SELECT count(*)::integer, coalesce(sum(length), 0)::bigint FROM gone
"""
_REMOVE_VECTORS = sql.SQL("DELETE FROM {table} WHERE audience_id = %(audience)s AND input_id = ANY (%(inputs)s)")
_SPACES = "SELECT space_id FROM docwell.embedding_space ORDER BY space_id"
_REMOVE_ORPHANS = """
    DELETE FROM docwell.chunk c
    WHERE c.audience_id = %(audience)s AND c.chunk_id = ANY (%(ids)s)
      AND NOT EXISTS (SELECT 1 FROM docwell.version_chunk place
                      WHERE place.audience_id = c.audience_id AND place.chunk_id = c.chunk_id)
"""


def remove_unserved(connection: Connection[Any], audience_id: int, candidates: Iterable[uuid.UUID]) -> Weight:
    """Take chunks that no served version holds out of the search structures, and drop those that no version holds at all.

    The caller holds them.

    Returns what left the search structures.
    """
    values: dict[str, Any] = {"audience": audience_id, "ids": sorted(candidates)}
    if not values["ids"]:
        return Weight()
    gone = connection.execute(_NOT_SERVED, values).fetchall()
    values = {"audience": audience_id, "ids": [row[0] for row in gone], "inputs": [row[1] for row in gone]}
    removed = _weight(connection.execute(_REMOVE_TERMS, values).fetchone())
    for (space_id,) in connection.execute(_SPACES).fetchall():
        connection.execute(_REMOVE_VECTORS.format(table=vector_table(space_id)), values)
    connection.execute(_REMOVE_ORPHANS, values)
    return removed


_RAISE = """
    UPDATE docwell.audience a SET version = version + 1,
        chunk_count = chunk_count + %(chunks)s, term_total = term_total + %(terms)s
    WHERE audience_id = %(audience)s
"""


def raise_version(connection: Connection[Any], audience_id: int, change: Weight) -> None:
    """Tell caches and cursors that the audience changed, and keep its BM25 averages. The last write before the commit."""
    connection.execute(_RAISE, {"audience": audience_id, "chunks": change.chunks, "terms": change.terms})
