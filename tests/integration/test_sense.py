"""What a model is told beside the passages: what namespaces hold, how well a document was read, what could not be looked into."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from ingest_worker.catalogue.namespaces import describe_namespaces
from ingest_worker.jobs.scheduler import run_scheduler
from query_server.access import LOCAL, NOBODY, Principal
from query_server.render import render_read, render_search
from query_server.server import DocwellServer
from query_server.service import SearchService
from shared.config import NamespaceSettings, Settings, load_settings
from shared.database import open_pool
from shared.errors import ConfigurationError, ServiceUnavailable
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.folders import eventually

TEAM = Principal(name="team", namespaces=frozenset({"team"}))


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


def _description(server: DocwellServer) -> str:
    async def main() -> Any:
        async with Client(server) as client:
            return await client.list_tools()

    return str(anyio.run(main).tools[0].description)


# --- namespaces


def test_a_sentence_for_each_namespace_is_read_from_the_configuration(tmp_path: Path) -> None:
    text = '[[namespaces]]\nname = "team"\ndescription = """Minutes,\n in German."""\n'
    (tmp_path / "docwell.toml").write_text(text, encoding="utf-8")
    settings, _ = load_settings({}, directory=tmp_path)
    assert settings.namespaces == (NamespaceSettings(name="team", description="Minutes, in German"),)
    for wrong in (text * 2, text.replace("team", "No Name"), text.replace("description", "about")):
        (tmp_path / "docwell.toml").write_text(wrong, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="namespaces"):
            load_settings({}, directory=tmp_path)


def test_the_search_tool_says_what_the_namespaces_in_sight_hold(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "a.md", text_chunk("x"))
    add(corpus, "b.md", text_chunk("y"), source="team", namespace="team")
    describe_namespaces(corpus.connection, {"team": "Minutes of the team", "hidden": "Salaries"})
    assert _description(DocwellServer(service)).endswith("Namespaces: default, team (Minutes of the team).")
    assert _description(DocwellServer(service, principal=lambda: TEAM)).endswith("Namespaces: team (Minutes of the team).")
    assert "Minutes" not in _description(DocwellServer(service, principal=lambda: NOBODY))
    describe_namespaces(corpus.connection, {})
    assert _description(DocwellServer(service)).endswith("Namespaces: default, team.")


def test_the_scheduler_writes_the_sentences_down_when_it_starts(database: Database, corpus: Corpus) -> None:
    settings = Settings(namespaces=(NamespaceSettings(name="team", description="Minutes"),))
    stop = threading.Event()
    with open_pool(database.url, name="test", size=2) as pool:
        thread = threading.Thread(
            target=run_scheduler, args=(settings, pool, lambda _: None, stop), kwargs={"rng": random.Random(1)}
        )
        thread.start()
        try:
            eventually(lambda: _said(corpus) == [("team", "Minutes")])
        finally:
            stop.set()
            thread.join(20)


def _said(corpus: Corpus) -> list[Any]:
    return corpus.connection.execute("SELECT name, description FROM docwell.namespace WHERE description IS NOT NULL").fetchall()


def test_a_database_that_is_away_changes_no_description(corpus: Corpus, service: SearchService) -> None:
    class Fading(SearchService):
        away = False

        def namespaces(self, *, principal: Principal = LOCAL) -> Any:
            if self.away:
                raise ServiceUnavailable("away")
            return service.namespaces(principal=principal)

    fading = Fading.__new__(Fading)
    server = DocwellServer(fading)
    add(corpus, "a.md", text_chunk("x"))
    known = _description(server)
    assert "Namespaces: default." in known
    fading.away = True
    assert _description(server) == known


# --- how well a document was read


def _partly(corpus: Corpus, document: str, **facts: Any) -> None:
    known = {
        "state": "partial",
        "reason_code": "pages_without_text",
        "reason": "113 of 311 pages had text.",
        "warnings": [],
        **facts,
    }
    corpus.connection.execute(
        "UPDATE docwell.version SET state = %(state)s, reason_code = %(reason_code)s, reason = %(reason)s,"
        " warnings = %(warnings)s WHERE document_id = %(document)s",
        {**known, "document": document},
    )


def test_a_passage_of_a_document_that_was_read_in_part_says_so(corpus: Corpus, service: SearchService) -> None:
    part = add(corpus, "scan.pdf", text_chunk("Refunds are paid within five days."))
    add(corpus, "whole.md", text_chunk("Refunds of tickets are refused."))
    _partly(corpus, part, warnings=["3 bytes are not valid utf-8 and were replaced by U+FFFD.", *["x" * 999] * 9])
    answer = service.search("refunds")
    found = {result["path"]: result.get("warnings") for result in answer["results"]}
    assert found["whole.md"] is None
    assert found["scan.pdf"][:2] == [
        {"code": "partial", "message": "113 of 311 pages had text."},
        {"code": "extraction", "message": "3 bytes are not valid utf-8 and were replaced by U+FFFD."},
    ]
    assert (len(found["scan.pdf"]), max(len(one["message"]) for one in found["scan.pdf"])) == (5, 300)
    assert "warning: 113 of 311 pages had text" in render_search(answer)
    read = service.read(part)
    assert read["warnings"][0] == {"code": "partial", "message": "113 of 311 pages had text."}
    assert "113 of 311 pages had text." in render_read(read)


def test_text_that_ocr_saw_and_versions_that_have_a_failed_successor_are_told(corpus: Corpus, service: SearchService) -> None:
    seen = add(corpus, "seen.png", text_chunk("Refunds on a picture."))
    old = add(corpus, "old.md", text_chunk("Refunds of the past."))
    _partly(corpus, seen, state="indexed", reason_code="ocr", reason="OCR (eng) read 1 of 1 pages without text.")
    corpus.connection.execute(
        "UPDATE docwell.document SET state = 'failed', latest_version = 2, reason = 'The file is damaged.'"
        " WHERE document_id = %s",
        (old,),
    )
    found = {result["path"]: result["warnings"] for result in service.search("refunds")["results"]}
    assert [one["code"] for one in found["seen.png"]] == ["ocr"]
    assert found["old.md"] == [{"code": "outdated", "message": "This is version 1; version 2 is failed: The file is damaged."}]


# --- what could not be looked into


def test_a_search_without_a_match_names_what_it_could_not_look_into(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "known.md", text_chunk("Refunds."))
    for number in range(5):
        corpus.ask(f"new/{number}.md")
    for path, state in (
        ("scan.pdf", "needs_ocr"),
        ("damaged.pdf", "failed"),
        ("half.pdf", "partial"),
        ("skipped.exe", "skipped"),
    ):
        document = corpus.ask(path)
        corpus.connection.execute("UPDATE docwell.document SET state = %s WHERE document_id = %s", (state, document))
    corpus.ask("secret.md", source="secret", namespace="secret")
    answer = service.search("zyzzyva", mode="keyword", namespace="default")
    assert answer["outcome"] == "no_match"
    assert answer["unindexed"] == [
        {"state": "queued", "documents": 5, "paths": ["new/0.md", "new/1.md", "new/2.md"]},
        {"state": "failed", "documents": 1, "paths": ["damaged.pdf"]},
        {"state": "needs_ocr", "documents": 1, "paths": ["scan.pdf"]},
        {"state": "partial", "documents": 1, "paths": ["half.pdf"]},
    ]
    assert "not indexed yet: 5 (new/0.md, new/1.md, new/2.md, …); could not be indexed: 1 (damaged.pdf)" in render_search(answer)
    narrow = service.search("zyzzyva", mode="keyword", path="*.pdf")
    assert [one["state"] for one in narrow["unindexed"]] == ["failed", "needs_ocr", "partial"]
    everywhere = service.search("zyzzyva", mode="keyword")
    assert everywhere["unindexed"][0]["documents"] == 6


def test_what_the_caller_may_not_see_is_not_named(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "known.md", text_chunk("Refunds."))
    corpus.ask("secret.md", source="secret", namespace="secret")
    corpus.ask("board.md", source="board", readers=["group:board"])
    principal = Principal(name="ann", namespaces=frozenset({"default"}), names=frozenset({"user:ann"}))
    answer = service.search("zyzzyva", mode="keyword", principal=principal)
    assert answer["outcome"] == "no_match"
    assert "unindexed" not in answer
    assert ".md" not in answer["message"]
    seen = service.search("zyzzyva", mode="keyword")
    assert seen["unindexed"] == [{"state": "queued", "documents": 2, "paths": ["board.md", "secret.md"]}]


def test_an_empty_scope_names_what_waits_and_an_answer_with_passages_does_not(corpus: Corpus, service: SearchService) -> None:
    corpus.ask("new.md")
    empty = service.search("refunds")
    assert (empty["outcome"], empty["unindexed"][0]["paths"]) == ("index_empty", ["new.md"])
    add(corpus, "known.md", text_chunk("Refunds."), source="other")
    assert "unindexed" not in service.search("refunds")
