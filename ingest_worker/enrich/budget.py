"""How much may still be spent. Pure: what was spent comes from the ledger, what calls will take is estimated by the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from ingest_worker.catalogue.ledger import Kind, Spent
from shared.config import Settings
from shared.prices import Price, TokenUse, cost

KINDS: tuple[Kind, ...] = ("context", "caption")
"""The calls that share the budgets."""

NOTHING = Spent(tokens=0, money=Decimal(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most of tokens and money that may be spent; None: no limit."""

    tokens: int | None = None
    money: Decimal | None = None

    def allows(self, spent: Spent) -> bool:
        """Whether so much keeps within it."""
        return (self.tokens is None or spent.tokens <= self.tokens) and (self.money is None or spent.money <= self.money)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The two limits and what was spent under each."""

    daily: Limit
    document: Limit
    spent_today: Spent
    spent_on_document: Spent

    def refusal(self, more: Spent) -> str | None:
        """`daily_budget` or `document_budget` when so much more would go beyond it; None when it may be spent."""
        if not self.daily.allows(self.spent_today + more):
            return "daily_budget"
        if not self.document.allows(self.spent_on_document + more):
            return "document_budget"
        return None


def limits(settings: Settings) -> tuple[Limit, Limit]:
    """The daily limit, and the one of a document."""
    return (
        Limit(tokens=settings.enrich_daily_tokens, money=settings.enrich_daily_money),
        Limit(tokens=settings.enrich_document_tokens, money=settings.enrich_document_money),
    )


def reason_of(refusal: str) -> str:
    """A sentence for the code of a refusal."""
    whose, setting = ("today", "DAILY") if refusal == "daily_budget" else ("for this document", "DOCUMENT")
    return f"The budget {whose} (DOCWELL_ENRICH_{setting}_…) does not allow another call."


def seconds_to_midnight(now: datetime) -> float:
    """Until there is a new daily budget; `now` is in UTC."""
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds() + 1


def worth(prices: Mapping[str, Price], model: str, use: TokenUse, *, in_batch: bool = False) -> Spent:
    """What a use comes to; money without a price counts as none, and the settings refuse a budget in money then."""
    return Spent(tokens=use.tokens, money=cost(prices, model, use, in_batch=in_batch) or Decimal(0))
