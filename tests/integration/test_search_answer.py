"""What an answer says of itself: where its paging ends, what else says the same, what was cut from a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from query_server.access import Principal
from query_server.render import render_search
from query_server.retrieve.legs import DEPTH
from query_server.retrieve.places import MOST_COPIES
from query_server.service import SearchService
from shared.documents import Chunk, Span
from shared.embedding.protocol import Role, Vectors
from tests.asking import DIMENSION, MODEL, WordEmbedder, add, embed_words, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk, unit_vector


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


@pytest.fixture(scope="module")
def shelf(module_database: Database) -> Iterator[SearchService]:
    """A shelf in each of some namespaces, for tests that only ask."""
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:

        def put(namespace: str, path: str, *chunks: Chunk) -> None:
            add(corpus, path, *chunks, namespace=namespace, source=namespace)

        put("plain", "a.md", text_chunk("Refunds are paid within five days."))
        put("plain", "b.md", text_chunk("The harbour opens at 42 minutes past."))
        put("codes", "refunds.md", text_chunk("ERR-0042: refunds are paid within five days."))
        put("figures", "errors-2024.md", text_chunk("ERR-0042 came up in 4,711 rows."))
        put("forms", "other.md", text_chunk("What is 0042 in a row of numbers, and what is a card?"))
        put("forms", "right.md", text_chunk("The card was refused, and more was said of it: ERR-0042, card_no, retry later."))
        for number in range(4):
            put("brief", f"a{number}.md", text_chunk(f"row {number}: 61 61 61"))
            put("brief", f"b{number}.md", text_chunk(f"EUR EUR postage {number}"))
        more = "more words were written here " * 12
        put("brief", "apart.md", text_chunk("Type 61 of lenses and many other things that are sold by us, all prices in EUR"))
        put("brief", "right.md", text_chunk(f"The postage for a parcel abroad is 61,00 EUR and {more}"))
        for name, count in (("many", DEPTH + 20), ("all", DEPTH)):
            put(
                name,
                f"{name}.md",
                *[text_chunk(f"shared words {place} {name}", section=(f"part {place}",)) for place in range(count)],
            )
        put("cases", "lease.md", text_chunk("Die Kündigungsfrist der Lagerhalle beträgt sechs Monate"))
        put("cases", "work.md", text_chunk("Die Kündigungsfrist beträgt drei Monate, die Probezeit sechs"))
        put("cases", "other.md", text_chunk("Die Monate sind gezählt"))
        for path in ("docs/Übersicht.md", "docs/plan.md"):
            put("paths", path, text_chunk("alpha"))
    with serving(module_database) as found:
        yield found


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
def test_the_last_page_says_that_there_may_be_more_than_was_ranked(shelf: SearchService, mode: str) -> None:
    *before, last = _pages(shelf, "shared words", mode=mode, namespace="many")
    assert before
    assert all("ranking_limited" not in _codes(page) for page in before)
    assert "ranking_limited" in _codes(last)
    assert (last["dropped"], "next_cursor" in last) == (0, False)


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_where_all_was_ranked_the_last_page_promises_no_more(shelf: SearchService, mode: str) -> None:
    assert _codes(_pages(shelf, "shared words", mode=mode, namespace="all")[-1]) == []


def test_copies_that_are_not_shown_are_told_of(corpus: Corpus, service: SearchService) -> None:
    for number in range(MOST_COPIES + 2):
        add(corpus, f"{number:02}.md", text_chunk("the licence text"))
    [answer] = _pages(service, "licence text", mode="keyword")
    assert (len(answer["results"]), _codes(answer)) == (MOST_COPIES, ["ranking_limited"])


@pytest.mark.parametrize(
    "query",
    ["ERR-9999", "frobnicate_xyz_43", '"never said so"', "plans-2031.md", "KeyEror", "98765", "ERR-9999 ERR-9998", "`a.b.c`"],
)
def test_an_exact_thing_that_stands_nowhere_is_no_match_and_is_named(shelf: SearchService, query: str) -> None:
    answer = shelf.search(query, namespace="plain")
    assert (answer["outcome"], answer["results"], answer["warnings"][1:]) == ("no_match", [], [])
    assert "Nothing that you may see" in answer["message"]
    assert query.split()[0].strip('"`') in answer["message"]


def test_a_name_that_nearly_is_the_one_that_was_asked_for_is_shown_and_said_to_be_another(
    corpus: Corpus, service: SearchService
) -> None:
    add(corpus, "right.md", text_chunk("process_load_confirmation_main runs at night"))
    add(corpus, "other.md", text_chunk("the cat sleeps on the warm roof"))
    answer = service.search("process_load_confirmatoin_main")
    assert [(result["path"], result["matched_by"][0], result["high_confidence"]) for result in answer["results"]] == [
        ("right.md", "keyword", False)
    ]
    [warning] = [warning for warning in answer["warnings"] if warning["code"] == "exact_not_found"]
    assert "`process_load_confirmatoin_main`" in warning["message"]


@pytest.mark.parametrize(
    ("query", "written"), [("ERR0042", "ERR-0042"), ("what is err_0042?", "ERR-0042"), ("cardNo", "card_no")]
)
def test_an_identifier_with_other_separators_is_found_and_told_as_what_it_is(
    shelf: SearchService, query: str, written: str
) -> None:
    answer = shelf.search(query, namespace="forms")
    assert answer["results"][0]["path"] == "right.md"
    assert answer["results"][0]["high_confidence"]
    assert _codes(answer) == ["found_as"]
    assert f"was found as `{written}`" in answer["warnings"][0]["message"]


class CaseSensitive(WordEmbedder):
    """Like a model, it takes a word in capitals for another one."""

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        return np.stack([embed_words(text) + 0.5 * unit_vector(text, DIMENSION) for text in texts])


def test_an_answer_does_not_change_with_capitals_normal_form_or_spaces(shelf: SearchService, module_database: Database) -> None:
    with serving(module_database, embedder=CaseSensitive) as service:

        def found(query: str) -> list[tuple[Any, ...]]:
            answer = service.search(query, namespace="cases")
            return [(one["path"], one["score"], one["matched_by"], one["high_confidence"]) for one in answer["results"]]

        for query in ("Kündigungsfrist der Lagerhalle", "Kündigungsfrist", "sechs Monate Probezeit"):
            expected = found(query)
            assert expected
            forms = (unicodedata.normalize("NFD", query), f"  {query.replace(' ', '  ')}\n", query[:3] + "\u00ad" + query[3:])
            assert [found(form) for form in forms] == [expected] * 3
            assert found(query.upper()) == found(query.lower())


def test_what_is_absent_is_told_beside_what_is_written_otherwise(shelf: SearchService) -> None:
    answer = shelf.search("ERR0042 ERR-9999", namespace="forms")
    assert _codes(answer) == ["exact_not_found", "found_as"]
    assert "ERR-9999" in answer["warnings"][0]["message"]
    assert "ERR0042" not in answer["warnings"][0]["message"]


@pytest.mark.parametrize("query", ["61 EUR", "61 eur", "eur 61", "61 EUR postage"])
def test_a_passage_with_all_of_a_brief_question_comes_before_those_with_a_part(shelf: SearchService, query: str) -> None:
    for mode in ("hybrid", "keyword"):
        assert shelf.search(query, mode=mode, namespace="brief")["results"][0]["path"] == "right.md"


def test_a_question_with_an_absent_identifier_is_answered_by_its_words(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "refunds.md", text_chunk("Refunds are paid within five days."))
    answer = service.search("are refunds paid after ERR-9999")
    assert [result["path"] for result in answer["results"]] == ["refunds.md"]
    assert "exact_not_found" in _codes(answer)


@pytest.mark.parametrize("query", ["ERR-0042", "what is ERR-0042", '"within five days"', "refunds.md", "how are refunds paid"])
def test_what_is_there_is_not_called_absent(shelf: SearchService, query: str) -> None:
    answer = shelf.search(query, namespace="codes")
    assert (len(answer["results"]), _codes(answer)) == (1, [])


def test_an_exact_thing_that_is_everywhere_is_there(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "log.md", *[text_chunk(f"utf8 line{place}", section=(f"part {place}",)) for place in range(40)])
    answer = service.search("utf8")
    assert (answer["outcome"], _codes(answer)) == ("ok", [])


def test_an_exact_thing_that_the_filters_leave_out_is_not_replaced_by_others(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "codes/errors.md", text_chunk("ERR-0042 means that the disk is full"))
    add(corpus, "handbook/refunds.md", text_chunk("Refunds are paid within five days."))
    assert service.search("ERR-0042", path="handbook/**")["outcome"] == "no_match"


def test_signs_are_found_where_they_stand_and_nowhere_else(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("The rocket \U0001f680 starts here."))
    add(corpus, "b.md", text_chunk("Nothing starts here."))
    assert [result["path"] for result in service.search("\U0001f680")["results"]] == ["a.md"]
    answer = service.search("\U0001f984")
    assert (answer["outcome"], answer["results"]) == ("no_match", [])
    assert "no word" in answer["message"]


@pytest.mark.parametrize(
    ("query", "certain"), [("ERR-0042 2024", True), ("ERR-0042 in 4711 rows", True), ("ERR-0042 2025", False)]
)
def test_a_passage_without_the_number_that_was_asked_for_is_not_certain(shelf: SearchService, query: str, certain: bool) -> None:
    [result] = shelf.search(query, namespace="figures")["results"]
    assert result["high_confidence"] is certain


def test_a_number_that_stands_nowhere_is_told_beside_what_the_words_found(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "widgets.md", text_chunk("Widgets of all 12 kinds cost 1 200 euros."))
    answer = service.search("widgets of kind 999")
    assert (len(answer["results"]), _codes(answer)) == (1, ["exact_not_found"])
    for query in ("widgets for 1.200", "widgets for 1,200", "widgets for 1200", "5 widgets"):
        assert _codes(service.search(query)) == [], query


SPELLINGS = ("4711", "4,711", "4.711", "4 711")


@pytest.mark.parametrize("written", SPELLINGS)
def test_a_number_alone_is_found_in_each_of_its_spellings(corpus: Corpus, service: SearchService, written: str) -> None:
    add(corpus, "right.md", text_chunk(f"in all {written} of them"))
    add(corpus, "wrong.md", text_chunk("in all 4,712 of them"))
    for query in SPELLINGS:
        answer = service.search(query, mode="keyword")
        assert answer["results"][0]["path"] == "right.md", query
        assert (answer["results"][0]["high_confidence"], _codes(answer)) == (True, []), query


def test_a_passage_names_the_other_places_of_its_text(corpus: Corpus, service: SearchService) -> None:
    def clause(line: int) -> Chunk:
        return text_chunk("permission is hereby granted", span=Span(line_start=line, line_end=line + 1))

    add(corpus, "a.md", clause(1), text_chunk("a body of its own"), clause(90))
    add(corpus, "b.md", clause(7))
    add(corpus, "hidden.md", clause(5), readers=["group:law"], source="law")
    add(corpus, "alone.md", text_chunk("permission to enter"))
    answer = service.search(
        "permission granted", mode="keyword", principal=Principal(name="x", namespaces=None, names=frozenset())
    )
    first, second, copy = answer["results"]
    assert [(other["path"], other["citation"]) for other in first["also_in"]] == [
        ("a.md", "[a.md, lines 90–91]"),
        ("b.md", "[b.md, lines 7–8]"),
    ]
    assert "also_in" not in second
    assert [(copy["path"], other["path"]) for other in copy["also_in"]] == [("b.md", "a.md")]
    text = render_search(answer)
    assert "[a.md, lines 90–91] (a.md), [b.md, lines 7–8] (b.md)" in text
    assert "hidden.md" not in text


def test_of_many_copies_a_few_are_named_within_the_filters(corpus: Corpus, service: SearchService) -> None:
    for number in range(9):
        add(corpus, f"docs/{number}.md", text_chunk("the licence text"))
    add(corpus, "other/x.md", text_chunk("the licence text"))
    [result, *_] = service.search("licence text", path="docs/**", limit=1)["results"]
    assert [other["path"] for other in result["also_in"]] == [f"docs/{number}.md" for number in range(1, 6)]


@pytest.mark.parametrize("glob", ["docs/Übersicht.md", "Über*.md", "docs/*[üu]bersicht*", "./docs/Übers*"])
def test_a_path_is_found_in_either_form_of_its_letters(shelf: SearchService, glob: str) -> None:
    """Names that macOS gives have their accents apart (NFD); paths are stored composed (NFC)."""
    apart = unicodedata.normalize("NFD", glob)
    assert len(shelf.search("alpha", mode="keyword", path=apart)["results"]) == len(
        shelf.search("alpha", mode="keyword", path=glob)["results"]
    )
    assert shelf.list(path=apart)["documents"] == shelf.list(path=glob)["documents"]
    if "[" not in glob:
        assert len(shelf.list(path=apart)["documents"]) == 1


def test_a_quoted_phrase_that_stands_nowhere_is_told_beside_exact_things_that_do(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "billing.md", text_chunk("ERR-0042 means that the card was refused"))
    add(corpus, "otter.md", text_chunk("a quick grey otter swims"))
    for query in ('ERR-0042 "Granite purple  elephants"', '"quick grey otter" "Granite purple elephants"'):
        answer = service.search(query)
        [warning] = [warning for warning in answer["warnings"] if warning["code"] == "exact_not_found"]
        assert "`Granite purple elephants`" in warning["message"]
        assert "ERR-0042" not in warning["message"]
    assert "exact_not_found" not in _codes(service.search('ERR-0042 "card was refused"'))
