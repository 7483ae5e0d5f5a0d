"""Keeps searches fast while documents come in: vectors move under the HNSW index, terms are merged, statistics are refreshed.

A fresh vector is searched like any other, but compared one by one: about a millisecond for a thousand of them. Keeping HNSW up
to date takes some three milliseconds for each, so it is not done in the transaction that publishes a document.
"""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import Connection, sql
from psycopg.errors import LockNotAvailable

from ingest_worker.catalogue.vectors import vector_table

CROWDED = 20_000
"""From so many fresh vectors on (20 ms of a search) new ones go straight under the index, until half of them have moved."""

BATCH = 64
"""Vectors of one transaction: it holds their chunks for a fifth of a second."""

_LEAST_CHANGED = 500
_SHARE_CHANGED = 0.2

_SPACES = "SELECT space_id, crowded FROM docwell.embedding_space WHERE state <> 'retired' ORDER BY space_id"
_COUNT = sql.SQL("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE NOT indexed LIMIT %s) AS fresh")
_SET_CROWDED = "UPDATE docwell.embedding_space SET crowded = %s WHERE space_id = %s"
# Like every publisher the move holds the chunks first: so none of these vectors comes, goes or moves twice meanwhile.
_HOLD = sql.SQL("""
    SELECT c.input_id, c.audience_id
    FROM (SELECT input_id, audience_id FROM {table} WHERE NOT indexed LIMIT %(batch)s) AS fresh
    JOIN docwell.chunk c USING (input_id, audience_id)
    ORDER BY c.audience_id, c.chunk_id
    FOR NO KEY UPDATE OF c SKIP LOCKED
""")
# New terms wait in a list that every keyword search reads through, until somebody merges it into the index (PostgreSQL, "GIN
# Fast Update Technique"). With the terms of 300 documents in it a search took three times as long. An empty list costs nothing.
_MERGE_TERMS = "SELECT gin_clean_pending_list('docwell.chunk_terms_terms')"
_MOVE = sql.SQL("""
    UPDATE {table} v SET indexed = true
    FROM unnest(%(inputs)s::uuid[], %(audiences)s::integer[]) AS held (input_id, audience_id)
    WHERE v.input_id = held.input_id AND v.audience_id = held.audience_id AND NOT v.indexed
""")


def fresh_vectors(connection: Connection[Any], space_id: int, *, cap: int) -> int:
    """How many vectors of the space are not under the index yet, counted up to `cap`."""
    row = connection.execute(_COUNT.format(table=vector_table(space_id)), (cap,)).fetchone()
    return int(row[0]) if row else 0


def index_some(connection: Connection[Any], *, idle: bool) -> int:
    """Move a batch of each space when nothing else is due (`idle`) or its fresh vectors are too many; returns how many moved."""
    moved = 0
    for space_id, crowded in connection.execute(_SPACES).fetchall():
        fresh = fresh_vectors(connection, space_id, cap=CROWDED)
        now_crowded = fresh >= (CROWDED // 2 if crowded else CROWDED)
        if now_crowded != crowded:
            connection.execute(_SET_CROWDED, (now_crowded, space_id))
        if fresh and (idle or now_crowded):
            moved += _move_batch(connection, space_id)
    if idle and not moved:
        connection.execute(_MERGE_TERMS)
        remove_retired(connection)
    return moved


# A search that began before the switch may still read the old table; it takes half a minute at most.
_RETIRED = """
    SELECT space_id FROM docwell.embedding_space
    WHERE state = 'retired' AND NOT is_dropped AND changed_at < now() - make_interval(secs => %s)
"""
RETIRED_SECONDS = 60.0


def remove_retired(connection: Connection[Any], *, after_seconds: float = RETIRED_SECONDS) -> int:
    """Drop the vectors of spaces that nobody uses any more; returns how many went. Who reads something just now is not waited
    for: the next look tries again."""
    gone = 0
    for (space_id,) in connection.execute(_RETIRED, (after_seconds,)).fetchall():
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '1s'")
                connection.execute("UPDATE docwell.embedding_space SET is_dropped = true WHERE space_id = %s", (space_id,))
                connection.execute(sql.SQL("DROP TABLE {}").format(vector_table(space_id)))
            gone += 1
        except LockNotAvailable:
            continue
    return gone


# Autovacuum looks once a minute; until then PostgreSQL plans searches for the few rows that there were, twice as slow as need be.
_OUTDATED = """
    SELECT s.relname FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = 'docwell' AND s.n_mod_since_analyze > greatest(%(least)s, %(share)s * c.reltuples)
    ORDER BY s.relname
"""
_ANALYZE = sql.SQL("ANALYZE {}")


def refresh_statistics(connection: Connection[Any]) -> int:
    """Let PostgreSQL look at the tables of which a good part changed since it looked last; returns how many these were."""
    outdated = connection.execute(_OUTDATED, {"least": _LEAST_CHANGED, "share": _SHARE_CHANGED}).fetchall()
    for (table,) in outdated:
        connection.execute(_ANALYZE.format(sql.Identifier("docwell", table)))
    return len(outdated)


def _move_batch(connection: Connection[Any], space_id: int) -> int:
    table = vector_table(space_id)
    with connection.transaction():
        held: list[tuple[uuid.UUID, int]] = connection.execute(_HOLD.format(table=table), {"batch": BATCH}).fetchall()
        values = {"inputs": [one for one, _ in held], "audiences": [audience for _, audience in held]}
        return connection.execute(_MOVE.format(table=table), values).rowcount
