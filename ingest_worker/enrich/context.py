"""Buying the contexts of one document: of each part one call warms the service's cache, then the others fan out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ingest_worker.enrich.buying import Orders, Round, Stop
from ingest_worker.enrich.buying import buy as buy_rounds
from ingest_worker.enrich.messages import Answer
from ingest_worker.enrich.model import ContextModel
from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, Part, question
from shared.documents import Chunk
from shared.prices import TokenUse

CACHEABLE_TOKENS = 4_096
"""What Claude Haiku 4.5 takes into its cache at least; other models take less, and cost less then."""

# The bundled tokenizer counts European languages much as Claude does; the rest is what stands around document and passage.
_ESTIMATE = 1.25
_AROUND_TOKENS = len(INSTRUCTIONS) // 4 + 60


def estimate(part: Part, chunk: Chunk, *, is_first: bool, is_cached: bool = True) -> TokenUse:
    """What a call for a passage of this part will use, about; the first one of a part writes the cache that the others read.

    Not `is_cached`: the part is too short for the service's cache.
    """
    shown = int((part.tokens + _AROUND_TOKENS) * _ESTIMATE)
    own = int(chunk.tokens * _ESTIMATE) + 50
    return TokenUse(
        calls=1,
        input_tokens=own if is_cached else own + shown,
        output_tokens=MOST_ANSWER_TOKENS // 2,
        cache_read_tokens=shown if is_cached and not is_first else 0,
        cache_write_tokens=shown if is_cached and is_first else 0,
    )


def buy(
    model: ContextModel, chunks: Sequence[Chunk], parts: Sequence[Part], missing: Sequence[int], orders: Orders[int]
) -> Stop | None:
    """Ask for the contexts of the `missing` chunks, by their place; returns what ended it early, None when all were asked for."""
    return _Buyer(model, chunks, orders).run(parts, set(missing))


class _Buyer:
    def __init__(self, model: ContextModel, chunks: Sequence[Chunk], orders: Orders[int]) -> None:
        self._model = model
        self._chunks = chunks
        self._orders = orders
        self._is_cached = True

    def run(self, parts: Sequence[Part], missing: set[int]) -> Stop | None:
        return buy_rounds(self._rounds(parts, missing), replace(self._orders, keep=self._keep), name="context")

    def _rounds(self, parts: Sequence[Part], missing: set[int]) -> Iterator[Round[int]]:
        for part in parts:
            places = [place for place in range(part.first, part.last) if place in missing]
            yield Round(items=places, ask=partial(self._ask, part), estimate=partial(self._estimate, part), first_alone=True)

    def _ask(self, part: Part, place: int) -> Answer:
        return self._model.ask(part.shown, question(self._chunks[place]))

    def _estimate(self, part: Part, place: int, is_first: bool) -> TokenUse:
        return estimate(part, self._chunks[place], is_first=is_first, is_cached=is_first or self._is_cached)

    def _keep(self, place: int, answer: Answer) -> None:
        if answer.use.calls:
            self._is_cached = answer.use.cache_read_tokens + answer.use.cache_write_tokens > 0
        self._orders.keep(place, answer)
