"""Where an answer comes from, for people and for scripts; and that nobody pays for it who does not ask."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from query_server.access import Principal
from query_server.answers import SearchAnswer
from query_server.retrieve.bm25 import idf
from query_server.retrieve.confidence import calibration_of
from query_server.retrieve.explain import cut_off
from query_server.retrieve.keyword import KeywordHit
from query_server.retrieve.legs import Legs
from query_server.retrieve.ranking import rank
from query_server.retrieve.request import Mode
from query_server.retrieve.rerank import OnDemand, Reranking
from query_server.retrieve.semantic import SemanticHit, Space
from query_server.schemas import output_schema
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


def test_an_answer_that_nobody_wants_explained_has_no_word_of_it(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    assert "explanation" not in json.dumps(service.search("alpha"))
    assert "explanation" not in json.dumps(output_schema(SearchAnswer)), "the tool's shape does not know it"


def test_an_explained_answer_is_the_answer(corpus: Corpus, service: SearchService) -> None:
    for number in range(7):
        add(corpus, f"{number}.md", text_chunk(f"alpha beta number{number}"))
    plain = service.search("alpha beta", limit=3)
    explained = service.search("alpha beta", limit=3, explain=True)
    assert explained["explanation"]["cache"] == "hit"
    for answer in (plain, explained):
        answer.pop("search_id")
        answer.pop("_meta")
    explained.pop("explanation")
    for result in explained["results"]:
        result.pop("explanation")
    assert explained == plain


def test_a_passage_says_what_put_it_where_it_is(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha alpha beta"))
    add(corpus, "b.md", text_chunk("alpha delta"))
    add(corpus, "c.md", text_chunk("something else"))
    answer = service.search("alpha beta", explain=True)
    first, second = (result["explanation"] for result in answer["results"][:2])
    assert [result["path"] for result in answer["results"][:2]] == ["a.md", "b.md"]
    assert first["terms"] == [
        {"term": "alpha", "idf": round(idf(2, 3), 4), "count": 2},
        {"term": "beta", "idf": round(idf(1, 3), 4), "count": 1},
    ]
    assert [term["term"] for term in second["terms"]] == ["alpha"]
    assert (first["keyword_rank"], first["semantic_rank"], first["fused_rank"]) == (1, 1, 1)
    assert first["keyword_score"] > second["keyword_score"] > 0
    assert first["similarity"] + first["distance"] == pytest.approx(1.0)
    assert first["fused_score"] == answer["results"][0]["score"]
    assert first["exact_hits"] == 0
    assert "rerank_score" not in first


def test_identifiers_and_phrases_that_lift_a_passage_are_named(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("the code ERR-0042 means that the disk is full"))
    add(corpus, "b.md", text_chunk("the code of the disk"))
    answer = service.search('what is ERR-0042 "disk is full"', explain=True)
    found = answer["results"][0]["explanation"]
    assert (found["exact_hits"], found["identifiers"], found["phrases"]) == (2, ["err-0042"], ["disk is full"])
    [identifier] = [term for term in answer["explanation"]["terms"] if term["identifier"]]
    assert (identifier["term"], identifier["chunks"]) == ("err-0042", 1)


def test_a_document_that_the_question_names_says_so(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "docs/billing.md", text_chunk("alpha beta"))
    add(corpus, "docs/other.md", text_chunk("alpha alpha"))
    first, second = service.search("alpha in billing.md", explain=True)["results"]
    assert (first["path"], first["explanation"]["named"], first["explanation"]["exact_hits"]) == ("docs/billing.md", True, 1)
    assert "named" not in second["explanation"]
    first, second = service.search("alpha of billing", explain=True)["results"]
    assert (first["path"], first["explanation"]["by_name"]) == ("docs/billing.md", ["bill"])
    assert not second["explanation"].get("by_name")


def test_a_word_that_is_held_in_another_form_is_shown_in_that_form(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha Kündigungen"))
    [result] = service.search("alpha Kündigung", mode="keyword", explain=True)["results"]
    held = [term["term"] for term in result["explanation"]["terms"]]
    assert held[0] == "alpha"
    assert len(held) == 2, "the beginning that both share"


def test_what_was_merged_and_what_collapsed_is_listed(corpus: Corpus, service: SearchService) -> None:
    said = "alpha is told in words that come again and again in this document of ours today "
    add(
        corpus,
        "a.md",
        text_chunk(said + "first", span=Span(line_start=1, line_end=4)),
        text_chunk("alpha goes on here with other things entirely.", span=Span(line_start=5, line_end=9)),
        text_chunk("a wall between them, without the word", span=Span(line_start=10, line_end=12), section=("Wall",)),
        text_chunk(said + "second", span=Span(line_start=13, line_end=20), section=("Again",)),
    )
    results = service.search("alpha told words again", explain=True)["results"]
    parts = [part for result in results for part in result["explanation"].get("collapsed", ())]
    merged = [part for result in results for part in result["explanation"].get("merged", ())]
    assert [part["citation"] for part in parts] in (["[a.md, lines 13–20]"], ["[a.md, lines 1–4]"])
    assert all({"chunk_id", "keyword_rank"} <= part.keys() for part in parts)
    assert {part["citation"] for part in merged} <= {"[a.md, lines 1–4]", "[a.md, lines 5–9]"}
    assert len(merged) == 1 or "lines 13" in results[0]["citation"]


def test_an_answer_says_what_was_searched_and_how_long_each_stage_took(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "docs/a.md", text_chunk("alpha beta"), tags=["x"])
    add(corpus, "docs/b.md", text_chunk("alpha gamma"), namespace="other", source="second")
    answer = service.search("alpha", path="docs/*", explain=True)
    found = answer["explanation"]
    assert (found["mode"], found["filters"], found["namespaces"]) == ("hybrid", {"path": "docs/*"}, ["default", "other"])
    assert (found["documents"], found["chunks"], found["ranked"]) == (2, 2, 2)
    assert found["legs"]["keyword"]["candidates"] == found["legs"]["semantic"]["candidates"] == 2
    assert (found["model"], found["cache"], found["reranked"]) == ("test", "miss", False)
    assert found["index_version"] == answer["index_version"]
    assert {"encode", "scope", "keyword", "semantic", "fusion", "gather", "compose"} <= found["milliseconds"].keys()
    assert all(math.isfinite(value) and value >= 0 for value in found["milliseconds"].values())
    only = service.search("alpha", namespace="other", tags=["x"], explain=True)["explanation"]
    assert (only["namespaces"], only["filters"]) == (["other"], {"namespace": "other", "tags": ["x"]})


def test_an_answer_without_passages_says_why(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    answer = service.search("unheard", mode="keyword", explain=True)
    found = answer["explanation"]
    assert (answer["outcome"], found["cut_off"]["supported"], found["legs"]) == (
        "no_match",
        False,
        {"keyword": {"candidates": 0, "depth": 100}},
    )
    assert found["terms"][0]["chunks"] == 0


def test_the_counts_are_those_of_what_the_principal_sees(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "open.md", text_chunk("alpha beta"))
    add(corpus, "closed.md", text_chunk("alpha beta"), source="secret", namespace="closed", readers=["group:eng"])
    nobody = Principal(name="x", namespaces=None, names=frozenset())
    found = service.search("alpha", explain=True, principal=nobody)["explanation"]
    assert (found["documents"], found["terms"][0]["chunks"], found["namespaces"]) == (1, 1, ["default"])


def test_a_reranked_answer_shows_both_orders(corpus: Corpus, database: Database) -> None:
    class Backwards:
        def scores(self, query: str, texts: list[str]) -> list[float]:
            return [float(place) for place in range(len(texts))]

    for number in range(3):
        add(corpus, f"{number}.md", text_chunk("alpha " * (3 - number) + f"word{number}"))
    reranking = Reranking(Backwards, limit_seconds=30.0)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha", explain=True)
    assert answer["explanation"]["reranked"]
    assert [result["explanation"]["rerank_score"] for result in answer["results"]] == [2.0, 1.0, 0.0]
    assert [result["explanation"]["fused_rank"] for result in answer["results"]] == [3, 2, 1]


def test_the_cut_off_is_told_by_the_numbers_that_decide() -> None:
    model = "intfloat/multilingual-e5-small"
    space = Space(space_id=1, fingerprint="f", provider="local", model=model, dimension=384)
    key = (1, uuid.uuid4())
    legs = Legs(keyword=[KeywordHit(key=key, score=2.0, coverage=0.5)], semantic=[[SemanticHit(key=key, similarity=0.8)]])
    calibration = calibration_of(model)
    assert calibration is not None
    cases: list[tuple[Mode, float, float]] = [
        ("hybrid", calibration.coverage, calibration.relevant),
        ("semantic", 0.0, calibration.relevant_alone),
    ]
    for mode, weight, needed in cases:
        found = cut_off(legs, rank(legs, mode, calibration), space, mode)
        assert (found.coverage_weight, found.relevant_from, found.evidence) == (weight, needed, pytest.approx(0.8 + weight * 0.5))
        assert found.supported == (found.evidence is not None and found.evidence >= needed)


# --- on the command line


Run = Callable[..., Result]


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` in an empty folder, on this test's database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    return lambda *arguments: CliRunner().invoke(make_app("search"), ["search", *map(str, arguments)])


def test_the_explanation_is_readable(corpus: Corpus, run: Run) -> None:
    add(corpus, "[b]a.md", text_chunk("alpha ERR-0042 beta"))
    add(corpus, "b.md", text_chunk("alpha"))
    result = run("alpha ERR-0042", "--mode", "keyword", "--explain", "--path", "*.md")
    assert result.exit_code == 0, (result.output, result.exception)
    for said in ("Namespaces searched: default.", "filters: path *.md", "Keyword leg: 2 candidates", "Cut-off:", "Milliseconds:"):
        assert said in result.stdout
    assert "1. holds the identifiers err-0042" in result.stdout
    assert "[[b]a.md, line 1]" in result.stdout


def test_the_command_takes_what_the_tool_takes(corpus: Corpus, run: Run) -> None:
    for number in range(4):
        add(corpus, f"{number}.md", text_chunk(f"alpha word{number} " + "filler " * 20))
    corpus.connection.execute("UPDATE docwell.document SET source_modified = '2026-01-01' WHERE path IN ('0.md', '1.md')")
    corpus.connection.execute("UPDATE docwell.document SET source_modified = '2026-03-01' WHERE path IN ('2.md', '3.md')")

    def ask(*options: str) -> Any:
        result = run("alpha", "--mode", "keyword", "--json", *options)
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    def paths(answer: Any) -> set[str]:
        return {result["path"] for result in answer["results"]}

    assert paths(ask("--modified-after", "2026-02-01")) == {"2.md", "3.md"}
    assert paths(ask("--modified-before", "2026-02-01")) == {"0.md", "1.md"}
    first = ask("--limit", "2")
    second = ask("--limit", "2", "--cursor", first["next_cursor"])
    assert paths(first) | paths(second) == {f"{number}.md" for number in range(4)}
    assert ask("--max-tokens", "60")["dropped"] > 0
    assert ask("--hypothetical-answer", "beta")["outcome"] == "ok"
    assert ask("--explain")["results"][0]["explanation"]["keyword_rank"] == 1


@pytest.mark.parametrize("cursor", ["foo", "W10"])
def test_a_cursor_that_is_none_is_wrong_usage(run: Run, corpus: Corpus, cursor: str) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    found = run("alpha", "--mode", "keyword", "--cursor", cursor)
    assert found.exit_code == 2
    assert "next_cursor" in found.output
