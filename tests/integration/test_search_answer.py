"""What an answer says of itself: where its paging ends, what else says the same, what was cut from a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from query_server.retrieve.legs import DEPTH
from query_server.retrieve.places import MOST_COPIES
from query_server.service import SearchService
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


def _codes(answer: dict[str, Any]) -> list[str]:
    """Of no sweep that a test did not make."""
    return [warning["code"] for warning in answer["warnings"] if warning["code"] != "stale"]


def _pages(service: SearchService, query: str, **arguments: Any) -> list[dict[str, Any]]:
    pages = [service.search(query, limit=50, max_tokens=100_000, **arguments)]
    while "next_cursor" in pages[-1]:
        pages.append(service.search(query, limit=50, max_tokens=100_000, cursor=pages[-1]["next_cursor"], **arguments))
    return pages


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
def test_the_last_page_says_that_there_may_be_more_than_was_ranked(corpus: Corpus, service: SearchService, mode: str) -> None:
    chunks = [text_chunk(f"shared words and number{place}", section=(f"part {place}",)) for place in range(DEPTH + 20)]
    add(corpus, "long.md", *chunks)
    *before, last = _pages(service, "shared words", mode=mode)
    assert before
    assert all("ranking_limited" not in _codes(page) for page in before)
    assert "ranking_limited" in _codes(last)
    assert (last["dropped"], "next_cursor" in last) == (0, False)


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_where_all_was_ranked_the_last_page_promises_no_more(corpus: Corpus, service: SearchService, mode: str) -> None:
    add(corpus, "short.md", *[text_chunk(f"shared words {place}", section=(f"part {place}",)) for place in range(DEPTH)])
    assert _codes(_pages(service, "shared words", mode=mode)[-1]) == []


def test_copies_that_are_not_shown_are_told_of(corpus: Corpus, service: SearchService) -> None:
    for number in range(MOST_COPIES + 2):
        add(corpus, f"{number:02}.md", text_chunk("the licence text"))
    [answer] = _pages(service, "licence text", mode="keyword")
    assert (len(answer["results"]), _codes(answer)) == (MOST_COPIES, ["ranking_limited"])
