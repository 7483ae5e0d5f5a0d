"""What contexts come to in a batch and outside of one, and which is cheaper. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ingest_worker.enrich.context import CACHEABLE_TOKENS, estimate
from ingest_worker.enrich.prompt import Part
from shared.config import Settings
from shared.documents import Chunk
from shared.prices import Price, TokenUse

_USUAL = Price(input=Decimal(1), output=Decimal(5), cache_read=Decimal("0.1"), cache_write=Decimal("1.25"), batch=Decimal("0.5"))
"""How the service's prices stand to each other for its models of 2026, where the owner has set none."""

_ALL_KINDS = TokenUse(input_tokens=1, output_tokens=1, cache_read_tokens=1, cache_write_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A request of a batch: the part that is shown for the passage at this place, and what that takes at most.

    `is_cached`: others show the same part, so it is worth writing to the cache.
    """

    place: int
    part: Part
    is_cached: bool
    use: TokenUse


def in_batch(parts: Sequence[Part], chunks: Sequence[Chunk], missing: Collection[int]) -> Iterator[Asking]:
    """The requests for the `missing` chunks, by their place. Requests of a batch run together, so none counts on the cache."""
    wanted = set(missing)
    for part in parts:
        places = [place for place in range(part.first, part.last) if place in wanted]
        is_cached = len(places) > 1 and part.tokens >= CACHEABLE_TOKENS
        for place in places:
            use = estimate(part, chunks[place], is_first=True, is_cached=is_cached)
            yield Asking(place=place, part=part, is_cached=is_cached, use=use)


def on_the_way(parts: Sequence[Part], chunks: Sequence[Chunk], missing: Collection[int]) -> TokenUse:
    """What the `missing` chunks use when they are asked about one after the other: the first request of a part fills the cache
    for the others.
    """
    wanted = set(missing)
    use = TokenUse()
    for part in parts:
        places = [place for place in range(part.first, part.last) if place in wanted]
        for number, place in enumerate(places):
            use += estimate(part, chunks[place], is_first=number == 0, is_cached=part.tokens >= CACHEABLE_TOKENS)
    return use


def goes_into_batch(parts: Sequence[Part], chunks: Sequence[Chunk], missing: Collection[int], settings: Settings) -> bool:
    """Whether these contexts of a document are ordered in a batch, by the settings and by what they cost there at most."""
    if settings.context_batches != "auto":
        return settings.context_batches == "all"
    price = settings.prices.get(settings.context_model)
    prices = price if price is not None and price.cost(_ALL_KINDS, in_batch=True) is not None else _USUAL
    later = sum((asking.use for asking in in_batch(parts, chunks, missing)), TokenUse())
    now = on_the_way(parts, chunks, missing)
    return (prices.cost(later, in_batch=True) or Decimal(0)) < (prices.cost(now) or Decimal(0))
