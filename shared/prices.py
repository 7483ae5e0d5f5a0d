"""What a call of a paid service used, and what that costs by the prices that the owner has set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from shared.loopback import is_loopback

_PER = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """Calls and their tokens. `input_tokens` are those that stood in no cache: neither read from one nor written to one."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: TokenUse) -> TokenUse:
        return TokenUse(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def tokens(self) -> int:
        """All of them, whatever they cost."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


class Price(BaseModel):
    """What a model costs: money for a million tokens, in whatever currency the owner thinks in.

    `batch` is the share of it that a request in a batch costs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Decimal = Field(ge=0)
    output: Decimal | None = Field(None, ge=0)
    cache_read: Decimal | None = Field(None, ge=0)
    cache_write: Decimal | None = Field(None, ge=0)
    batch: Decimal | None = Field(None, ge=0, le=1)

    @property
    def is_free(self) -> bool:
        """Whether no kind of tokens costs anything."""
        return not any((self.input, self.output, self.cache_read, self.cache_write))

    def cost(self, use: TokenUse, *, in_batch: bool = False) -> Decimal | None:
        """The money; None when a kind of tokens was used whose price is not set, or `in_batch` without the share of batches."""
        share = self.batch if in_batch else Decimal(1)
        if share is None:
            return None
        parts = (
            (use.input_tokens, self.input),
            (use.output_tokens, self.output),
            (use.cache_read_tokens, self.cache_read),
            (use.cache_write_tokens, self.cache_write),
        )
        total = Decimal(0)
        for tokens, price in parts:
            if tokens and price is None:
                return None
            total += tokens * (price or Decimal(0)) / _PER
        return total * share


def cost(prices: Mapping[str, Price], model: str, use: TokenUse, *, in_batch: bool = False) -> Decimal | None:
    """The money that this use of a model costs; None when its price is not set. Nothing is guessed."""
    price = prices.get(model)
    return None if price is None else price.cost(use, in_batch=in_batch)


def is_paid_service(url: str, model: str | None, prices: Mapping[str, Price]) -> bool:
    """Whether a model behind this address counts as a paid service: what its price says; where none is set, every one that is not
    on this machine. A proxy on this machine that asks a paid service is told by the model's price.
    """
    price = prices.get(model or "")
    if price is not None:
        return not price.is_free
    return not is_loopback((urlsplit(url).hostname or "").lower())
