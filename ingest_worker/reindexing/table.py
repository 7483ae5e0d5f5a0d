"""The rows of a reindex: which passages lack a vector in the space that is filled, and how far it has come."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection, sql
from psycopg.rows import class_row

from ingest_worker.catalogue.vectors import vector_table
from ingest_worker.catalogue.without_vector import MAY_LEAVE
from shared.documents import Chunk, ChunkKind

BATCH = 64
"""Passages that are embedded at once: a job that comes meanwhile waits for so many."""

_PAGE = 2_000
"""Passages that one look goes past at most, when they have their vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """A passage without a vector, and one of the documents that are served with it. `may_leave`: one of their sources lets it go
    to a paid model."""

    audience_id: int
    input_id: uuid.UUID
    document_id: uuid.UUID | None
    may_leave: bool
    chunk: Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a look found: the passages to embed, and the place up to which everything is looked at; None at the end."""

    lacking: Sequence[Lacking]
    filled_to: str | None


# What is searched has terms: exactly that needs a vector.
_LOOK = sql.SQL("""
    WITH page AS MATERIALIZED (
        SELECT t.audience_id, t.chunk_id FROM docwell.chunk_terms t
        WHERE (t.audience_id, t.chunk_id) > (%(audience)s, %(chunk)s)
        ORDER BY t.audience_id, t.chunk_id LIMIT %(page)s
    ), lacking AS MATERIALIZED (
        SELECT c.* FROM page JOIN docwell.chunk c USING (audience_id, chunk_id)
        WHERE NOT EXISTS (SELECT 1 FROM {table} v WHERE v.input_id = c.input_id AND v.audience_id = c.audience_id)
          AND NOT EXISTS (SELECT 1 FROM docwell.without_vector w
                          WHERE w.space_id = %(space)s AND w.audience_id = c.audience_id AND w.input_id = c.input_id
                            AND w.look_at IS NULL)
        ORDER BY c.audience_id, c.chunk_id LIMIT %(batch)s
    )
    SELECT l.audience_id, l.chunk_id, l.input_id, l.kind, l.text, l.section, l.symbol, l.language, l.tokens, l.context,
           held.document_id, held.may_leave
    FROM lacking l {held}
    UNION ALL
    (SELECT audience_id, chunk_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
     FROM page ORDER BY audience_id DESC, chunk_id DESC LIMIT 1)
""")
# Of several documents one whose source lets the passage go.
_HELD = sql.SQL("""
    LEFT JOIN LATERAL (
        SELECT d.document_id, {may_leave} AS may_leave
        FROM docwell.version_chunk place JOIN docwell.document d ON d.served_version_id = place.version_id
        JOIN docwell.source s USING (source_id)
        WHERE place.audience_id = l.audience_id AND place.chunk_id = l.chunk_id ORDER BY may_leave DESC LIMIT 1
    ) AS held ON true
""").format(may_leave=sql.SQL(MAY_LEAVE))
# Those of the active space that may have a vector by now.
_DUE = sql.SQL("""
    SELECT l.audience_id, l.chunk_id, l.input_id, l.kind, l.text, l.section, l.symbol, l.language, l.tokens, l.context,
           held.document_id, held.may_leave
    FROM (SELECT c.* FROM docwell.without_vector w JOIN docwell.chunk c USING (audience_id, input_id)
          WHERE w.space_id = %(space)s AND w.look_at <= now() LIMIT %(batch)s) AS l {held}
""").format(held=_HELD)
_FIRST = uuid.UUID(int=0)


def look(connection: Connection[Any], space_id: int, filled_to: str | None, *, confined: Sequence[str] = ()) -> Page:
    """The next passages after this place that have no vector in the space, at most BATCH, but for those that stay without one.

    `confined` are sources that the settings keep from paid models.
    """
    audience, _, chunk = (filled_to or f"-1/{_FIRST}").partition("/")
    values = {
        "audience": int(audience),
        "chunk": uuid.UUID(chunk),
        "page": _PAGE,
        "batch": BATCH,
        "space": space_id,
        "confined": list(confined),
    }
    query = _LOOK.format(table=vector_table(space_id), held=_HELD)
    rows = connection.execute(query, values).fetchall()
    lacking = _lacking(rows)
    if not rows:
        return Page(lacking=(), filled_to=None)
    # A full batch may have left some of the page for the next look.
    is_full = len(lacking) == BATCH
    audience_id, chunk_id = max((row[0], row[1]) for row in rows if row[2] is not None or not is_full)
    return Page(lacking=lacking, filled_to=f"{audience_id}/{chunk_id}")


_SPACE_WITH_GAP: LiteralString = """
    SELECT w.space_id FROM docwell.without_vector w JOIN docwell.embedding_space s USING (space_id)
    WHERE w.look_at <= now() AND s.state = 'active' LIMIT 1
"""


def space_with_gap(connection: Connection[Any]) -> int | None:
    """The active space, when passages that stayed without a vector in it may have one by now."""
    row = connection.execute(_SPACE_WITH_GAP).fetchone()
    return None if row is None else int(row[0])


def due(connection: Connection[Any], space_id: int, *, confined: Sequence[str] = ()) -> list[Lacking]:
    """Passages that stayed without a vector in this space and may have one by now, at most BATCH."""
    values = {"space": space_id, "batch": BATCH, "confined": list(confined)}
    return _lacking(connection.execute(_DUE, values).fetchall())


def _lacking(rows: Sequence[tuple[Any, ...]]) -> list[Lacking]:
    return [
        Lacking(
            audience_id=row[0],
            input_id=row[2],
            document_id=row[10],
            may_leave=bool(row[11]),
            chunk=Chunk(
                kind=ChunkKind(row[3]),
                text=row[4],
                section=(row[5],) if row[5] else (),
                symbol=row[6],
                language=row[7],
                tokens=row[8],
                context=row[9],
            ),
        )
        for row in rows
        if row[2] is not None
    ]


_STILL = """
    SELECT c.audience_id, c.input_id FROM docwell.chunk c JOIN docwell.chunk_terms t USING (audience_id, chunk_id)
    JOIN unnest(%(audiences)s::integer[], %(inputs)s::uuid[]) AS wanted (audience_id, input_id) USING (audience_id, input_id)
    ORDER BY c.audience_id, c.chunk_id FOR NO KEY UPDATE OF c
"""


def hold_served(connection: Connection[Any], owners: Sequence[tuple[int, uuid.UUID]]) -> set[tuple[int, uuid.UUID]]:
    """Those of the owners (audience_id, input_id) that are still searched, held as publishers hold them until we commit."""
    values = {"audiences": [audience for audience, _ in owners], "inputs": [input_id for _, input_id in owners]}
    return set(connection.execute(_STILL, values).fetchall())


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """The space beside the active one, and how far its round has come. `is_former`: the active one was made to replace it."""

    space_id: int
    model: str
    provider: str
    dimension: int
    fingerprint: str
    paused: bool
    is_former: bool
    filled_to: str | None
    round_empty: bool
    is_due: bool
    complete_at: datetime | None
    problem: str | None
    changed_at: datetime


_FILLING: LiteralString = """
    SELECT space_id, model, provider, dimension, fingerprint, paused, filled_to, round_empty,
           look_at <= now() AS is_due, complete_at,
           space_id < (SELECT a.space_id FROM docwell.embedding_space a WHERE a.state = 'active') AS is_former,
           problem, changed_at
    FROM docwell.embedding_space WHERE state = 'filling'
"""


def filling(connection: Connection[Any]) -> Filling | None:
    """The space that is filled; None when no reindex is open."""
    with connection.cursor(row_factory=class_row(Filling)) as cursor:
        return cursor.execute(_FILLING).fetchone()


_ADVANCE: LiteralString = """
    UPDATE docwell.embedding_space SET filled_to = %(to)s, round_empty = round_empty AND %(empty)s, problem = NULL,
        complete_at = CASE WHEN %(empty)s THEN complete_at END
    WHERE space_id = %(space)s AND state = 'filling'
"""
# The round may have gone past what a publisher was about to add: one that met nothing, from end to end, ends the filling.
_END_ROUND: LiteralString = """
    UPDATE docwell.embedding_space SET filled_to = NULL, round_empty = true,
        complete_at = CASE WHEN round_empty THEN now() ELSE complete_at END,
        look_at = CASE WHEN round_empty THEN now() + make_interval(secs => %(rest)s) ELSE now() END
    WHERE space_id = %(space)s AND state = 'filling' RETURNING complete_at IS NOT NULL
"""
_FAIL: LiteralString = """
    UPDATE docwell.embedding_space SET problem = %(problem)s, look_at = now() + make_interval(secs => %(rest)s)
    WHERE space_id = %(space)s AND state = 'filling'
"""


def advance(connection: Connection[Any], space_id: int, filled_to: str | None, *, empty: bool) -> None:
    """The round has come to this place; `empty`: nothing lacked a vector since the place before."""
    connection.execute(_ADVANCE, {"space": space_id, "to": filled_to, "empty": empty})


def end_round(connection: Connection[Any], space_id: int, *, rest_seconds: float) -> bool:
    """The round is over. True when it met nothing: the space is complete, and is looked through again after the rest."""
    row = connection.execute(_END_ROUND, {"space": space_id, "rest": rest_seconds}).fetchone()
    return bool(row and row[0])


def fail(connection: Connection[Any], space_id: int, problem: str, *, rest_seconds: float) -> None:
    """A batch could not be embedded, for this reason; the next try comes after the rest."""
    connection.execute(_FAIL, {"space": space_id, "problem": problem[:1000], "rest": rest_seconds})


_COUNT = sql.SQL("""
    SELECT count(*), count(*) FILTER (WHERE lacks AND gap IS NULL),
           coalesce(sum(size) FILTER (WHERE lacks AND gap IS NULL), 0)::bigint,
           count(*) FILTER (WHERE lacks AND gap = 'kept_here'), count(*) FILTER (WHERE lacks AND gap = 'refused')
    FROM (
        SELECT NOT EXISTS (SELECT 1 FROM {table} v WHERE v.input_id = c.input_id AND v.audience_id = c.audience_id) AS lacks,
               c.tokens AS size, w.reason_code AS gap
        FROM docwell.chunk_terms t JOIN docwell.chunk c USING (audience_id, chunk_id)
        LEFT JOIN docwell.without_vector w
            ON w.space_id = %(space)s AND w.audience_id = c.audience_id AND w.input_id = c.input_id AND w.look_at IS NULL
    ) AS passages
""")
_ALL = sql.SQL("""
    SELECT count(*), count(*), coalesce(sum(tokens), 0)::bigint, 0, 0 FROM (
        SELECT DISTINCT ON (c.input_id) c.tokens FROM docwell.chunk_terms t JOIN docwell.chunk c USING (audience_id, chunk_id)
    ) AS passages
""")
_ALL_THAT_LEAVES = sql.SQL("""
    SELECT count(*), count(*) FILTER (WHERE leaves), coalesce(sum(tokens) FILTER (WHERE leaves), 0)::bigint,
           count(*) FILTER (WHERE NOT leaves), 0
    FROM (
        SELECT DISTINCT ON (l.input_id) l.tokens, coalesce(held.may_leave, false) AS leaves
        FROM docwell.chunk_terms t JOIN docwell.chunk l USING (audience_id, chunk_id) {held}
        ORDER BY l.input_id, leaves DESC
    ) AS passages
""").format(held=_HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Passages that are searched, those of them without a vector, and the tokens of these (by the bundled tokenizer).

    Beside them stand those that stay without one: `kept_here` by their sources, and `refused` by the model.
    """

    passages: int
    lacking: int
    tokens: int
    kept_here: int
    refused: int


def progress(
    connection: Connection[Any], space_id: int | None, *, is_paid: bool = False, confined: Sequence[str] = ()
) -> Progress:
    """How far the space has come; for None, a space that holds nothing yet, with passages of equal text counted once, and those
    that `confined` and other sources keep from a paid model apart."""
    values = {"space": space_id, "confined": list(confined)}
    if space_id is not None:
        query: sql.SQL | sql.Composed = _COUNT.format(table=vector_table(space_id))
    else:
        query = _ALL_THAT_LEAVES if is_paid else _ALL
    row = connection.execute(query, values).fetchone() or (0, 0, 0, 0, 0)
    return Progress(passages=row[0], lacking=row[1], tokens=row[2], kept_here=row[3], refused=row[4])
