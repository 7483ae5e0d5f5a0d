"""What sources sent to their webhooks, until it has been looked at. All SQL of that table stands here.

An event waits, is taken, and is handled; one that cannot be handled waits again for longer and longer, and after some attempts
is dead, where a person sees it. Of handled ones kind, delivery id and the body's hash are kept for some days, so that a delivery
that is sent again is known; the body is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.sources.protocol import Event

MOST_ATTEMPTS = 8
"""After that many an event is dead: with the waits below that is more than four hours."""

KEEP_DAYS = 7
"""How long what was handled is remembered. Senders try again for hours, not days."""

_FIRST_WAIT_SECONDS = 60
_LONGEST_WAIT_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An event as it came. `delivery_id` is equal for deliveries that are the same one sent again; None: nothing tells that."""

    source_id: int
    kind: str
    delivery_id: str | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An event as it lies here. `duplicate`: it was there already, and nothing was stored for this delivery."""

    event_id: int
    duplicate: bool


# In one order for everybody: two who store the same events wait for each other, and never in a circle.
_STORE: LiteralString = """
    INSERT INTO docwell.event (source_id, kind, delivery_id, body, body_sha256)
    SELECT * FROM unnest(%(sources)s::integer[], %(kinds)s::text[], %(deliveries)s::text[], %(bodies)s::bytea[],
                         %(hashes)s::bytea[]) AS came (source_id, kind, delivery_id, body, body_sha256)
    ORDER BY source_id, body_sha256, kind, delivery_id
    ON CONFLICT DO NOTHING RETURNING event_id, source_id, kind, delivery_id, body_sha256
"""
_SAME: LiteralString = """
    SELECT number, coalesce(
        (SELECT e.event_id FROM docwell.event e
         WHERE e.source_id = came.source_id AND e.delivery_id = came.delivery_id),
        (SELECT e.event_id FROM docwell.event e
         WHERE e.source_id = came.source_id AND e.kind = came.kind AND e.body_sha256 = came.body_sha256 AND e.state = 'waiting'))
    FROM unnest(%(sources)s::integer[], %(kinds)s::text[], %(deliveries)s::text[], %(hashes)s::bytea[])
        WITH ORDINALITY AS came (source_id, kind, delivery_id, body_sha256, number)
"""
_STORE_TRIES = 5


def store_all(connection: Connection[Any], events: Sequence[Arrived]) -> list[Stored]:
    """Keep events in the caller's transaction, in one statement; when that has committed they are not lost any more.

    One is a duplicate when its delivery id is known (whatever became of it), or while an event of the same kind and body still
    waits. An equal body after that one was taken is news.
    """
    found: dict[int, Stored] = {}
    hashes = [hashlib.sha256(event.body).digest() for event in events]
    for _ in range(_STORE_TRIES):
        left = [number for number in range(len(events)) if number not in found]
        if not left:
            return [found[number] for number in range(len(events))]
        values = {
            "sources": [events[number].source_id for number in left],
            "kinds": [events[number].kind for number in left],
            "deliveries": [events[number].delivery_id for number in left],
            "bodies": [events[number].body for number in left],
            "hashes": [hashes[number] for number in left],
        }
        rows = connection.execute(_STORE, values).fetchall()
        new = {(source, kind, delivery, bytes(digest)): event_id for event_id, source, kind, delivery, digest in rows}
        for number in left:
            event = events[number]
            event_id = new.pop((event.source_id, event.kind, event.delivery_id, hashes[number]), None)
            if event_id is not None:
                found[number] = Stored(event_id=event_id, duplicate=False)
        if len(rows) == len(left):
            continue
        for number, event_id in connection.execute(_SAME, values).fetchall():
            # Without one that is equal, that was taken between the two statements: then this is news.
            if event_id is not None:
                found.setdefault(left[number - 1], Stored(event_id=event_id, duplicate=True))
    raise RuntimeError("An event was neither new nor known, several times over.")


def store(connection: Connection[Any], *, source_id: int, kind: str, delivery_id: str | None, body: bytes) -> Stored:
    """As `store_all`, of one event."""
    return store_all(connection, [Arrived(source_id=source_id, kind=kind, delivery_id=delivery_id, body=body)])[0]


_TAKE: LiteralString = """
    UPDATE docwell.event SET state = 'taken', attempts = attempts + 1
    WHERE event_id IN (
        SELECT event_id FROM docwell.event WHERE source_id = %(source)s AND state = 'waiting' AND next_at <= clock_timestamp()
        ORDER BY event_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    RETURNING event_id, kind, body, received_at
"""


def waiting(connection: Connection[Any], source_id: int, *, limit: int = 100) -> list[Event]:
    """Take the oldest events that are due. Whoever takes them finishes them, or says that they failed."""
    with connection.cursor(row_factory=class_row(Event)) as cursor:
        taken = cursor.execute(_TAKE, {"source": source_id, "limit": limit}).fetchall()
    return sorted(taken, key=lambda event: event.event_id)


_HAS_DUE: LiteralString = """
    SELECT EXISTS (SELECT 1 FROM docwell.event WHERE source_id = %s AND state = 'waiting' AND next_at <= clock_timestamp())
"""


def has_due(connection: Connection[Any], source_id: int) -> bool:
    """Whether `waiting` would give something."""
    row = connection.execute(_HAS_DUE, (source_id,)).fetchone()
    return row is not None and bool(row[0])


# Where an equal one has come meanwhile, that one speaks for both.
_RETURN: LiteralString = """
    UPDATE docwell.event e SET state = CASE WHEN newer THEN 'handled' ELSE 'waiting' END,
        body = CASE WHEN newer THEN '' ELSE e.body END,
        handled_at = CASE WHEN newer THEN clock_timestamp() END, next_at = clock_timestamp()
    FROM (
        SELECT t.event_id,
               row_number() OVER (PARTITION BY t.kind, t.body_sha256 ORDER BY t.event_id) > 1
               OR EXISTS (SELECT 1 FROM docwell.event w WHERE w.source_id = t.source_id AND w.state = 'waiting'
                          AND w.kind = t.kind AND w.body_sha256 = t.body_sha256) AS newer
        FROM docwell.event t WHERE t.source_id = %s AND t.state = 'taken'
    ) AS held
    WHERE e.event_id = held.event_id
"""


def give_back(connection: Connection[Any], source_id: int) -> None:
    """Let events wait again that somebody took who is not there any more. For whoever holds the source's lock."""
    connection.execute(_RETURN, (source_id,))


def finish(connection: Connection[Any], events: Sequence[int]) -> None:
    """These events were looked at, and what they told of is stored: of their bodies, which name documents, the hash is left."""
    connection.execute(
        "UPDATE docwell.event SET state = 'handled', handled_at = clock_timestamp(), error = NULL, body = ''"
        " WHERE event_id = ANY (%s)",
        (list(events),),
    )


_FAIL: LiteralString = """
    UPDATE docwell.event e SET
        state = after.state,
        body = CASE after.state WHEN 'handled' THEN '' ELSE e.body END,
        error = %(error)s,
        handled_at = clock_timestamp(),
        next_at = clock_timestamp() + least(%(first)s * 2 ^ (e.attempts - 1), %(longest)s) * interval '1 second'
    FROM (
        SELECT event_id, CASE WHEN attempts >= %(most)s THEN 'dead'
                     WHEN EXISTS (SELECT 1 FROM docwell.event w WHERE w.source_id = held.source_id AND w.state = 'waiting'
                                  AND w.kind = held.kind AND w.body_sha256 = held.body_sha256) THEN 'handled'
                     ELSE 'waiting' END AS state
        FROM docwell.event held WHERE event_id = %(event)s
    ) AS after
    WHERE e.event_id = after.event_id RETURNING e.state
"""


def fail(connection: Connection[Any], event_id: int, error: str, *, most_attempts: int = MOST_ATTEMPTS) -> bool:
    """An event could not be handled: it waits again for longer, or is dead after that many attempts (then True).

    An equal event that has come meanwhile speaks for it.
    """
    values = {
        "event": event_id,
        "error": error,
        "most": most_attempts,
        "first": _FIRST_WAIT_SECONDS,
        "longest": _LONGEST_WAIT_SECONDS,
    }
    row = connection.execute(_FAIL, values).fetchone()
    return row is not None and row[0] == "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """How many events of a source wait, are being looked at, and are dead; `newest` came last; `error` is the newest failure."""

    waiting: int
    taken: int
    dead: int
    newest: datetime | None
    error: str | None


_COUNT: LiteralString = """
    SELECT count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'taken') AS taken,
           count(*) FILTER (WHERE state = 'dead') AS dead, max(received_at) AS newest,
           (array_agg(error ORDER BY event_id DESC) FILTER (WHERE error IS NOT NULL AND state <> 'handled'))[1] AS error
    FROM docwell.event WHERE source_id = %s
"""


def inbox(connection: Connection[Any], source_id: int) -> Inbox:
    """What a person wants to know of a source's events."""
    with connection.cursor(row_factory=class_row(Inbox)) as cursor:
        found = cursor.execute(_COUNT, (source_id,)).fetchone()
    if found is None:
        raise RuntimeError("an aggregate gave no row")
    return found


def bodies(connection: Connection[Any], source_id: int) -> list[tuple[int, bytes]]:
    """Number and body of all events of a source whose body is kept."""
    rows = connection.execute("SELECT event_id, body FROM docwell.event WHERE source_id = %s AND body <> ''", (source_id,))
    return [(event_id, bytes(body)) for event_id, body in rows]


def empty(connection: Connection[Any], events: Sequence[int]) -> None:
    """Take away what these events said. One that waits says from now on that something has changed, and nothing of what."""
    connection.execute(
        "UPDATE docwell.event SET body = '', error = NULL WHERE event_id = ANY (%s)",
        (list(events),),
    )


_PRUNE: LiteralString = """
    DELETE FROM docwell.event WHERE event_id IN (
        SELECT event_id FROM docwell.event
        WHERE state IN ('handled', 'dead') AND received_at < clock_timestamp() - %(days)s * interval '1 day' LIMIT %(limit)s)
"""


def prune(connection: Connection[Any], *, days: int = KEEP_DAYS, limit: int = 10_000) -> int:
    """Forget events that were handled, or given up, longer than `days` ago; returns how many, at most `limit`."""
    return connection.execute(_PRUNE, {"days": days, "limit": limit}).rowcount
