"""What an item needs, by what is stored of it, and how long one that failed waits. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from ingest_worker.catalogue.erasures import ERASED
from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.sources.pace import LONGEST_RETRY_AFTER
from ingest_worker.sources.protocol import Item
from shared.errors import TransientError

PATIENT_ATTEMPTS = 3
"""So often an item may stop its batch because the source says that it is busy; then it waits for itself, and the others go on."""

FOR_NOW = frozenset(("forbidden",))
"""Codes of refusals that may end though the item does not change: it is asked for again after some hours."""

REFUSED_RETRY_SECONDS = 6 * 3600.0

_FIRST_RETRY_SECONDS = 60.0
_LONGEST_RETRY_SECONDS = 3600.0


class Step(Enum):
    """What an item needs."""

    NOTHING = "nothing"
    FACTS = "facts"
    READ = "read"
    WAIT = "wait"


def next_step(item: Item, known: KnownItem | None, *, facts: str, now: datetime, whole: bool) -> Step:
    """Compare an item with what is stored of it. `whole`: in a listing of everything."""
    if known is None:
        return Step.READ
    if known.state == "excluded":
        return Step.NOTHING
    if _is_refused_for_now(item, known):
        is_time = known.retry_at is not None and known.retry_at <= now
        return Step.READ if is_time or known.facts != facts or known.gone else Step.WAIT
    if waits(known, now):
        return Step.WAIT
    if known.error_code == ERASED and known.document_id is None:
        return Step.READ if whole or known.content != item.content else Step.NOTHING
    is_refused = known.error_code is not None and known.retry_at is None
    if known.content != item.content or known.content is None:
        return Step.READ
    if is_refused:
        return Step.NOTHING if known.facts == facts and not known.gone else Step.READ
    if known.document_id is None or known.state == "deleted":
        return Step.READ
    return Step.NOTHING if known.facts == facts and not known.gone else Step.FACTS


def _is_refused_for_now(item: Item, known: KnownItem) -> bool:
    return (
        known.error_code in FOR_NOW and known.state == "skipped" and known.content == item.content and known.retry_at is not None
    )


def waits(known: KnownItem, now: datetime) -> bool:
    """Whether a thing failed so often that it is left alone until its time."""
    return known.retry_at is not None and known.retry_at > now and known.attempts >= PATIENT_ATTEMPTS


def retry_seconds(error: Exception, attempts: int) -> float:
    """How long an item that failed waits before it is looked at again."""
    if isinstance(error, TransientError):
        waits = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(attempts, 20))
        return max(waits, min(error.retry_after or 0.0, LONGEST_RETRY_AFTER))
    return REFUSED_RETRY_SECONDS
