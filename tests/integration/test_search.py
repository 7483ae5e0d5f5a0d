"""Searching under the reader's role and row-level security, over documents that the real publisher wrote."""

from __future__ import annotations

import math
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from query_server.access import LOCAL, NOBODY, Principal, scope
from query_server.retrieve.filters import EVERYTHING
from query_server.retrieve.fusion import K
from query_server.retrieve.keyword import FrequencyCache, keyword_leg
from query_server.retrieve.request import Mode
from query_server.retrieve.scope import measure
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.database import connect, open_pool
from shared.documents import ChunkKind, DocumentState, Span
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError, PermanentError, ServiceUnavailable
from shared.lexical import MOST_COUNTED, term_counts
from shared.query_terms import query_terms
from tests.asking import DIMENSION, MODEL, NOW, WordEmbedder, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk

Service = SearchService


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


def test_a_passage_comes_with_all_that_a_citation_needs(corpus: Corpus, service: Service) -> None:
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


def test_slides_sheets_rows_and_attachments_are_cited_and_read(corpus: Corpus, service: Service) -> None:
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


def test_an_empty_index_says_so_and_tells_the_model_what_to_do(service: Service) -> None:
    answer = service.search("anything")
    assert (answer["outcome"], answer["results"], answer["index_version"]) == ("index_empty", [], 0)
    assert "memory" in answer["message"]


def test_an_unknown_namespace_answers_like_an_empty_one(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    assert service.search("alpha", namespace="nowhere")["outcome"] == "index_empty"


def test_a_keyword_search_for_what_nobody_wrote_is_no_match(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    answer = service.search("unheard", mode="keyword")
    assert (answer["outcome"], answer["results"]) == ("no_match", [])


def test_two_different_queries_in_a_row_do_not_mix(corpus: Corpus, service: Service) -> None:
    """langchain-postgres 0.0.19 kept the first query's keywords for every later one."""
    add(corpus, "a.md", text_chunk("alpha particles"))
    add(corpus, "b.md", text_chunk("beta decay"))
    assert _paths(service.search("alpha", mode="keyword")) == ["a.md"]
    assert _paths(service.search("beta", mode="keyword")) == ["b.md"]


def test_an_exact_identifier_comes_first_whatever_the_legs_say(corpus: Corpus, service: Service) -> None:
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


def test_a_quoted_phrase_comes_first(corpus: Corpus, service: Service) -> None:
    add(corpus, "words.md", text_chunk("retries max: the order is wrong, max or retries, retries and max"))
    add(corpus, "phrase.md", text_chunk("The setting for Max\nRetries is five and much other text follows here " * 3))
    assert _paths(service.search('"max retries"'))[0] == "phrase.md"


@pytest.mark.parametrize("query", ["部署", "docker 部署", "サーバー"])
def test_chinese_and_japanese_are_found(corpus: Corpus, service: Service, query: str) -> None:
    add(corpus, "zh.md", text_chunk("使用docker部署服务"))
    add(corpus, "ja.md", text_chunk("サーバーを再起動する"))
    add(corpus, "en.md", text_chunk("unrelated words"))
    expected = "ja.md" if query == "サーバー" else "zh.md"
    assert _paths(service.search(query, mode="keyword")) == [expected]


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


def test_the_keyword_leg_ranks_as_bm25_does(corpus: Corpus, service: Service) -> None:
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


STRANGER = Principal(name="stranger", namespaces=frozenset({"elsewhere"}), names=frozenset({"user:stranger"}))


@pytest.mark.parametrize("principal", [NOBODY, STRANGER])
def test_a_stranger_sees_nothing_by_any_way(corpus: Corpus, service: Service, principal: Principal) -> None:
    document = add(corpus, "secret.md", text_chunk("the secret plan"))
    for mode in ("hybrid", "semantic", "keyword"):
        answer = service.search("secret plan", mode=mode, principal=principal)
        assert (answer["outcome"], answer["results"], answer["index_version"]) == ("index_empty", [], 0)
    assert service.list(principal=principal)["documents"] == []
    status = service.status("secret.md", principal=principal)
    assert (status["documents"], status["chunks"], status["sources"], status["path"]["known"]) == (0, 0, [], False)
    assert service.sources(principal=principal) == {"sources": []}
    assert service.namespaces(principal=principal) == []
    for ask in (service.read, service.document):
        with pytest.raises(PermanentError) as error:
            ask(document, principal=principal)
        assert error.value.code == "not_found"


def test_readers_see_what_is_open_to_them_and_nothing_else(corpus: Corpus, service: Service) -> None:
    add(corpus, "open.md", text_chunk("plan for all"))
    add(corpus, "eng.md", text_chunk("plan for engineers"), source="engineering", readers=["group:eng"])
    add(corpus, "none.md", text_chunk("plan for nobody"), source="closed", readers=[])

    def seen(*names: str) -> set[str]:
        principal = Principal(name="x", namespaces=frozenset({"default"}), names=frozenset(names))
        return set(_paths(service.search("plan", principal=principal)))

    assert seen() == {"open.md"}
    assert seen("group:eng") == {"open.md", "eng.md"}
    assert seen('group:eng"},{"*') == {"open.md"}
    assert set(_paths(service.search("plan", principal=LOCAL))) == {"open.md", "eng.md", "none.md"}


def test_hidden_documents_change_no_score(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha beta"))
    add(corpus, "b.md", text_chunk("alpha gamma delta"))
    visible = Principal(name="x", namespaces=frozenset({"default"}), names=None)
    before = service.search("alpha beta", mode="keyword", explain=True, principal=visible)["results"]
    for number in range(20):
        add(corpus, f"hidden{number}.md", text_chunk("alpha " * number + "beta"), source="other", namespace="hidden")
    assert service.search("alpha beta", mode="keyword", explain=True, principal=visible)["results"] == before


def test_a_forgotten_filter_returns_nothing(corpus: Corpus, database: Database) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    tables = ("audience", "document", "version", "chunk", "version_chunk", "chunk_terms", "namespace", "source", corpus.vectors)
    with connect(database.reader_url, as_reader=True) as connection:
        for table in tables:
            assert connection.execute(f"SELECT count(*) FROM docwell.{table}").fetchone() == (0,)
        numbers = query_terms("alpha").numbers
        assert connection.execute("SELECT * FROM docwell.document_frequencies(%s, '{1,2,3}', 9)", (numbers,)).fetchall() == [
            (numbers[0], 0)
        ]
        found = connection.execute("SELECT * FROM docwell.keyword_candidates(%s, '{0}', '{1,2,3}', 9, '{}')", (numbers,))
        assert found.fetchall() == []


def test_a_namespace_of_one_percent_gets_all_that_it_asks_for(corpus: Corpus, service: Service, monkeypatch: Any) -> None:
    from query_server.retrieve import semantic

    for number in range(30):
        chunks = [text_chunk(f"passage {number} {part} about many things") for part in range(33)]
        add(corpus, f"big{number}.md", *chunks)
    add(
        corpus,
        "small.md",
        *[text_chunk(f"a small passage {part}", section=(f"Part {part}",)) for part in range(10)],
        source="s",
        namespace="small",
    )
    small = Principal(name="x", namespaces=frozenset({"small"}), names=None)
    for limit in (4000, 0):
        monkeypatch.setattr(semantic, "EXACT_UP_TO", limit)
        monkeypatch.setattr(semantic, "EXACT_UP_TO_HIDDEN", limit)
        for mode in ("semantic", "hybrid", "keyword"):
            assert len(service.search("passage", mode=mode, limit=10, principal=small)["results"]) == 10
            assert len(service.search("passage", mode=mode, limit=10, namespace="small")["results"]) == 10
            assert len(service.search("passage", mode=mode, limit=10, path="small.md")["results"]) == 10


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"namespace": "default"}, {"a/one.md", "b/two.txt"}),
        ({"namespace": "other"}, {"a/three.md"}),
        ({"path": "*.md"}, {"a/one.md", "a/three.md"}),
        ({"path": "a/*"}, {"a/one.md", "a/three.md"}),
        ({"source": "second"}, {"a/three.md"}),
        ({"source": "unknown"}, set()),
        ({"tags": ["red"]}, {"a/one.md", "b/two.txt"}),
        ({"tags": ["red", "new"]}, {"b/two.txt"}),
        ({"modified_after": "2000-01-01"}, {"a/one.md"}),
        ({"modified_before": "2000-01-01T00:00:00Z"}, {"b/two.txt", "a/three.md"}),
        ({"path": "*.md", "tags": ["red"], "namespace": "default"}, {"a/one.md"}),
    ],
)
def test_every_leg_keeps_to_every_filter(
    corpus: Corpus, service: Service, mode: Mode, filters: dict[str, Any], expected: set[str]
) -> None:
    one = add(corpus, "a/one.md", text_chunk("shared words first"), tags=["red"])
    add(corpus, "b/two.txt", text_chunk("shared words second"), tags=["red", "new"])
    add(corpus, "a/three.md", text_chunk("shared words third"), source="second", namespace="other")
    corpus.connection.execute("UPDATE docwell.document SET source_modified = '1990-05-01' WHERE document_id <> %s", (one,))
    corpus.connection.execute("UPDATE docwell.document SET source_modified = '2026-05-01' WHERE document_id = %s", (one,))
    assert set(_paths(service.search("shared words", mode=mode, **filters))) == expected


@pytest.mark.parametrize("budget", [50, 120, 400, 4000])
def test_results_fit_max_tokens_and_say_what_was_dropped(corpus: Corpus, service: Service, budget: int) -> None:
    for number in range(8):
        add(corpus, f"d{number}.md", text_chunk(f"budget passage {number} " + "word " * 60))
    answer = service.search("budget passage", limit=8, max_tokens=budget)
    assert 0 < answer["tokens_used"] <= budget
    assert len(answer["results"]) + answer["dropped"] == 8
    assert bool(answer.get("next_cursor")) == (answer["dropped"] > 0)


@pytest.mark.parametrize(("limit", "budget"), [(1, 4000), (3, 4000), (7, 200), (50, 300)])
def test_pages_repeat_and_skip_nothing(corpus: Corpus, service: Service, limit: int, budget: int) -> None:
    for number in range(12):
        add(corpus, f"d{number}.md", text_chunk(f"paged text {number} " + "word " * (number * 4)))
    for copy in ("x.md", "y.md"):
        add(corpus, copy, text_chunk("paged text copied"))
    whole = service.search("paged text", limit=50, max_tokens=100_000)
    paged: list[str] = []
    cursor = ""
    while True:
        page = service.search("paged text", limit=limit, max_tokens=budget, cursor=cursor)
        paged += [result["document_id"] for result in page["results"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
    assert paged == [result["document_id"] for result in whole["results"]]
    assert len(set(paged)) == 14


def test_a_cursor_says_when_the_index_moved_and_when_the_question_is_another(corpus: Corpus, service: Service) -> None:
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


def test_the_same_text_in_several_documents_is_one_result_before_its_copies(corpus: Corpus, service: Service) -> None:
    licence = text_chunk("permission is hereby granted")
    for path in ("c.md", "a.md", "b.md"):
        add(corpus, path, licence, text_chunk(f"body of {path}"), licence)
    add(corpus, "other.md", text_chunk("permission to enter"))
    assert _paths(service.search("permission granted", mode="keyword")) == ["a.md", "other.md", "b.md", "c.md"]


def test_a_new_version_replaces_the_old_one_in_results(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("the old answer"))
    before = service.search("answer")
    add(corpus, "a.md", text_chunk("the new answer"))
    after = service.search("answer")
    assert [result["text"] for result in after["results"]] == ["the new answer"]
    assert after["results"][0]["version"] == 2
    assert after["index_version"] > before["index_version"]


def test_what_waits_and_what_could_not_be_read_is_told(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    corpus.ask("b.md")
    scanned = corpus.ask("scan.pdf")
    corpus.serve(corpus.claim_path("scan.pdf"), [], state=DocumentState.NEEDS_OCR)
    answer = service.search("unheard of", mode="keyword")
    assert answer["outcome"] == "no_match"
    assert answer["pending_in_scope"] == 1
    assert {warning["code"] for warning in answer["warnings"]} >= {"pending", "unread"}
    assert service.document(str(scanned))["state"] == "needs_ocr"


def test_a_sweep_that_is_too_old_or_missing_makes_the_answer_stale(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    missing = service.search("alpha")
    assert missing["stale"]
    assert "newest_sweep" not in missing
    for age, stale in ((600, False), (1200, True)):
        corpus.connection.execute("UPDATE docwell.source SET newest_sweep = %s", (NOW - timedelta(seconds=age),))
        assert service.search("alpha")["stale"] is stale


def test_a_hypothetical_answer_finds_what_the_query_does_not(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("reimbursement arrives in five working days"))
    add(corpus, "b.md", text_chunk("money matters"))
    answer = "reimbursement arrives in five working days"
    asked = service.search("money back", mode="semantic", hypothetical_answer=answer, explain=True)
    assert {result["path"]: result["explanation"]["similarity"] for result in asked["results"]}["a.md"] > 0.99


def test_while_the_embedder_is_away_the_keyword_leg_answers_and_says_so(corpus: Corpus, database: Database) -> None:
    class Away(WordEmbedder):
        def embed(self, texts: Any, role: Any) -> Any:
            raise ServiceUnavailable("The embedder cannot be reached.", code="embedder_unavailable")

    add(corpus, "a.md", text_chunk("alpha"))
    with serving(database, embedder=Away) as service:
        answer = service.search("alpha")
        assert _paths(answer) == ["a.md"]
        assert [warning["code"] for warning in answer["warnings"] if warning["code"] != "stale"] == ["keyword_only"]
        assert answer["warming"] is False


def test_while_the_model_loads_the_keyword_leg_answers(corpus: Corpus, database: Database) -> None:
    go_on = threading.Event()

    def slow() -> Embedder:
        go_on.wait(60)
        return WordEmbedder()

    add(corpus, "a.md", text_chunk("alpha"))
    with serving(database, embedder=slow, patient=False) as service:
        try:
            answer = service.search("alpha")
            assert answer["warming"] is True
            assert answer["results"][0]["matched_by"] == ["keyword"]
        finally:
            go_on.set()


def test_another_model_than_the_index_was_made_with_is_refused_with_the_cure(corpus: Corpus, database: Database) -> None:
    class Other(WordEmbedder):
        fingerprint = Fingerprint(provider="test", model="other", dimension=DIMENSION)

    add(corpus, "a.md", text_chunk("alpha"))
    with serving(database, embedder=Other) as service:
        with pytest.raises(ConfigurationError, match="begin with an empty database") as error:
            service.search("alpha")
        assert error.value.code == "embedding_mismatch"
        assert _paths(service.search("alpha", mode="keyword")) == ["a.md"]


def test_a_database_that_is_away_is_named() -> None:
    away = Snapshots(lambda: open_pool("postgresql://127.0.0.1:9/none", name="test", as_reader=True, wait_seconds=0.2))
    with pytest.raises(ServiceUnavailable, match="PostgreSQL"), away.open(LOCAL):
        pass
    away.close()


def test_a_document_is_read_in_order_and_around_a_place(corpus: Corpus, service: Service) -> None:
    chunks = [
        text_chunk(f"Sentence number {page} begins here and ends.", span=Span(page_start=page, page_end=page))
        for page in range(1, 7)
    ]
    document = add(corpus, "book.pdf", *chunks)
    whole = service.read(document)
    assert [piece["citation"] for piece in whole["pieces"]] == [f"[book.pdf, page {page}]" for page in range(1, 7)]
    assert whole["document"]["path"] == "book.pdf"
    assert [piece["page_start"] for piece in service.read(document, page_start=2, page_end=3)["pieces"]] == [2, 3]
    around = service.read(document, chunk_id=str(chunks[3].chunk_id))
    assert [piece["page_start"] for piece in around["pieces"]] == [3, 4, 5]
    assert "no text in that range" in service.read(document, page_start=99)["message"]


def test_a_passage_that_is_read_without_its_overlap_is_cited_by_the_lines_that_are_left(corpus: Corpus, service: Service) -> None:
    lines = [f"Line {number}: what is said here is said once" for number in range(1, 13)]
    chunks = [
        text_chunk("\n".join(lines[first - 1 : last]), span=Span(line_start=first, line_end=last))
        for first, last in ((1, 6), (5, 9), (8, 12))
    ]
    document = add(corpus, "long.txt", *chunks)

    def shown(**asked: Any) -> list[tuple[str, int]]:
        pieces = service.read(document, **asked)["pieces"]
        assert all(piece["text"].startswith(f"Line {piece['line_start']}:") for piece in pieces)
        return [(piece["citation"], piece["line_end"]) for piece in pieces]

    assert shown() == [("[long.txt, lines 1–6]", 6), ("[long.txt, lines 7–9]", 9), ("[long.txt, lines 10–12]", 12)]
    # Line 6 stands in two passages, and in the second one's overlap alone.
    assert shown(line_start=6, line_end=6) == [("[long.txt, lines 1–6]", 6)]
    assert shown(line_start=7, line_end=7) == [("[long.txt, lines 5–9]", 9)]
    ((_, last),) = shown(line_start=10, max_tokens=40)
    assert 8 <= last < 12


def test_reading_pages_through_a_document_without_loss(corpus: Corpus, service: Service) -> None:
    chunks = [text_chunk(f"part {part} " + "word " * 30, span=Span(line_start=part + 1, line_end=part + 1)) for part in range(9)]
    document = add(corpus, "a.txt", *chunks)
    lines: list[int] = []
    cursor = ""
    while True:
        page = service.read(document, max_tokens=150, cursor=cursor)
        assert page["tokens_used"] <= 150
        lines += [piece["line_start"] for piece in page["pieces"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
    assert lines == list(range(1, 10))


def test_documents_are_listed_by_state_and_page(corpus: Corpus, service: Service) -> None:
    for number in range(5):
        add(corpus, f"d{number}.md", text_chunk(f"text {number}"))
    corpus.ask("waiting.md")
    assert [found["path"] for found in service.list(state="queued")["documents"]] == ["waiting.md"]
    first = service.list(limit=4)
    second = service.list(limit=4, cursor=first["next_cursor"])
    assert [found["path"] for found in first["documents"] + second["documents"]] == [
        *(f"d{number}.md" for number in range(5)),
        "waiting.md",
    ]
    assert "next_cursor" not in second
    with pytest.raises(PermanentError, match="needs_ocr"):
        service.list(state="nonsense")


def test_the_status_of_a_path_tells_its_stage(corpus: Corpus, service: Service) -> None:
    add(corpus, "docs/a.md", text_chunk("alpha"))
    status = service.status("a.md")
    assert (status["by_state"], status["chunks"], status["embedding_model"]) == ({"indexed": 1}, 1, "test")
    assert status["path"]["documents"][0]["state"] == "indexed"
    assert service.status("unknown.md")["path"] == {"path": "unknown.md", "known": False, "documents": []}


def test_code_is_cited_by_lines_with_its_symbol(corpus: Corpus, service: Service) -> None:
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


def test_a_query_of_a_whole_page_is_answered(corpus: Corpus, service: Service) -> None:
    add(corpus, "a.md", text_chunk("alpha beta gamma"))
    query = " ".join(f"unknownword{number}" for number in range(400)) + " alpha beta"
    assert _paths(service.search(query)) == ["a.md"]


@pytest.mark.parametrize("query", ["", "   ", "\x00", "x" * 10_001])
def test_a_query_that_is_none_is_refused(service: Service, query: str) -> None:
    with pytest.raises(PermanentError) as error:
        service.search(query)
    assert error.value.code == "bad_argument"


@pytest.mark.parametrize("query", ["%s %(x)s", "'; DROP TABLE x; --", "\ud800", "((((", "a\u0000b", "🙂", "[a-", "\\"])
def test_odd_queries_are_only_words(corpus: Corpus, service: Service, query: str) -> None:
    add(corpus, "a.md", text_chunk("alpha"))
    assert service.search(query)["outcome"] in {"ok", "no_match"}


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
