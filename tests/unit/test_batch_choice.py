"""Whether contexts are ordered in a batch: by what they cost there at most, and by what they cost one after the other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from ingest_worker.enrich.batch_choice import goes_into_batch, in_batch
from ingest_worker.enrich.prompt import split_document
from shared.config import Settings
from shared.documents import Chunk, ChunkKind
from shared.prices import Price

AUTO = Settings(context_batches="auto")


def _chunks(count: int) -> list[Chunk]:
    return [Chunk(kind=ChunkKind.TEXT, text=f"Passage {number}. " + "word " * 300, tokens=300) for number in range(count)]


@pytest.mark.parametrize(
    ("chunks", "missing", "is_cheaper"),
    [
        (5, range(5), True),  # too short for the cache: half the price
        (40, range(40), False),  # the cache makes all but the first request cheap
        (40, [7], True),  # nobody would read what the one request wrote
        (400, range(400), False),
    ],
)
def test_a_batch_is_chosen_where_the_cache_saves_less(chunks: int, missing: range | list[int], is_cheaper: bool) -> None:
    found = _chunks(chunks)
    parts = split_document(found, path="a.md", title=None, window_tokens=100_000)
    assert goes_into_batch(parts, found, missing, AUTO) is is_cheaper


def test_the_owners_prices_decide_where_they_are_whole() -> None:
    found = _chunks(5)
    parts = split_document(found, path="a.md", title=None, window_tokens=100_000)
    dear = Price(input=Decimal(1), output=Decimal(5), cache_read=Decimal(0), cache_write=Decimal(0), batch=Decimal(1))
    assert not goes_into_batch(parts, found, range(5), AUTO.model_copy(update={"prices": {AUTO.context_model: dear}}))


def test_no_request_of_a_batch_counts_on_the_cache_and_one_alone_does_not_write_it() -> None:
    found = _chunks(40)
    parts = split_document(found, path="a.md", title=None, window_tokens=100_000)
    (alone,) = in_batch(parts, found, [7])
    assert (alone.is_cached, alone.use.cache_write_tokens) == (False, 0)
    both = list(in_batch(parts, found, [7, 8]))
    assert all(asking.is_cached and asking.use.cache_write_tokens and not asking.use.cache_read_tokens for asking in both)
