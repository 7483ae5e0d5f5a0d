"""The rows of passages: chunks by their content, and the places where a version holds them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from psycopg import Connection
from psycopg.types.json import Json

from ingest_worker.catalogue import without_vector
from ingest_worker.catalogue.portions import portions
from ingest_worker.catalogue.terms import Weight, remove_terms
from ingest_worker.catalogue.vectors import remove_vectors
from shared.documents import Chunk

_INSERT_CHUNKS = """
    INSERT INTO docwell.chunk (audience_id, chunk_id, input_id, kind, text, section, symbol, language, tokens, context)
    SELECT audience_id, chunk_id, input_id, kind, text, section, symbol, language, tokens, context
    FROM json_to_recordset(%s) AS made (audience_id integer, chunk_id uuid, input_id uuid, kind text, text text, section text,
        symbol text, language text, tokens integer, context text)
    ON CONFLICT DO NOTHING
"""


def insert_chunks(connection: Connection[Any], chunks: Mapping[tuple[int, uuid.UUID], Chunk]) -> None:
    """Make the rows of those chunks, by (audience_id, chunk_id), that have none.

    In the order of their keys: publishers who meet wait, and never in a ring.
    """
    for some in portions(sorted(chunks)):
        rows = [
            {
                "audience_id": audience,
                "chunk_id": chunk_id,
                "input_id": chunks[audience, chunk_id].input_id,
                "kind": chunks[audience, chunk_id].kind,
                "text": chunks[audience, chunk_id].text,
                "section": chunks[audience, chunk_id].section_text,
                "symbol": chunks[audience, chunk_id].symbol,
                "language": chunks[audience, chunk_id].language,
                "tokens": chunks[audience, chunk_id].tokens,
                "context": chunks[audience, chunk_id].context,
            }
            for audience, chunk_id in some
        ]
        connection.execute(_INSERT_CHUNKS, (Json(rows, dumps=orjson.dumps),))


_HOLD = """
    SELECT c.audience_id, c.chunk_id, c.input_id FROM docwell.chunk c
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS held (audience_id, chunk_id) USING (audience_id, chunk_id)
    ORDER BY c.audience_id, c.chunk_id
    FOR NO KEY UPDATE OF c
"""


def hold(connection: Connection[Any], chunks: Iterable[tuple[int, uuid.UUID]]) -> dict[tuple[int, uuid.UUID], uuid.UUID]:
    """Hold these chunks until we commit, so that no other publisher brings one in while we take it out, or the reverse.

    All at once and in one order, after the inserts: so no two publishers wait for each other. NO KEY UPDATE leaves room
    for the foreign keys of those who merely keep a chunk. Returns the embedded input of each.
    """
    ordered = sorted(set(chunks))
    if not ordered:
        return {}
    values = {"audiences": [audience for audience, _ in ordered], "ids": [chunk for _, chunk in ordered]}
    return {(row[0], row[1]): row[2] for row in connection.execute(_HOLD, values).fetchall()}


_OTHER_INPUT = """
    SELECT c.audience_id, c.chunk_id FROM docwell.chunk c
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[], %(inputs)s::uuid[], %(contexts)s::text[])
        AS wanted (audience_id, chunk_id, input_id, context) USING (audience_id, chunk_id)
    WHERE c.input_id <> wanted.input_id OR c.context IS DISTINCT FROM wanted.context
"""


def with_other_input(connection: Connection[Any], chunks: Mapping[tuple[int, uuid.UUID], Chunk]) -> set[tuple[int, uuid.UUID]]:
    """Which of these chunks, by (audience_id, chunk_id), are searched by another context than they have here."""
    values = {
        "audiences": [audience for audience, _ in chunks],
        "ids": [chunk_id for _, chunk_id in chunks],
        "inputs": [chunk.input_id for chunk in chunks.values()],
        "contexts": [chunk.context for chunk in chunks.values()],
    }
    return set(connection.execute(_OTHER_INPUT, values).fetchall())


_RECONTEXT = """
    UPDATE docwell.chunk c SET input_id = new.input_id, context = new.context
    FROM unnest(%(audiences)s::integer[], %(ids)s::uuid[], %(inputs)s::uuid[], %(contexts)s::text[])
        AS new (audience_id, chunk_id, input_id, context)
    WHERE (c.audience_id, c.chunk_id) = (new.audience_id, new.chunk_id)
"""


def change_context(
    connection: Connection[Any],
    chunks: Mapping[tuple[int, uuid.UUID], Chunk],
    before: Mapping[tuple[int, uuid.UUID], uuid.UUID],
) -> dict[int, Weight]:
    """Let these chunks, by (audience_id, chunk_id), be searched by the context that they have here; `before` are their inputs.

    The caller holds them, and brings their vectors and terms in. Returns what left the search structures, by audience.
    """
    left: dict[int, Weight] = {}
    for audience_id in sorted({audience for audience, _ in chunks}):
        own = [owner for owner in chunks if owner[0] == audience_id]
        left[audience_id] = remove_terms(connection, audience_id, [chunk_id for _, chunk_id in own])
        _take_vectors(connection, audience_id, [before[owner] for owner in own])
    values = {
        "audiences": [audience for audience, _ in chunks],
        "ids": [chunk_id for _, chunk_id in chunks],
        "inputs": [chunk.input_id for chunk in chunks.values()],
        "contexts": [chunk.context for chunk in chunks.values()],
    }
    connection.execute(_RECONTEXT, values)
    return left


_PLACES = """
    INSERT INTO docwell.version_chunk
        (version_id, ordinal, audience_id, chunk_id, page_start, page_end, page_label, line_start, line_end, slide, sheet,
         row_start, row_end, attachment)
    SELECT version_id, ordinal, audience_id, chunk_id, page_start, page_end, page_label, line_start, line_end, slide, sheet,
        row_start, row_end, attachment
    FROM json_to_recordset(%s) AS place (version_id bigint, ordinal integer, audience_id integer, chunk_id uuid,
        page_start integer, page_end integer, page_label text, line_start integer, line_end integer, slide integer, sheet text,
        row_start integer, row_end integer, attachment text)
"""


def insert_places(connection: Connection[Any], versions: Sequence[tuple[int, int, Sequence[Chunk]]]) -> None:
    """Write where each chunk of the versions (version_id, audience_id, chunks) stands, in reading order."""
    ids = [version_id for version_id, _, _ in versions]
    connection.execute("DELETE FROM docwell.version_chunk WHERE version_id = ANY (%s)", (ids,))
    places = [
        {
            "version_id": version_id,
            "ordinal": ordinal,
            "audience_id": audience_id,
            "chunk_id": chunk.chunk_id,
            **asdict(chunk.span),
        }
        for version_id, audience_id, chunks in versions
        for ordinal, chunk in enumerate(chunks)
    ]
    connection.execute(_PLACES, (Json(places, dumps=orjson.dumps),))


def chunk_owners(connection: Connection[Any], versions: Sequence[int]) -> set[tuple[int, uuid.UUID]]:
    """The chunks of these versions, as (audience_id, chunk_id)."""
    if not versions:
        return set()
    query = "SELECT DISTINCT audience_id, chunk_id FROM docwell.version_chunk WHERE version_id = ANY (%s)"
    return set(connection.execute(query, (list(versions),)).fetchall())


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
    values["ids"] = [chunk_id for chunk_id, _ in gone]
    removed = remove_terms(connection, audience_id, values["ids"])
    _take_vectors(connection, audience_id, [input_id for _, input_id in gone])
    connection.execute(_REMOVE_ORPHANS, values)
    return removed


def _take_vectors(connection: Connection[Any], audience_id: int, inputs: Sequence[uuid.UUID]) -> None:
    remove_vectors(connection, audience_id, inputs)
    without_vector.leave(connection, audience_id, inputs)


_RAISE = """
    UPDATE docwell.audience a SET version = version + 1,
        chunk_count = chunk_count + %(chunks)s, term_total = term_total + %(terms)s
    WHERE audience_id = %(audience)s
"""


def raise_version(connection: Connection[Any], audience_id: int, change: Weight) -> None:
    """Tell caches and cursors that the audience changed, and keep its BM25 averages. The last write before the commit."""
    connection.execute(_RAISE, {"audience": audience_id, "chunks": change.chunks, "terms": change.terms})
