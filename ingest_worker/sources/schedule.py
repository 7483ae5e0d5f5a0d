"""What of a source is due now. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest_worker.catalogue.remotes import Remote
from ingest_worker.catalogue.sources import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be done; nothing: false."""

    everything: bool = False
    changes: bool = False
    events: bool = False
    retries: bool = False
    subscription: bool = False
    deletes: bool = False

    def __bool__(self) -> bool:
        return self.everything or self.changes or self.events or self.retries or self.subscription or self.deletes


def what_is_due(
    row: Source,
    remote: Remote,
    now: datetime,
    *,
    sync: float,
    full: float,
    has_events: bool,
    has_retries: bool,
    subscribes: bool,
) -> Due:
    """What to do now. `sync` and `full`: seconds between looks at what changed and at everything.

    A source that gives no cursor is looked at whole as often as others are asked for changes.
    """
    unfinished = remote.listing_began is not None or remote.listed_at is None
    approved_only = row.approved_at is not None and not unfinished
    requested = row.sweep_requested is not None and not approved_only
    aged = _passed(remote.listed_at, full, now)
    polled = _passed(remote.changes_at, sync, now)
    return Due(
        everything=unfinished or requested or aged or (remote.cursor is None and polled),
        changes=remote.cursor is not None and polled,
        events=has_events,
        retries=has_retries,
        subscription=subscribes and _passed(remote.subscription_at, 0.0, now),
        deletes=approved_only,
    )


def _passed(since: datetime | None, seconds: float, now: datetime) -> bool:
    return since is None or since + timedelta(seconds=seconds) <= now
