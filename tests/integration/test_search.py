"""Searching under the reader's role, over documents that the real publisher wrote."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from query_server.access import LOCAL, scope
from query_server.retrieve.filters import EVERYTHING
from query_server.retrieve.fusion import K
from query_server.retrieve.keyword import FrequencyCache, keyword_leg
from query_server.retrieve.scope import measure
from query_server.service import SearchService
from shared.database import connect
from shared.documents import ChunkKind, DocumentState, Span
from shared.errors import PermanentError
from shared.lexical import MOST_COUNTED, term_counts
from shared.query_terms import query_terms
from tests.asking import DIMENSION, MODEL, NOW, add, serving
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


def _paths(answer: dict[str, Any]) -> list[str]:
    return [result["path"] for result in answer["results"]]


def test_a_passage_comes_with_all_that_a_citation_needs(corpus: Corpus, service: SearchService) -> None:
    chunk = text_chunk(
        "Refunds are paid within five days.", section=("Billing", "Cancelling"), span=Span(page_start=3, page_end=3)
    )
    document = add(corpus, "docs/billing.pdf", chunk, title="Billing handbook", tags=["finance"])
    corpus.connection.execute("UPDATE docwell.source SET newest_sweep = %s", (NOW,))
    answer = service.search("how fast are refunds paid?")
    assert answer["outcome"] == "ok"
    assert answer["query"] == "how fast are refunds paid?"
    [result] = answer["results"]
    assert result == {
        "chunk_id": str(chunk.chunk_id),
        "document_id": document,
        "path": "docs/billing.pdf",
        "source": "inbox",
        "namespace": "default",
        "title": "Billing handbook",
        "text": "Refunds are paid within five days.",
        "citation": "[billing.pdf, page 3]",
        "section": "Billing > Cancelling",
        "page_start": 3,
        "page_end": 3,
        "kind": "text",
        "score": pytest.approx(2 / (K + 1), abs=1e-6),
        "score_kind": "rrf",
        "matched_by": ["keyword", "semantic"],
        "high_confidence": False,
        "version": 1,
        "last_indexed": result["last_indexed"],
        "tags": ["finance"],
    }
    assert (answer["pending_in_scope"], answer["stale"], answer["newest_sweep"]) == (0, False, "2026-11-29T12:00:00Z")
    assert answer["warnings"] == []


def test_slides_sheets_rows_and_attachments_are_cited_and_read(corpus: Corpus, service: SearchService) -> None:
    document = add(
        corpus,
        "offers/mail.eml",
        text_chunk("the slide of numbers", span=Span(slide=3, attachment="plan.pptx")),
        text_chunk("the sheet of numbers", span=Span(sheet="Sales", row_start=2, row_end=40)),
        text_chunk("the page of numbers", span=Span(page_start=9, page_end=9, page_label="v")),
    )
    found = {result["text"]: result for result in service.search("numbers")["results"]}
    assert [found[f"the {what} of numbers"]["citation"] for what in ("slide", "sheet", "page")] == [
        "[mail.eml, attachment plan.pptx, slide 3]",
        "[mail.eml, sheet Sales, rows 2–40]",
        "[mail.eml, page 9]",
    ]
    assert (found["the slide of numbers"]["slide"], found["the slide of numbers"]["attachment"]) == (3, "plan.pptx")
    assert "page_start" not in found["the slide of numbers"]
    assert (found["the sheet of numbers"]["row_start"], found["the sheet of numbers"]["row_end"]) == (2, 40)
    assert found["the page of numbers"]["page_label"] == "v"
    assert [piece["text"] for piece in service.read(document, page_start=3, page_end=3)["pieces"]] == ["the slide of numbers"]
    assert [piece["sheet"] for piece in service.read(document, line_start=30, line_end=30)["pieces"]] == ["Sales"]


def test_an_empty_index_says_so_and_tells_the_model_what_to_do(service: SearchService) -> None:
    answer = service.search("anything")
    assert (answer["outcome"], answer["results"], answer["index_version"]) == ("index_empty", [], 0)
    assert "memory" in answer["message"]


def test_an_unknown_namespace_answers_like_an_empty_one(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    assert service.search("alpha", namespace="nowhere")["outcome"] == "index_empty"


def test_a_keyword_search_for_what_nobody_wrote_is_no_match(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    answer = service.search("unheard", mode="keyword")
    assert (answer["outcome"], answer["results"]) == ("no_match", [])


def test_two_different_queries_in_a_row_do_not_mix(corpus: Corpus, service: SearchService) -> None:
    """langchain-postgres 0.0.19 kept the first query's keywords for every later one."""
    add(corpus, "a.md", text_chunk("alpha particles"))
    add(corpus, "b.md", text_chunk("beta decay"))
    assert _paths(service.search("alpha", mode="keyword")) == ["a.md"]
    assert _paths(service.search("beta", mode="keyword")) == ["b.md"]


def test_an_exact_identifier_comes_first_whatever_the_legs_say(corpus: Corpus, service: SearchService) -> None:
    for number in range(30):
        add(corpus, f"noise{number}.md", text_chunk(f"process load confirmation main steps {number} " * 3))
    add(
        corpus,
        "exact.md",
        text_chunk("one long page of other things that mentions process_load_confirmation_main " + "word " * 80),
    )
    answer = service.search("what does process_load_confirmation_main do")
    assert _paths(answer)[0] == "exact.md"
    assert answer["results"][0]["high_confidence"]


def test_a_quoted_phrase_comes_first(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "words.md", text_chunk("retries max: the order is wrong, max or retries, retries and max"))
    add(corpus, "phrase.md", text_chunk("The setting for Max\nRetries is five and much other text follows here " * 3))
    assert _paths(service.search('"max retries"'))[0] == "phrase.md"


@pytest.fixture(scope="module")
def shelf(module_database: Database) -> Iterator[SearchService]:
    """A document in each of three languages."""
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        add(corpus, "zh.md", text_chunk("使用docker部署服务"))
        add(corpus, "ja.md", text_chunk("サーバーを再起動する"))
        add(corpus, "en.md", text_chunk("alpha and other words"))
    with serving(module_database) as found:
        yield found


@pytest.mark.parametrize("query", ["部署", "docker 部署", "サーバー"])
def test_chinese_and_japanese_are_found(shelf: SearchService, query: str) -> None:
    expected = "ja.md" if query == "サーバー" else "zh.md"
    assert _paths(shelf.search(query, mode="keyword")) == [expected]


def _reference_bm25(texts: dict[str, str], query: str) -> dict[str, float]:
    """BM25 written down once more, from the formula alone."""
    counts = {path: term_counts(text) for path, text in texts.items()}
    lengths = {path: sum(found.values()) for path, found in counts.items()}
    average = sum(lengths.values()) / len(lengths)
    scores: defaultdict[str, float] = defaultdict(float)
    for term in query_terms(query).terms:
        holding = sum(term.number in found for found in counts.values())
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        for path, found in counts.items():
            count = min(found.get(term.number, 0), MOST_COUNTED)
            if count:
                norm = 1.2 * (1 - 0.75 + 0.75 * lengths[path] / average)
                scores[path] += term.weight * idf * count * 2.2 / (count + norm)
    return dict(scores)


def test_the_keyword_leg_ranks_as_bm25_does(corpus: Corpus, service: SearchService) -> None:
    rng = random.Random(5)
    words = ["invoice", "refund", "policy", "running", "runs", "ERR-0042", "payment", "customer", "the", "of", "部署"]
    texts = {f"d{n:02}.md": " ".join(rng.choices(words, k=rng.randint(3, 60))) for n in range(40)}
    texts["long.md"] = "refund " * 500
    for path, text in texts.items():
        add(corpus, path, text_chunk(text))
    for query in ("refund policy", "running invoice", "payment of the customer", "部署", "invoice"):
        expected = _reference_bm25(texts, query)
        answer = service.search(query, mode="keyword", limit=50, max_tokens=100_000, explain=True)
        found = {result["path"]: result["explanation"]["keyword_score"] for result in answer["results"]}
        assert found == {path: pytest.approx(score, abs=1e-3) for path, score in expected.items()}
        assert [found[path] for path in _paths(answer)] == sorted(found.values(), reverse=True)


def test_candidates_of_a_large_scope_rank_as_the_whole_does(corpus: Corpus, database: Database, monkeypatch: Any) -> None:
    from query_server.retrieve import keyword

    rng = random.Random(6)
    for number in range(60):
        add(
            corpus,
            f"d{number}.md",
            text_chunk(" ".join(rng.choices(["alpha", "beta", "gamma", "rare" if number < 5 else "x"], k=20))),
        )
    with serving(database) as service:
        whole = service.search("rare alpha", mode="keyword", limit=5)["results"]
        tagged = service.search("rare alpha", mode="keyword", limit=5, path="d*")["results"]
        monkeypatch.setattr(keyword, "MOST_CANDIDATES", 10)
        monkeypatch.setattr(keyword, "WHOLE_UP_TO", 10)
        bounded = service.search("rare alpha", mode="keyword", limit=5)["results"]
        narrowed = service.search("rare alpha", mode="keyword", limit=5, path="d*")["results"]
    assert whole == bounded == narrowed == tagged


def test_the_same_text_in_several_documents_is_one_result_before_its_copies(corpus: Corpus, service: SearchService) -> None:
    licence = text_chunk("permission is hereby granted")
    for path in ("c.md", "a.md", "b.md"):
        add(corpus, path, licence, text_chunk(f"body of {path}"), licence)
    add(corpus, "other.md", text_chunk("permission to enter"))
    assert _paths(service.search("permission granted", mode="keyword")) == ["a.md", "other.md", "b.md", "c.md"]


def test_a_new_version_replaces_the_old_one_in_results(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("the old answer"))
    before = service.search("answer")
    add(corpus, "a.md", text_chunk("the new answer"))
    after = service.search("answer")
    assert [result["text"] for result in after["results"]] == ["the new answer"]
    assert after["results"][0]["version"] == 2
    assert after["index_version"] > before["index_version"]


def test_what_waits_and_what_could_not_be_read_is_told(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    corpus.ask("b.md")
    scanned = corpus.ask("scan.pdf")
    corpus.serve(corpus.claim_path("scan.pdf"), [], state=DocumentState.NEEDS_OCR)
    answer = service.search("unheard of", mode="keyword")
    assert answer["outcome"] == "no_match"
    assert answer["pending_in_scope"] == 1
    assert {warning["code"] for warning in answer["warnings"]} >= {"pending", "unread"}
    assert service.document(str(scanned))["state"] == "needs_ocr"


def test_a_sweep_that_is_too_old_or_missing_makes_the_answer_stale(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    missing = service.search("alpha")
    assert missing["stale"]
    assert "newest_sweep" not in missing
    for age, stale in ((600, False), (1200, True)):
        corpus.connection.execute("UPDATE docwell.source SET newest_sweep = %s", (NOW - timedelta(seconds=age),))
        assert service.search("alpha")["stale"] is stale


def test_code_is_cited_by_lines_with_its_symbol(corpus: Corpus, service: SearchService) -> None:
    add(
        corpus,
        "app.py",
        text_chunk(
            "def cancel(self): ...",
            kind=ChunkKind.CODE,
            language="python",
            symbol="Invoice.cancel",
            span=Span(line_start=10, line_end=40),
        ),
    )
    [result] = service.search("Invoice.cancel")["results"]
    assert (result["citation"], result["symbol"], result["language"], result["kind"]) == (
        "[app.py, lines 10–40]",
        "Invoice.cancel",
        "python",
        "code",
    )


def test_a_query_of_a_whole_page_is_answered(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("alpha beta gamma"))
    query = " ".join(f"unknownword{number}" for number in range(400)) + " alpha beta"
    assert _paths(service.search(query)) == ["a.md"]


@pytest.mark.parametrize("query", ["", "   ", "\x00", "x" * 10_001])
def test_a_query_that_is_none_is_refused(shelf: SearchService, query: str) -> None:
    with pytest.raises(PermanentError) as error:
        shelf.search(query)
    assert error.value.code == "bad_argument"


@pytest.mark.parametrize("query", ["%s %(x)s", "'; DROP TABLE x; --", "\ud800", "((((", "a\u0000b", "🙂", "[a-", "\\"])
def test_odd_queries_are_only_words(shelf: SearchService, query: str) -> None:
    assert shelf.search(query)["outcome"] in {"ok", "no_match"}


def test_common_words_are_counted_once_for_each_state_of_the_index(corpus: Corpus, database: Database) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    cache = FrequencyCache(scopes=1, terms=2)
    key, other = ((1,), 1), ((1,), 2)
    cache.put(key, {1: 5})
    assert cache.get(key, [1, 2]) == {1: 5}
    cache.put(other, {1: 6})
    assert (cache.get(key, [1]), cache.get(other, [1])) == ({}, {1: 6})
    with connect(database.reader_url, as_reader=True) as connection, connection.transaction():
        scope(connection, LOCAL)
        measured = measure(connection, EVERYTHING, now=NOW, rescan_seconds=300)
        assert len(keyword_leg(connection, measured, EVERYTHING, query_terms("alpha"), limit=9, cache=cache)) == 1
