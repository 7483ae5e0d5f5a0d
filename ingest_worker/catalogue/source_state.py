"""What a source's row says of its sweeps and its watcher, and what people ask of them there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

SIGN_OF_LIFE_SECONDS = 10.0
"""How often a watcher says that it is there."""

_RECORD: LiteralString = """
    UPDATE docwell.source SET
        newest_sweep = coalesce(%(began)s, newest_sweep), sweep_error = %(error)s, sweep_counts = %(counts)s,
        sweep_requested = CASE WHEN sweep_requested IS DISTINCT FROM %(answered)s THEN sweep_requested END
    WHERE source_id = %(source)s
"""
_RECORD_WALK: LiteralString = """
    UPDATE docwell.source SET left_out = %(left_out)s, held_deletes = %(held)s,
        approved_at = CASE WHEN approved_at IS DISTINCT FROM %(approved)s THEN approved_at END
    WHERE source_id = %(source)s
"""


def record_sweep(
    connection: Connection[Any],
    source_id: int,
    *,
    began: datetime | None,
    error: str | None = None,
    counts: Mapping[str, int] | None = None,
    answered: datetime | None = None,
) -> None:
    """Note a complete sweep (`began`, when it started), or why one could not be completed.

    `answered` is the request that was there when the sweep began; one that came later stays.
    """
    values = {"source": source_id, "began": began, "error": error, "counts": Jsonb(dict(counts or {})), "answered": answered}
    connection.execute(_RECORD, values)


def record_walk(connection: Connection[Any], source_id: int, *, left_out: int, held: int, approved: datetime | None) -> None:
    """Note what a walk to the end left out and holds. The approval that it went by (`approved`) is used up."""
    values = {"source": source_id, "left_out": left_out, "held": held, "approved": approved}
    connection.execute(_RECORD_WALK, values)


def record_error(connection: Connection[Any], source_id: int, error: str | None) -> None:
    """Why a source cannot be followed now, or None when it can."""
    connection.execute(
        "UPDATE docwell.source SET sweep_error = %s WHERE source_id = %s AND sweep_error IS DISTINCT FROM %s",
        (error, source_id, error),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person asked of a source's watcher. `request` is when a sweep was asked for that has not ended yet.

    `watched`: the watcher gave a sign of life within half a minute.
    """

    request: datetime | None
    watched: bool


_WISHES: LiteralString = """
    SELECT sweep_requested AS request, coalesce(watcher_seen > now() - interval '30 seconds', false) AS watched
    FROM docwell.source WHERE name = %s
"""


def read_wishes(connection: Connection[Any], name: str) -> Wishes | None:
    """What was asked of this source; None when there is none of this name."""
    with connection.cursor(row_factory=class_row(Wishes)) as cursor:
        return cursor.execute(_WISHES, (name,)).fetchone()


_WATCHED: LiteralString = """
    UPDATE docwell.source SET watch_mode = %(mode)s, watch_notice = %(notice)s,
        watcher_seen = CASE WHEN %(runs)s THEN now() END
    WHERE name = %(name)s
"""


def record_watch(connection: Connection[Any], name: str, *, mode: str | None, notice: str | None, runs: bool = True) -> None:
    """Say how the source is watched: `native`, `poll`, or None while its folder is away; and that the watcher runs, or ended."""
    connection.execute(_WATCHED, {"name": name, "mode": mode, "notice": notice, "runs": runs})


_REQUEST: LiteralString = """
    UPDATE docwell.source SET sweep_requested = clock_timestamp() WHERE name = %s RETURNING sweep_requested
"""
_PAUSE: LiteralString = """
    UPDATE docwell.source SET paused = %(paused)s,
        sweep_requested = CASE WHEN %(paused)s THEN NULL ELSE clock_timestamp() END
    WHERE name = %(name)s AND paused <> %(paused)s
"""
_APPROVE: LiteralString = """
    UPDATE docwell.source SET approved_at = %(as_of)s, sweep_requested = clock_timestamp()
    WHERE name = %(name)s AND held_deletes > 0 RETURNING sweep_requested
"""
_REMOVE: LiteralString = """
    UPDATE docwell.source SET removed_at = CASE WHEN %(returns)s THEN NULL ELSE now() END, sweep_requested = NULL,
        approved_at = NULL, sweep_error = NULL, left_out = 0, held_deletes = 0
    WHERE source_id = %(source)s
"""


def request_sweep(connection: Connection[Any], name: str) -> datetime | None:
    """Ask the source's watcher for a sweep now; returns the request, which is gone from the row when that sweep has ended."""
    row = connection.execute(_REQUEST, (name,)).fetchone()
    return None if row is None else row[0]


def set_paused(connection: Connection[Any], name: str, *, paused: bool) -> bool:
    """Pause a source, or let it go on with a sweep; False when it was so already."""
    return connection.execute(_PAUSE, {"name": name, "paused": paused}).rowcount == 1


def approve_deletes(connection: Connection[Any], name: str, *, as_of: datetime) -> datetime | None:
    """Let go what was held at that time (see `held.count_held`), with a sweep that deletes it.

    Returns that sweep's request, None when nothing is held.
    """
    row = connection.execute(_APPROVE, {"name": name, "as_of": as_of}).fetchone()
    return None if row is None else row[0]


def mark_removed(connection: Connection[Any], source_id: int, *, returns: bool) -> None:
    """Nothing more is taken from the source until its configuration is started again; at once when it `returns` by itself."""
    connection.execute(_REMOVE, {"source": source_id, "returns": returns})
    connection.execute("DELETE FROM docwell.left_out WHERE source_id = %s", (source_id,))
    connection.execute("DELETE FROM docwell.held_delete WHERE source_id = %s", (source_id,))


_TAKES: LiteralString = "SELECT 1 FROM docwell.source WHERE source_id = %s AND NOT paused AND removed_at IS NULL FOR SHARE"


def still_takes(connection: Connection[Any], source_id: int) -> bool:
    """Whether documents of the source may be asked for, held so until the transaction ends: a removal waits for it."""
    return connection.execute(_TAKES, (source_id,)).fetchone() is not None
