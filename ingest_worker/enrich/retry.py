"""When what a paid service did not give is asked for again, and whether it may be asked at all. No model is named here."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ingest_worker.catalogue import ledger
from ingest_worker.catalogue.orders import FAILED_SECONDS, MOST_ATTEMPTS
from ingest_worker.enrich.budget import KINDS, Budget, Limit, limits, reason_of, seconds_to_midnight, worth
from ingest_worker.enrich.buying import Stop
from shared.config import Settings
from shared.database import Pool
from shared.prices import TokenUse

_OUTAGE_SECONDS = 60.0
_OUTAGE_CAP_SECONDS = 3600.0
_SOON_SECONDS = 2.0


def over_budget(pool: Pool, settings: Settings, document_id: uuid.UUID, model: str, use: TokenUse) -> Stop | None:
    """Why a call with this estimated use, all calls under way counted, may not be made; None when it may."""
    daily, document = limits(settings)
    if daily == document == Limit():
        return None
    with pool.connection() as connection:
        budget = Budget(
            daily=daily,
            document=document,
            spent_today=ledger.spent_today(connection, KINDS),
            spent_on_document=ledger.spent_on(connection, document_id, KINDS),
        )
    code = budget.refusal(worth(settings.prices, model, use))
    return None if code is None else Stop(code=code, reason=reason_of(code))


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """What is written down after a round: why something is missing, when it is asked for, and how many rounds have failed."""

    code: str | None = None
    reason: str | None = None
    due_seconds: float | None = None
    attempts: int = 0


def after_round(stop: Stop | None, failed: Collection[str], attempts: int, now: datetime, *, code: str, what: str) -> After:
    """What follows from the `stop` that ended a round, or from the reasons of those that `failed` in it.

    `code` and `what` tell of the latter; `attempts` are the rounds that had failed before.
    """
    if stop is not None:
        due, attempts = next_try(stop, attempts, now)
        return After(code=stop.code, reason=stop.reason, due_seconds=due, attempts=attempts)
    if failed:
        due, attempts = after_failures(attempts)
        return After(code=code, reason=f"{len(failed)} {what}: {next(iter(failed))}", due_seconds=due, attempts=attempts)
    return After()


def next_try(stop: Stop, attempts: int, now: datetime) -> tuple[float | None, int]:
    """Seconds until the rest is asked for by itself (None: it is not), and how many rounds have failed by then.

    `attempts` are the rounds that had failed before.
    """
    if stop.code == "time":
        return _SOON_SECONDS, 0
    if stop.code == "document_budget":
        return None, attempts
    if stop.code == "daily_budget":
        return seconds_to_midnight(now), attempts
    if stop.is_outage:
        backoff = min(_OUTAGE_SECONDS * 2.0 ** min(attempts, 10), _OUTAGE_CAP_SECONDS)
        return max(backoff, stop.retry_after or 0.0), attempts + 1
    return after_failures(attempts)


def after_failures(attempts: int) -> tuple[float | None, int]:
    """The same after a round in which single requests failed: hours that grow, and an end to it."""
    attempts += 1
    return (FAILED_SECONDS * 4.0 ** (attempts - 1) if attempts < MOST_ATTEMPTS else None), attempts
