"""Searches and the embedding model: away, loading, or another than the index has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from query_server.access import LOCAL
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.database import open_pool
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError, ServiceUnavailable
from tests.asking import DIMENSION, MODEL, WordEmbedder, add, serving
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


def test_a_hypothetical_answer_finds_what_the_query_does_not(corpus: Corpus, service: SearchService) -> None:
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
