"""Answers fit their budget, and pages go through a ranking without a gap."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from query_server.service import SearchService
from shared.errors import PermanentError
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


@pytest.fixture(scope="module")
def shelf(module_database: Database) -> Iterator[SearchService]:
    """Eight passages of one size, and fourteen documents of all sizes with two copies among them."""
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        for number in range(8):
            add(corpus, f"b{number}.md", text_chunk(f"budget passage {number} " + "word " * 60))
        for number in range(12):
            add(corpus, f"d{number}.md", text_chunk(f"paged text {number} " + "filler " * (number * 4)))
        for copy in ("x.md", "y.md"):
            add(corpus, copy, text_chunk("paged text copied"))
    with serving(module_database) as found:
        yield found


@pytest.mark.parametrize("budget", [50, 120, 400, 4000])
def test_results_fit_max_tokens_and_say_what_was_dropped(shelf: SearchService, budget: int) -> None:
    answer = shelf.search("budget passage", path="b*", limit=8, max_tokens=budget)
    assert 0 < answer["tokens_used"] <= budget
    assert len(answer["results"]) + answer["dropped"] == 8
    assert bool(answer.get("next_cursor")) == (answer["dropped"] > 0)


@pytest.mark.parametrize(("limit", "budget"), [(1, 4000), (3, 4000), (7, 200), (50, 300)])
def test_pages_repeat_and_skip_nothing(shelf: SearchService, limit: int, budget: int) -> None:
    whole = shelf.search("paged text", path="[dxy]*", limit=50, max_tokens=100_000)
    paged: list[str] = []
    cursor = ""
    while True:
        page = shelf.search("paged text", path="[dxy]*", limit=limit, max_tokens=budget, cursor=cursor)
        paged += [result["document_id"] for result in page["results"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
    assert paged == [result["document_id"] for result in whole["results"]]
    assert len(set(paged)) == 14


def test_a_cursor_says_when_the_index_moved_and_when_the_question_is_another(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha one"))
    add(corpus, "b.md", text_chunk("alpha two"))
    cursor = service.search("alpha", limit=1)["next_cursor"]
    with pytest.raises(PermanentError, match="another question") as error:
        service.search("beta", limit=1, cursor=cursor)
    assert error.value.code == "bad_cursor"
    add(corpus, "c.md", text_chunk("alpha three"))
    with pytest.raises(PermanentError, match="Ask again") as error:
        service.search("alpha", limit=1, cursor=cursor)
    assert error.value.code == "cursor_expired"
