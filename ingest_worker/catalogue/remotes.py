"""How far each source that is asked over the network has been followed. All SQL of that table stands here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """How far a source has been followed.

    `listing` numbers its whole listings; `listed_at` is when the newest one began that came to its end, `listing_began` when the
    one under way began, in which `listing_seen` of `listing_total` things have come. `failures` are those in a row; nothing is
    asked before `resume_at`, for `resume_reason`.
    """

    source_id: int
    settings_sha256: bytes
    cursor: str | None
    changes_at: datetime | None
    listing: int
    listed_at: datetime | None
    listing_began: datetime | None
    listing_seen: int
    listing_total: int | None
    failures: int
    resume_at: datetime | None
    resume_reason: str | None
    subscription: dict[str, Any]
    subscription_at: datetime | None
    subscription_error: str | None


_COLUMNS: LiteralString = """
    SELECT source_id, settings_sha256, cursor, changes_at, listing, listed_at, listing_began, listing_seen, listing_total,
           failures, resume_at, resume_reason, subscription, subscription_at, subscription_error
    FROM docwell.remote WHERE source_id = %s
"""


def find_remote(connection: Connection[Any], source_id: int) -> Remote | None:
    """The row of a source; None when it was never asked."""
    with connection.cursor(row_factory=class_row(Remote)) as cursor:
        return cursor.execute(_COLUMNS, (source_id,)).fetchone()


def limiters(connection: Connection[Any]) -> dict[str, str]:
    """By name of the source, whom it asks, as `ConnectionSettings.limiter` says it: for those whose settings are elsewhere."""
    rows = connection.execute("SELECT s.name, r.limiter FROM docwell.remote r JOIN docwell.source s USING (source_id)")
    return {str(name): str(limiter) for name, limiter in rows}


_PREPARE: LiteralString = """
    INSERT INTO docwell.remote AS r (source_id, limiter, settings_sha256) VALUES (%(source)s, %(limiter)s, %(settings)s)
    ON CONFLICT (source_id) DO UPDATE SET
        limiter = excluded.limiter, settings_sha256 = excluded.settings_sha256, cursor = NULL, changes_at = NULL,
        listed_at = NULL, listing_began = NULL, failures = 0, resume_at = NULL, resume_reason = NULL, subscription_at = NULL
    WHERE r.settings_sha256 <> excluded.settings_sha256 OR %(anew)s
    RETURNING 1
"""


def prepare(connection: Connection[Any], source_id: int, *, limiter: str, settings_sha256: bytes, anew: bool) -> bool:
    """Make the row of a source. With other settings than before, or `anew`, all has to be looked at again: then True."""
    values = {"source": source_id, "limiter": limiter, "settings": settings_sha256, "anew": anew}
    return connection.execute(_PREPARE, values).fetchone() is not None


_BEGIN: LiteralString = """
    UPDATE docwell.remote SET listing = listing + 1, listing_began = %(now)s, listing_seen = 0, listing_total = NULL
    WHERE source_id = %(source)s RETURNING listing
"""


def begin_listing(connection: Connection[Any], source_id: int, now: datetime) -> int:
    """A whole listing begins: its number."""
    row = connection.execute(_BEGIN, {"source": source_id, "now": now}).fetchone()
    if row is None:
        raise RuntimeError(f"source {source_id} has no row in docwell.remote")
    return int(row[0])


_PROGRESS: LiteralString = """
    UPDATE docwell.remote SET cursor = coalesce(%(cursor)s, cursor), listing_seen = listing_seen + %(seen)s,
        listing_total = coalesce(%(total)s, listing_total)
    WHERE source_id = %(source)s
"""


def record_batch(
    connection: Connection[Any], source_id: int, *, cursor: str | None, seen: int = 0, total: int | None = None
) -> None:
    """All of a batch is stored: go on from `cursor`, when it has one."""
    connection.execute(_PROGRESS, {"source": source_id, "cursor": cursor, "seen": seen, "total": total})


def forget_cursor(connection: Connection[Any], source_id: int) -> None:
    """The source knows the cursor no more."""
    connection.execute(
        "UPDATE docwell.remote SET cursor = NULL, listed_at = NULL, listing_began = NULL WHERE source_id = %s", (source_id,)
    )


def want_listing(connection: Connection[Any], source_id: int) -> None:
    """Look at everything as soon as the source can be asked."""
    connection.execute("UPDATE docwell.remote SET listed_at = NULL WHERE source_id = %s", (source_id,))


_END: LiteralString = """
    UPDATE docwell.remote SET listing_began = NULL, listed_at = %(began)s, changes_at = %(began)s,
        cursor = coalesce(%(cursor)s, cursor)
    WHERE source_id = %(source)s
"""


def end_listing(connection: Connection[Any], source_id: int, *, began: datetime, cursor: str | None) -> None:
    """A whole listing came to its end."""
    connection.execute(_END, {"source": source_id, "began": began, "cursor": cursor})


def end_changes(connection: Connection[Any], source_id: int, began: datetime) -> None:
    """Changes were followed to their end."""
    connection.execute("UPDATE docwell.remote SET changes_at = %s WHERE source_id = %s", (began, source_id))


def want_changes(connection: Connection[Any], source_id: int) -> None:
    """Ask for what has changed as soon as the source can be asked."""
    connection.execute("UPDATE docwell.remote SET changes_at = NULL WHERE source_id = %s", (source_id,))


_REST: LiteralString = """
    UPDATE docwell.remote SET failures = failures + 1, resume_at = %(until)s, resume_reason = %(reason)s
    WHERE source_id = %(source)s RETURNING failures
"""
_REST_TOGETHER: LiteralString = """
    UPDATE docwell.remote r SET resume_at = greatest(r.resume_at, %(until)s), resume_reason = %(reason)s
    FROM docwell.remote own WHERE own.source_id = %(source)s AND r.limiter = own.limiter
"""


def count_failure(connection: Connection[Any], source_id: int, *, until: datetime, reason: str) -> None:
    """The source could not be followed: ask nothing of it before `until`."""
    connection.execute(_REST, {"source": source_id, "until": until, "reason": reason})


def rest_together(connection: Connection[Any], source_id: int, *, until: datetime, reason: str) -> None:
    """The other side said when it may be asked again: all sources of its account rest."""
    connection.execute(_REST_TOGETHER, {"source": source_id, "until": until, "reason": reason})


def recovered(connection: Connection[Any], source_id: int) -> None:
    """It answers again."""
    connection.execute(
        "UPDATE docwell.remote SET failures = 0, resume_at = NULL, resume_reason = NULL"
        " WHERE source_id = %s AND (failures > 0 OR resume_at <= now())",
        (source_id,),
    )


def end_rest(connection: Connection[Any], source_id: int) -> None:
    """A person asked: do not wait any longer."""
    connection.execute("UPDATE docwell.remote SET resume_at = NULL WHERE source_id = %s AND failures > 0", (source_id,))


_SUBSCRIBED: LiteralString = """
    UPDATE docwell.remote SET subscription = coalesce(%(state)s, subscription), subscription_at = %(next)s,
        subscription_error = %(error)s
    WHERE source_id = %(source)s
"""


def record_subscription(
    connection: Connection[Any], source_id: int, *, state: Mapping[str, Any] | None, next_at: datetime, error: str | None = None
) -> None:
    """Keep a connector's notes on what it asked to be told, and when it is to be called again; `state` None: as before."""
    notes = None if state is None else Jsonb(dict(state))
    connection.execute(_SUBSCRIBED, {"source": source_id, "state": notes, "next": next_at, "error": error})


def try_subscription_lock(connection: Connection[Any], source_id: int) -> bool:
    """Whether nobody else renews this source's subscriptions, until `end_subscription_lock` or the end of the connection."""
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended('docwell.subscription', %s))", (source_id,)).fetchone()
    return row is not None and bool(row[0])


def end_subscription_lock(connection: Connection[Any], source_id: int) -> None:
    """Others may renew them."""
    connection.execute("SELECT pg_advisory_unlock(hashtextextended('docwell.subscription', %s))", (source_id,))
