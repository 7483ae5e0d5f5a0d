"""What sources sent to their webhooks, until it has been looked at. All SQL of that table stands here.

An event waits, is taken, and is handled; one that cannot be handled waits again for longer and longer, and after some attempts
is dead, where a person sees it. Handled ones are kept for some days, so that a delivery that is sent again is known.
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
class Stored:
    """An event as it lies here. `duplicate`: it was there already, and nothing was stored for this delivery."""

    event_id: int
    duplicate: bool


_STORE: LiteralString = """
    INSERT INTO docwell.event (source_id, kind, delivery_id, body, body_sha256)
    VALUES (%(source)s, %(kind)s, %(delivery)s, %(body)s, %(sha256)s)
    ON CONFLICT DO NOTHING RETURNING event_id
"""
_SAME: LiteralString = """
    SELECT event_id FROM docwell.event
    WHERE source_id = %(source)s
      AND (delivery_id = %(delivery)s OR (state = 'waiting' AND kind = %(kind)s AND body_sha256 = %(sha256)s))
    ORDER BY event_id LIMIT 1
"""
_STORE_TRIES = 5


def store(connection: Connection[Any], *, source_id: int, kind: str, delivery_id: str | None, body: bytes) -> Stored:
    """Keep an event in the caller's transaction; when that has committed the event is not lost any more.

    It is a duplicate when its delivery id is known (whatever became of it), or while an event of the same kind and body still
    waits. An equal body after that one was taken is news.
    """
    values = {
        "source": source_id,
        "kind": kind,
        "delivery": delivery_id,
        "body": body,
        "sha256": hashlib.sha256(body).digest(),
    }
    for _ in range(_STORE_TRIES):
        row = connection.execute(_STORE, values).fetchone()
        if row is not None:
            return Stored(event_id=row[0], duplicate=False)
        row = connection.execute(_SAME, values).fetchone()
        if row is not None:
            return Stored(event_id=row[0], duplicate=True)
        # The one that it was equal to has been taken between the two statements: it is news now.
    raise RuntimeError("An event was neither new nor known, several times over.")


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
    """These events were looked at, and what they told of is stored."""
    connection.execute(
        "UPDATE docwell.event SET state = 'handled', handled_at = clock_timestamp(), error = NULL WHERE event_id = ANY (%s)",
        (list(events),),
    )


_FAIL: LiteralString = """
    UPDATE docwell.event e SET
        state = CASE WHEN e.attempts >= %(most)s THEN 'dead'
                     WHEN EXISTS (SELECT 1 FROM docwell.event w WHERE w.source_id = e.source_id AND w.state = 'waiting'
                                  AND w.kind = e.kind AND w.body_sha256 = e.body_sha256) THEN 'handled'
                     ELSE 'waiting' END,
        error = %(error)s,
        handled_at = clock_timestamp(),
        next_at = clock_timestamp() + least(%(first)s * 2 ^ (e.attempts - 1), %(longest)s) * interval '1 second'
    WHERE event_id = %(event)s RETURNING state
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


def put_off(connection: Connection[Any], events: Sequence[int], until: datetime) -> None:
    """Let taken events wait until then without counting the attempt: their source cannot be asked now."""
    for event_id in events:
        connection.execute(
            "UPDATE docwell.event e SET attempts = e.attempts - 1, next_at = %(until)s,"
            " state = CASE WHEN EXISTS (SELECT 1 FROM docwell.event w WHERE w.source_id = e.source_id AND w.state = 'waiting'"
            "   AND w.kind = e.kind AND w.body_sha256 = e.body_sha256) THEN 'handled' ELSE 'waiting' END"
            " WHERE event_id = %(event)s AND state = 'taken'",
            {"event": event_id, "until": until},
        )


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


_PRUNE: LiteralString = """
    DELETE FROM docwell.event WHERE event_id IN (
        SELECT event_id FROM docwell.event
        WHERE state IN ('handled', 'dead') AND received_at < clock_timestamp() - %(days)s * interval '1 day' LIMIT %(limit)s)
"""


def prune(connection: Connection[Any], *, days: int = KEEP_DAYS, limit: int = 10_000) -> int:
    """Forget events that were handled, or given up, longer than `days` ago; returns how many, at most `limit`."""
    return connection.execute(_PRUNE, {"days": days, "limit": limit}).rowcount
