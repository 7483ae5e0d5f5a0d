"""What a search remembers, and for how long it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from query_server.access import LOCAL, NOBODY, Principal
from query_server.service import SearchService
from shared.documents import Span
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


def _use(answer: dict[str, Any]) -> str:
    return str(answer["_meta"]["cache"])


def test_the_same_question_is_ranked_once(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    first, second = service.search("alpha"), service.search("alpha")
    assert (_use(first), _use(second)) == ("miss", "hit")
    assert second["results"] == first["results"]


@pytest.mark.parametrize("change", [{"mode": "keyword"}, {"namespace": "default"}, {"path": "*.md"}, {"tags": ["x"]}])
def test_another_question_is_another_ranking(corpus: Corpus, service: SearchService, change: dict[str, Any]) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    service.search("alpha")
    assert _use(service.search("alpha", **change)) == "miss"


def test_a_publish_is_seen_at_once_by_every_server(corpus: Corpus, database: Database) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    with serving(database) as one, serving(database) as other:
        for service in (one, other):
            service.search("alpha")
        add(corpus, "b.md", text_chunk("alpha gamma"))
        for service in (one, other):
            answer = service.search("alpha")
            assert (_use(answer), {result["path"] for result in answer["results"]}) == ("miss", {"a.md", "b.md"})


def test_nobody_gets_what_another_asked_for(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"), source="secret", readers=["group:eng"])
    engineer = Principal(name="e", namespaces=None, names=frozenset({"group:eng"}))
    other = Principal(name="e", namespaces=None, names=frozenset({"group:ops"}))
    assert service.search("alpha", principal=engineer)["results"]
    assert not service.search("alpha", principal=other)["results"]
    assert not service.search("alpha", principal=NOBODY)["results"]
    assert service.search("alpha", principal=LOCAL)["results"]


def test_pages_of_a_remembered_ranking_are_the_pages_of_a_new_one(corpus: Corpus, service: SearchService) -> None:
    for number in range(40):
        add(corpus, f"{number}.md", text_chunk(f"alpha number{number}"))
    seen: list[str] = []
    cursor = ""
    while True:
        answer = service.search("alpha", limit=7, cursor=cursor)
        seen += [result["path"] for result in answer["results"]]
        cursor = answer.get("next_cursor", "")
        if not cursor:
            break
    assert sorted(seen) == sorted(f"{number}.md" for number in range(40))
    assert seen == [result["path"] for result in service.search("alpha", limit=40, max_tokens=100_000)["results"]]


def test_the_same_text_for_two_audiences_is_shown_once_before_other_texts(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "open.md", text_chunk("alpha beta"))
    add(corpus, "closed.md", text_chunk("alpha beta"), source="secret", readers=["group:eng"])
    add(corpus, "other.md", text_chunk("alpha gamma delta epsilon"))
    paths = [result["path"] for result in service.search("alpha beta")["results"]]
    assert set(paths[:2]) > {"other.md"}
    assert len(paths) == 3


def test_neighbours_come_as_one_passage_with_its_place(corpus: Corpus, service: SearchService) -> None:
    add(
        corpus,
        "a.md",
        text_chunk("alpha begins the story here.", span=Span(line_start=1, line_end=4)),
        text_chunk("alpha ends the story there.", span=Span(line_start=5, line_end=9)),
    )
    [result] = service.search("alpha story")["results"]
    assert result["text"] == "alpha begins the story here.\n\nalpha ends the story there."
    assert result["citation"] == "[a.md, lines 1–9]"


def test_a_passage_that_does_not_fit_loses_its_neighbours_before_its_own_words(corpus: Corpus, service: SearchService) -> None:
    parts = [" ".join(f"filler{part}x{number}" for number in range(60)) for part in range(2)]
    add(corpus, "a.md", text_chunk(parts[0]), text_chunk(f"SKU-0042 {parts[1]}", span=Span(line_start=5, line_end=9)))
    [whole] = service.search("SKU-0042 filler0x1 filler1x1")["results"]
    assert "filler0x1" in whole["text"]
    answer = service.search("SKU-0042 filler0x1 filler1x1", max_tokens=120)
    [fitting] = answer["results"]
    assert fitting["text"].startswith("SKU-0042")
    assert (fitting["line_start"], fitting["high_confidence"]) == (5, True)


def test_a_passage_that_was_cut_shows_what_was_asked_for_and_is_certain_no_longer(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk(" ".join(f"filler{number}" for number in range(200)) + " SKU-0042"))
    assert service.search("SKU-0042")["results"][0]["high_confidence"]
    [cut] = service.search("SKU-0042", max_tokens=60)["results"]
    assert ("SKU-0042" in cut["text"], cut["high_confidence"]) == (True, False)


def test_what_only_resembles_the_identifier_is_not_called_certain(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("cancel_invoice_by_id cancels an invoice by its id"))
    for answer in (service.search("delete_invoice_by_id"), service.search('"cancels an order by its id"')):
        assert not any(result["high_confidence"] for result in answer["results"])
    assert service.search("cancel_invoice_by_id")["results"][0]["high_confidence"]
