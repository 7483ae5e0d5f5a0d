"""What a search looks at: what its principal may see, within what its filters leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from query_server.access import LOCAL, NOBODY, Principal
from query_server.retrieve.request import Mode
from query_server.service import SearchService
from shared.database import connect
from shared.errors import PermanentError
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


STRANGER = Principal(name="stranger", namespaces=frozenset({"elsewhere"}), names=frozenset({"user:stranger"}))


def _paths(answer: dict[str, Any]) -> list[str]:
    return [result["path"] for result in answer["results"]]


@pytest.mark.parametrize("principal", [NOBODY, STRANGER])
def test_a_stranger_sees_nothing_by_any_way(corpus: Corpus, service: SearchService, principal: Principal) -> None:
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


def test_readers_see_what_is_open_to_them_and_nothing_else(corpus: Corpus, service: SearchService) -> None:
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


def test_hidden_documents_change_no_score(corpus: Corpus, service: SearchService) -> None:
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


def test_a_namespace_of_one_percent_gets_all_that_it_asks_for(corpus: Corpus, service: SearchService, monkeypatch: Any) -> None:
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


@pytest.fixture(scope="module")
def shelf(module_database: Database) -> Iterator[SearchService]:
    """Three documents that differ in all that filters ask for."""
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        one = add(corpus, "a/one.md", text_chunk("shared words first"), tags=["red"])
        add(corpus, "b/two.txt", text_chunk("shared words second"), tags=["red", "new"])
        add(corpus, "a/three.md", text_chunk("shared words third"), source="second", namespace="other")
        corpus.connection.execute("UPDATE docwell.document SET source_modified = '1990-05-01' WHERE document_id <> %s", (one,))
        corpus.connection.execute("UPDATE docwell.document SET source_modified = '2026-05-01' WHERE document_id = %s", (one,))
    with serving(module_database) as found:
        yield found


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
def test_every_leg_keeps_to_every_filter(shelf: SearchService, mode: Mode, filters: dict[str, Any], expected: set[str]) -> None:
    assert set(_paths(shelf.search("shared words", mode=mode, **filters))) == expected
