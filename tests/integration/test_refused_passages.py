"""Passages that the embedding model refuses: found by their words, told, asked for again; and what is no passage's fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli import make_app
from ingest_worker.batch import Pace, run_jobs
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import ParserCage
from ingest_worker.pipeline import JobReport
from ingest_worker.vector_upkeep import REFUSED_SECONDS, VectorKeeper
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.errors import ConfigurationError, DocwellError, TransientError
from tests.conftest import Database
from tests.v1_embeddings import Answer, Server, error
from tests.versions import Library, open_library

RULE = "this text is against the rules"
LONG = " ".join(f"Sentence {one} of a part that is long enough for a passage of its own." for one in range(60))


@pytest.fixture
def found(database: Database, tmp_path: Path, cage: ParserCage, server: Server) -> Iterator[Library]:
    """A worker whose model waits for nobody, and a document that it took."""
    named = {"embedding_provider": "openai", "embedding_base_url": server.url, "embedding_model": "small"}
    embedder = OpenAIEmbedder(base_url=server.url, api_key=None, model="small", sleep=lambda _: None)
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder, **named) as library:
        library.take("first.md", "The first document is taken.")
        yield library
        embedder.close()


def refusing(server: Server, word: str) -> None:
    def before(request: dict[str, Any], _number: int) -> Answer | None:
        return error(400, RULE) if any(word in text for text in request["input"]) else None

    server.before = before


def asked(server: Server, word: str) -> int:
    return json.dumps(server.requests).count(word)


def gaps(found: Library) -> list[tuple[str, str]]:
    query = "SELECT reason_code, reason FROM docwell.without_vector"
    return found.connection.execute(query).fetchall()


def test_a_passage_that_the_model_refuses_is_found_by_its_words_and_asked_for_again_after_a_day(
    found: Library, server: Server, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(server, "zwielicht")
    text = f"# Good\n\n{LONG}\n\n# Bad\n\nHere zwielicht stands.\n\n# Better\n\n{LONG.replace('part', 'piece')}\n"
    document = found.take("a.md", text)
    assert found.standing(document) == ("indexed", True, 1, 1, None)
    assert found.one("SELECT count(*) FROM docwell.chunk_terms") == found.one("SELECT count(*) FROM docwell.vector_1") + 1
    ((code, reason),) = gaps(found)
    assert code == "refused"
    assert RULE in reason

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    for command in (("documents", "show", "a.md"), ("status",), ("why", "a.md")):
        said = CliRunner().invoke(make_app(), command).output
        assert "refused" in said, command
        assert RULE in said, command

    before = asked(server, "zwielicht")
    found.take("a.md", text + "\n# Worst\n\nThe end is another one now.\n")
    assert found.standing(document)[:3] == ("indexed", True, 2)
    assert asked(server, "zwielicht") == before

    keeper = VectorKeeper(found.tools.settings)
    keeper.tick(found.tools.pool)
    server.before = lambda _request, _number: None
    found.fill()
    assert len(gaps(found)) == 1, "a day has not gone by"
    found.connection.execute("UPDATE docwell.without_vector SET noted_at = now() - make_interval(secs => %s)", (REFUSED_SECONDS,))
    VectorKeeper(found.tools.settings).tick(found.tools.pool)
    found.fill()
    assert gaps(found) == []
    assert any("zwielicht" in passage for passage in found.searched())


@pytest.mark.parametrize("status", [400, 401, 402, 404, 422, 429, 503])
def test_what_keeps_every_text_from_being_embedded_keeps_the_job_waiting_and_is_no_gap(
    found: Library, server: Server, status: int
) -> None:
    server.before = lambda _request, _number: error(status, "no model, no money or no time")
    document = found.ask("a.md", "The second document waits.")
    with pytest.raises((ConfigurationError, TransientError)):
        found.work()
    assert gaps(found) == []
    assert found.standing(document)[1] is False


def test_when_nothing_of_several_documents_is_taken_it_is_the_model_and_not_they(found: Library, server: Server) -> None:
    refusing(server, "Gibberish")
    for name in ("a.md", "b.md", "c.md"):
        found.ask(name, f"Gibberish of {name}")

    def run() -> list[JobReport | Exception]:
        claimed = jobs.claim(found.connection, worker="test", lease_seconds=60, limit=16)
        ended = list(run_jobs(claimed, found.tools, Pace(), enough=lambda: False))
        for one in ended:
            if isinstance(one.outcome, DocwellError):
                with found.connection.transaction():
                    jobs.postpone(found.connection, one.job, code="x", error="x", delay_seconds=0)
        return [one.outcome for one in ended]

    outcomes = run()
    assert {getattr(one, "code", None) for one in outcomes} == {"embedding_refuses_documents"}
    assert all(isinstance(one, TransientError) for one in outcomes)
    assert gaps(found) == []
    found.ask("good.md", "A document that it takes.")
    assert [getattr(one, "result", None) for one in run()] == ["indexed"] * 4
    assert len(gaps(found)) == 3
