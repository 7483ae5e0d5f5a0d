"""The keyword leg over documents that the real publisher wrote: phrases, names, statistics of samples, terms made again."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ingest_worker.catalogue.common_terms import sample_overdue
from ingest_worker.jobs.table import due
from ingest_worker.term_upkeep import keep_terms
from query_server.access import Principal, scope
from query_server.retrieve import keyword
from query_server.service import SearchService
from shared.database import open_pool
from shared.lexical import LEXICAL_VERSION, term_number
from shared.query_terms import query_terms
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


def _paths(answer: dict[str, Any]) -> list[str]:
    return [result["path"] for result in answer["results"]]


def _ask(service: SearchService, query: str, **asked: Any) -> list[str]:
    return _paths(service.search(query, mode="keyword", **asked))


def test_a_phrase_is_found_behind_many_chunks_that_hold_its_words_apart(
    corpus: Corpus, service: SearchService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    scattered = [text_chunk(f"retries max retries retries allowed max allowed number{n}") for n in range(300)]
    add(corpus, "scattered.md", *scattered)
    add(
        corpus, "exact.md", text_chunk("here stand the max allowed retries among a good many of other words " + "and so on " * 60)
    )
    assert _ask(service, '"max allowed retries"')[0] == "exact.md"
    monkeypatch.setattr(keyword, "MOST_CANDIDATES", 200)
    monkeypatch.setattr(keyword, "WHOLE_UP_TO", 200)
    with serving(database) as bounded:
        assert _ask(bounded, '"max allowed  Retries" number')[0] == "exact.md"
        assert _ask(bounded, '"max allowed retries"', path="*.md")[0] == "exact.md"


@pytest.mark.parametrize(
    "query",
    [
        "billing-handbook.pdf",
        "what does docs/Billing-Handbook.pdf say",
        "billing handbook",
        "Prices and terms",
        '"billing-handbook.pdf"',
    ],
)
def test_a_document_is_found_by_its_file_name_or_title(corpus: Corpus, service: SearchService, query: str) -> None:
    add(corpus, "docs/Billing-Handbook.pdf", text_chunk("first page"), text_chunk("second"), title="Prices and Terms")
    add(corpus, "other.md", text_chunk("the billing of a handbook, and what prices and terms say"))
    answer = service.search(query, mode="keyword")
    assert answer["results"][0]["path"] == "docs/Billing-Handbook.pdf"
    assert answer["results"][0]["text"].startswith("first page")


def test_a_name_in_a_query_lifts_the_passages_that_hold_the_rest(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a/setup.md", text_chunk("general words"), text_chunk("the port is 8080"))
    add(corpus, "b/setup.md", text_chunk("port port port"))
    assert service.search("port in a/setup.md", mode="keyword")["results"][0]["text"] == "the port is 8080"
    assert set(_ask(service, "setup.md")) == {"a/setup.md", "b/setup.md"}
    assert _ask(service, "setup.md", path="b/*") == ["b/setup.md"]


def test_words_of_a_name_count_as_words_of_its_document(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "in/invoice-2024.pdf", text_chunk("Boxes in storage, a month each."), text_chunk("Payable soon."))
    add(corpus, "in/Rechnung_Mueller.pdf", text_chunk("Kisten im Lager, je Monat."))
    add(corpus, "in/notes.md", text_chunk("storage storage invoice"), text_chunk("2024, and the storage of many other things"))
    add(corpus, "in/lager.md", text_chunk("Lager Rechnung"), text_chunk("Müller und das Lager"))
    boxes = ("invoice 2024 storage", "storage in the invoice of 2024", "storage 2024 invoice", "invoice-2024 storage")
    for query, text in (*((query, "Boxes") for query in boxes), ("Rechnung Müller Lager", "Kisten")):
        answer = service.search(query, mode="keyword")
        assert answer["results"][0]["text"].startswith(text), query
        assert "exact_not_found" not in [warning["code"] for warning in answer["warnings"]], query


def test_a_name_that_many_documents_share_says_nothing_of_any(corpus: Corpus, service: SearchService) -> None:
    for number in range(11):
        add(corpus, f"d{number}/setup.md", text_chunk(f"port of number{number}"))
    add(corpus, "guide.md", text_chunk("the setup of the port"))
    assert _ask(service, "setup port")[0] == "guide.md"


def test_a_name_beside_other_words_tells_nothing_of_what_is_hidden(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "zebra-plan.md", text_chunk("budget words"), readers=["user:anna"])
    add(corpus, "open.md", text_chunk("budget words"), source="second")
    bob = Principal(name="bob", namespaces=frozenset({"default"}), names=frozenset({"user:bob"}))
    asked = service.search("zebra plan budget", mode="keyword", principal=bob)
    corpus.connection.execute("UPDATE docwell.document SET path = 'other.md' WHERE path = 'zebra-plan.md'")
    again = service.search("zebra plan budget", mode="keyword", principal=bob)
    assert (_paths(asked), asked["results"][0]["score"]) == (["open.md"], again["results"][0]["score"])


def test_of_many_files_with_one_name_the_path_or_the_filter_decides(corpus: Corpus, service: SearchService) -> None:
    for number in range(15):
        add(corpus, f"d{number}/README.md", text_chunk(f"words of {number}"))
    add(corpus, "deeply/nested/folder/README.md", text_chunk("the deep one"))
    assert len(_ask(service, "README.md", limit=50)) == 10
    for query in ("see folder/readme.md", "/deeply/nested/folder/README.md", "nested\\folder\\README.md"):
        assert _ask(service, query)[0] == "deeply/nested/folder/README.md"
    assert _ask(service, "README.md", path="deeply/**") == ["deeply/nested/folder/README.md"]


def test_a_moved_file_is_found_by_its_new_name_alone(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "old-name.md", text_chunk("some words"))
    corpus.connection.execute("UPDATE docwell.document SET path = 'new/fresh-name.md'")
    corpus.connection.execute("UPDATE docwell.audience SET version = version + 1")
    assert _ask(service, "fresh-name.md") == ["new/fresh-name.md"]
    assert _ask(service, "old-name.md") == []


def test_a_name_that_the_principal_may_not_see_finds_nothing(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "secret-plan.md", text_chunk("words"), readers=["user:anna"])
    add(corpus, "open.md", text_chunk("words"), source="second")
    bob = Principal(name="bob", namespaces=frozenset({"default"}), names=frozenset({"user:bob"}))
    assert _ask(service, "secret-plan.md", principal=bob) == []
    assert _ask(service, "secret-plan.md")[0] == "secret-plan.md"


def _frequency(database: Database, word: str, principal: Principal | None = None) -> int:
    pool = open_pool(database.reader_url, name="test", as_reader=True, autocommit=True)
    try:
        with pool.connection() as connection, connection.transaction():
            seen = principal or Principal(name="all", namespaces=None, names=None)
            scope(connection, seen)
            audiences = [row[0] for row in connection.execute("SELECT audience_id FROM docwell.audience").fetchall()]
            row = connection.execute(
                "SELECT chunks FROM docwell.document_frequencies(%s, %s, 50000)", ([term_number(word)], audiences)
            ).fetchone()
    finally:
        pool.close()
    assert row is not None
    return int(row[0])


def _fill(corpus: Corpus, chunks: int, *, path: str = "big.md", **facts: Any) -> None:
    add(
        corpus, path, *(text_chunk(f"common {'half' if n % 2 else 'other'} single{n}x{path[:3]}") for n in range(chunks)), **facts
    )


def test_common_terms_are_known_from_a_sample_and_rare_ones_are_counted(corpus: Corpus, database: Database) -> None:
    _fill(corpus, 300)
    assert sample_overdue(corpus.connection, least=100, sample=150) is not None
    assert sample_overdue(corpus.connection, least=100, sample=150) is None
    assert _frequency(database, "common") == 300
    assert _frequency(database, "half") == pytest.approx(150, abs=4 * math.sqrt(150))
    assert _frequency(database, "single7xbig") == 1
    assert _frequency(database, "nowhere") == 0


def test_the_weights_of_common_terms_follow_the_corpus_as_it_grows(corpus: Corpus, database: Database) -> None:
    _fill(corpus, 120)
    sample_overdue(corpus.connection, least=100, sample=100)
    add(corpus, "few.md", *(text_chunk(f"common few{n}") for n in range(12)))
    assert sample_overdue(corpus.connection, least=100, sample=100) is None
    assert _frequency(database, "common") == 132
    add(corpus, "more.md", *(text_chunk(f"novel{n}") for n in range(60)))
    assert sample_overdue(corpus.connection, least=100, sample=200) is not None
    assert _frequency(database, "common") == 132


def test_a_changed_audience_is_sampled_again_after_a_day(corpus: Corpus) -> None:
    _fill(corpus, 120)
    sample_overdue(corpus.connection, least=100)
    add(corpus, "one.md", text_chunk("one"))
    assert sample_overdue(corpus.connection, least=100, oldest_hours=24) is None
    assert sample_overdue(corpus.connection, least=100, oldest_hours=0) is not None
    assert sample_overdue(corpus.connection, least=100, oldest_hours=0) is None


def test_an_audience_that_has_become_small_is_counted_again(corpus: Corpus, database: Database) -> None:
    _fill(corpus, 120)
    sample_overdue(corpus.connection, least=100)
    assert sample_overdue(corpus.connection, least=1000) is not None
    assert corpus.count("term_sample") == corpus.count("common_term") == 0
    assert _frequency(database, "common") == 120


def test_a_sample_that_the_principal_may_not_see_changes_no_weight(corpus: Corpus, database: Database) -> None:
    _fill(corpus, 120, path="hidden.md", readers=["user:anna"])
    add(corpus, "open.md", text_chunk("common words"), source="second")
    bob = Principal(name="bob", namespaces=frozenset({"default"}), names=frozenset({"user:bob"}))
    sample_overdue(corpus.connection, least=100)
    assert _frequency(database, "common", bob) == 1
    assert _frequency(database, "common") == 121
    pool = open_pool(database.reader_url, name="test", as_reader=True, autocommit=True)
    try:
        with pool.connection() as connection, connection.transaction():
            scope(connection, bob)
            for table in ("term_sample", "common_term"):
                assert connection.execute(f"SELECT count(*) FROM docwell.{table}").fetchone() == (0,)
    finally:
        pool.close()


def test_rankings_are_forgotten_when_weights_change(corpus: Corpus, service: SearchService) -> None:
    _fill(corpus, 120)
    before = service.search("common half", mode="keyword")["index_version"]
    sample_overdue(corpus.connection, least=100)
    assert service.search("common half", mode="keyword")["index_version"] > before


def test_terms_of_older_rules_are_made_again_without_reading_a_file(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "de.md", text_chunk("offene Rechnungen", section=("Zahlung",)), text_chunk("anderes", symbol="Konto.sperren"))
    add(corpus, "en.md", text_chunk("open invoices"))
    whole = corpus.connection.execute(
        "SELECT chunk_id, terms, frequencies, length FROM docwell.chunk_terms ORDER BY 1"
    ).fetchall()
    totals = corpus.connection.execute("SELECT chunk_count, term_total FROM docwell.audience").fetchall()
    assert keep_terms(corpus.connection) == 0
    corpus.connection.execute(
        "UPDATE docwell.chunk_terms SET lexical_version = 1, terms = ARRAY[%s], frequencies = '{1:1}/1000000000', length = 1",
        (query_terms("rechnungen").numbers[0],),
    )
    corpus.connection.execute("UPDATE docwell.audience SET version = version + 1, term_total = 3")
    jobs = due(corpus.connection, cap=10)
    assert keep_terms(corpus.connection) == 3
    assert keep_terms(corpus.connection) == 0
    rows = corpus.connection.execute("SELECT chunk_id, terms, frequencies, length FROM docwell.chunk_terms ORDER BY 1").fetchall()
    assert [(row[0], set(row[1]), str(row[2]), row[3]) for row in rows] == [
        (row[0], set(row[1]), str(row[2]), row[3]) for row in whole
    ]
    assert corpus.connection.execute("SELECT chunk_count, term_total FROM docwell.audience").fetchall() == totals
    assert corpus.connection.execute("SELECT DISTINCT lexical_version FROM docwell.chunk_terms").fetchall() == [
        (LEXICAL_VERSION,)
    ]
    assert due(corpus.connection, cap=10) == jobs
    assert _ask(service, "Rechnung") == ["de.md"]


def test_what_both_rules_share_is_found_while_terms_are_made_again(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "old.md", text_chunk("the invoice of before"))
    corpus.connection.execute(
        "UPDATE docwell.chunk_terms SET lexical_version = 1, terms = %s, length = 2", (query_terms("invoice before").numbers[:1],)
    )
    add(corpus, "new.md", text_chunk("the invoice of now"))
    assert set(_ask(service, "invoice")) == {"old.md", "new.md"}


def test_the_best_of_a_large_index_are_found_by_several_common_words(
    corpus: Corpus, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(8)
    words = ["alpha", "beta", "gamma", "delta"]
    for number in range(20):
        texts = [" ".join([rng.choice(words), *(f"w{rng.randrange(400)}" for _ in range(12))]) for _ in range(15)]
        add(corpus, f"d{number}.md", *map(text_chunk, texts))
    add(corpus, "best.md", text_chunk("alpha beta w1"))
    monkeypatch.setattr(keyword, "MOST_CANDIDATES", 20)
    monkeypatch.setattr(keyword, "WHOLE_UP_TO", 20)
    with serving(database) as bounded:
        assert _ask(bounded, "alpha beta gamma")[0] == "best.md"
        # One common word alone still finds something.
        assert _ask(bounded, "alpha")
