"""How a source over the network stands, for people: progress, pauses, events, what failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import events, remote_items, remotes
from ingest_worker.sources.pace import breaker_state


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReport:
    """How a source is followed.

    `listing` is how far the whole listing under way has come (`1200 of 5000`), None when none is. `breaker` is `closed`,
    `open` or `half-open`; `paused_until` and `pause_reason` say why nothing is asked now. `items` are the things known at the
    source, `failed` those of them that could not be taken.
    """

    listing: str | None
    listing_began: datetime | None
    listed_at: datetime | None
    changes_at: datetime | None
    breaker: str
    failures: int
    paused_until: datetime | None
    pause_reason: str | None
    items: int
    failed: int
    events_waiting: int
    events_dead: int
    newest_event: datetime | None
    event_error: str | None
    subscription_next: datetime | None
    subscription_error: str | None


def remote_report(connection: Connection[Any], source_id: int, now: datetime) -> RemoteReport | None:
    """The report of a source; None when it is none of these, or was never followed."""
    remote = remotes.find_remote(connection, source_id)
    if remote is None:
        return None
    counts = remote_items.count(connection, source_id)
    inbox = events.inbox(connection, source_id)
    listing = None
    if remote.listing_began is not None:
        listing = f"{remote.listing_seen} of {remote.listing_total}" if remote.listing_total else str(remote.listing_seen)
    pauses = remote.resume_at is not None and remote.resume_at > now
    return RemoteReport(
        listing=listing,
        listing_began=remote.listing_began,
        listed_at=remote.listed_at,
        changes_at=remote.changes_at,
        breaker=breaker_state(remote.failures, remote.resume_at, now),
        failures=remote.failures,
        paused_until=remote.resume_at if pauses else None,
        pause_reason=remote.resume_reason if pauses else None,
        items=counts["known"],
        failed=counts["failed"],
        events_waiting=inbox.waiting + inbox.taken,
        events_dead=inbox.dead,
        newest_event=inbox.newest,
        event_error=inbox.error,
        subscription_next=remote.subscription_at,
        subscription_error=remote.subscription_error,
    )
