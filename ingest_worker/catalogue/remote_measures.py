"""How all sources over the network stand, in one statement, for `/metrics` and the screen of state. Nothing is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMeasure:
    """A source that is followed. Times are seconds since the epoch, ages seconds.

    `synced` is when it was last followed to an end, None: never; `behind` is how long ago that was, or else that it was added.
    `failures` are those in a row; `rests`: nothing is asked of it now. `failed` counts things that could not be taken. An event
    waits, or is dead: given up. `subscription_expires` is when the first subscription ends, where the connector says so.
    """

    name: str
    type: str
    paused: bool
    synced: float | None
    behind: float
    failures: int
    rests: bool
    reason: str | None
    failed: int
    events_waiting: int
    events_dead: int
    oldest_event: float
    subscription_expires: float | None
    subscription_error: str | None


_MEASURES: LiteralString = """
    SELECT s.name, s.type, s.paused,
           extract(epoch FROM greatest(r.changes_at, r.listed_at))::float8 AS synced,
           greatest(0, extract(epoch FROM now() - coalesce(greatest(r.changes_at, r.listed_at), s.created_at)))::float8 AS behind,
           r.failures, coalesce(r.resume_at > now(), false) AS rests, r.resume_reason AS reason,
           (SELECT count(*) FROM docwell.remote_item i WHERE i.source_id = r.source_id AND i.error IS NOT NULL) AS failed,
           coalesce(e.waiting, 0) AS events_waiting, coalesce(e.dead, 0) AS events_dead,
           coalesce(e.oldest, 0)::float8 AS oldest_event,
           extract(epoch FROM (r.subscription ->> 'expires')::timestamptz)::float8 AS subscription_expires,
           r.subscription_error
    FROM docwell.remote r JOIN docwell.source s USING (source_id)
    LEFT JOIN (
        SELECT source_id, count(*) FILTER (WHERE state <> 'dead') AS waiting, count(*) FILTER (WHERE state = 'dead') AS dead,
               greatest(0, extract(epoch FROM clock_timestamp() - min(received_at) FILTER (WHERE state <> 'dead'))) AS oldest
        FROM docwell.event WHERE state <> 'handled' GROUP BY source_id
    ) AS e USING (source_id)
    WHERE s.removed_at IS NULL ORDER BY s.name
"""


def read_remote_measures(connection: Connection[Any]) -> list[RemoteMeasure]:
    """All of them, by name; without those that were taken out."""
    with connection.cursor(row_factory=class_row(RemoteMeasure)) as cursor:
        return cursor.execute(_MEASURES).fetchall()
