"""Reordering by a reranker, and what an answer does without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from query_server.cursor import CursorExpired
from query_server.retrieve.rerank import RerankFailed
from query_server.service import SearchService
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.reranking import ByNumber, fill, paths, reranking_services, warned


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def serve(database: Database) -> Iterator[Callable[..., SearchService]]:
    with reranking_services(database) as found:
        yield found


def _all_pages(service: SearchService, **arguments: Any) -> list[str]:
    seen: list[str] = []
    cursor = ""
    while True:
        answer = service.search("alpha", cursor=cursor, max_tokens=100_000, **arguments)
        seen += paths(answer)
        cursor = answer.get("next_cursor", "")
        if not cursor:
            return seen


def test_the_reranker_decides_the_order_and_the_score(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 8)
    answer = serve(ByNumber()).search("alpha", limit=3)
    assert paths(answer) == ["7.md", "6.md", "5.md"]
    assert [(result["score"], result["score_kind"]) for result in answer["results"]] == [
        (7.0, "rerank"),
        (6.0, "rerank"),
        (5.0, "rerank"),
    ]
    assert warned(answer) == []


def test_it_is_not_asked_while_a_transaction_is_open(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    fill(corpus, 3)
    open_transactions: list[int] = []

    def look() -> None:
        row = corpus.connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        open_transactions.append(row[0])

    serve(ByNumber(look)).search("alpha")
    assert open_transactions == [0]


def test_it_reads_fifty_passages_and_those_behind_keep_their_order(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 60)
    reranker = ByNumber()
    plain = _all_pages(serve(ByNumber(), limit_seconds=30), limit=50, mode="keyword")
    found = _all_pages(serve(reranker), limit=50)
    assert set(reranker.calls) == {50}
    numbers = [int(path.removesuffix(".md")) for path in found[:50]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(found) == len(set(found)) == len(plain) == 60


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_of_a_reranked_answer_repeat_and_skip_nothing(
    corpus: Corpus, serve: Callable[..., SearchService], limit: int
) -> None:
    fill(corpus, 12)
    reranker = ByNumber()
    assert _all_pages(serve(reranker), limit=limit) == [f"{number}.md" for number in reversed(range(12))]
    assert len(reranker.calls) == 1, "the order is remembered"


def test_another_server_that_comes_to_the_same_order_goes_on_with_a_cursor(
    corpus: Corpus, serve: Callable[..., SearchService]
) -> None:
    fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]
    assert paths(serve(ByNumber()).search("alpha", limit=2, cursor=cursor)) == ["3.md", "2.md"]


@pytest.mark.parametrize("change", ["another order", "a failure"])
def test_a_cursor_whose_order_cannot_be_made_again_has_expired(
    corpus: Corpus, serve: Callable[..., SearchService], change: str
) -> None:
    fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]

    def fail() -> None:
        if change == "a failure":
            raise RerankFailed("away")

    with pytest.raises(CursorExpired, match="order"):
        serve(ByNumber(fail, sign=-1.0)).search("alpha", limit=2, cursor=cursor)


def test_a_reranked_cursor_has_expired_where_nothing_reranks(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]
    with serving(database) as plain, pytest.raises(CursorExpired):
        plain.search("alpha", limit=2, cursor=cursor)


def test_an_answer_that_began_by_fusion_goes_on_by_fusion(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    fill(corpus, 9)
    fails = [True]

    def fail() -> None:
        if fails.pop():
            raise RerankFailed("away")

    with serving(database) as plain:
        expected = _all_pages(plain, limit=50)
    service = serve(ByNumber(fail))
    first = service.search("alpha", limit=4)
    assert warned(first)
    second = service.search("alpha", limit=4, cursor=first["next_cursor"])
    assert paths(first) + paths(second) == expected[:8]
    assert warned(second)
    assert {result["score_kind"] for result in second["results"]} == {"rrf"}


def test_a_slow_reranker_is_not_waited_for(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 3)
    ends = threading.Event()
    service = serve(ByNumber(lambda: ends.wait(60)), limit_seconds=0.2)
    began = time.monotonic()
    answer = service.search("alpha")
    took = time.monotonic() - began
    ends.set()
    assert (len(answer["results"]), answer["results"][0]["score_kind"]) == (3, "rrf")
    assert "0.2 s" in warned(answer)[0]
    assert took < 20


@pytest.mark.parametrize("scores", [[1.0], [float("nan")] * 3, [float("inf")] * 3, [1.0] * 4, ["x"] * 3, None])
def test_nonsense_costs_no_answer(corpus: Corpus, serve: Callable[..., SearchService], scores: Any) -> None:
    class Nonsense:
        def scores(self, query: str, texts: Sequence[str]) -> Any:
            return scores

    fill(corpus, 3)
    answer = serve(Nonsense()).search("alpha")
    assert len(answer["results"]) == 3
    assert len(warned(answer)) == 1


def test_a_failure_is_not_remembered(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 3)
    fails = [True, False]

    def fail() -> None:
        if fails and fails.pop(0):
            raise RuntimeError("a library's own error")

    service = serve(ByNumber(fail))
    assert "a library's own error" in warned(service.search("alpha"))[0]
    assert paths(service.search("alpha")) == ["2.md", "1.md", "0.md"]


def test_what_holds_the_exact_identifier_stays_in_front(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 4)
    add(corpus, "exact.md", text_chunk("alpha ERR-0042 number0"))
    answer = serve(ByNumber()).search("alpha ERR-0042")
    assert paths(answer) == ["exact.md", "3.md", "2.md", "1.md", "0.md"]


def test_further_documents_of_a_text_stay_behind_the_others(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    add(corpus, "best.md", text_chunk("alpha beta number9"))
    add(corpus, "copy.md", text_chunk("alpha beta number9"))
    add(corpus, "other.md", text_chunk("alpha gamma number1"))
    reranker = ByNumber()
    assert paths(serve(reranker).search("alpha")) == ["best.md", "other.md", "copy.md"]
    assert reranker.calls == [2]


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_a_leg_that_is_asked_for_alone_answers_in_its_own_order(
    corpus: Corpus, serve: Callable[..., SearchService], mode: str
) -> None:
    fill(corpus, 3)
    reranker = ByNumber()
    answer = serve(reranker).search("alpha", mode=mode)
    assert ({result["score_kind"] for result in answer["results"]}, reranker.calls) == ({"rrf"}, [])


def test_many_ask_at_once_and_each_gets_the_reranked_order(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    fill(corpus, 4)
    service = serve(ByNumber())
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: paths(service.search("alpha")), range(12)))
    assert found == [["3.md", "2.md", "1.md", "0.md"]] * 12
