"""`docwell reindex` and `docwell reprocess` as a person types them, and passages that a model refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from ingest_worker.parse.cage import ParserCage
from shared.config import Settings
from shared.embedding.open import open_embedder
from tests.conftest import Database
from tests.v1_embeddings import Server, error
from tests.versions import Library, open_library

Run = Callable[..., Result]


@pytest.fixture
def found(database: Database, tmp_path: Path, cage: ParserCage, server: Server) -> Iterator[Library]:
    """Three documents, and a worker whose settings name the model `small`."""
    named = {"embedding_provider": "openai", "embedding_base_url": server.url, "embedding_model": "small"}
    embedder = open_embedder(Settings(**named))
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder, **named) as library:
        for name in ("a", "b", "c"):
            library.ask(f"{name}.txt", f"the text of {name} tells of {name * 7}")
        library.work()
        yield library


@pytest.fixture
def run(database: Database, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in a folder whose docwell.toml says the same as the worker's settings, with a price."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    (tmp_path / "docwell.toml").write_text(
        f'embedding_provider = "openai"\nembedding_base_url = "{server.url}"\nembedding_model = "small"\n'
        "[prices.large]\ninput = 130000\n"
    )
    return lambda *arguments: CliRunner().invoke(make_app(), list(map(str, arguments)))


def said(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def reindex(run: Run) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(said(run("reindex", "status", "--json")))["reindex"]
    return held


def test_a_model_is_changed_by_the_commands_that_the_documents_name(found: Library, run: Run) -> None:
    assert run("reindex").exit_code == 2
    assert said(run("reindex", "status")) == "No reindex is open.\n"
    assert run("reindex", "switch").exit_code == 1
    tokens = found.one("SELECT sum(tokens) FROM docwell.chunk")
    estimate = json.loads(said(run("reindex", "--model", "large", "--estimate", "--json")))
    assert (estimate["passages"], estimate["tokens"], float(estimate["money"])) == (3, tokens, tokens * 0.13)
    assert f"3 passages, about {tokens} tokens of large, {tokens * 0.13:.2f} by the prices" in said(
        run("reindex", "--model", "large", "--estimate")
    )
    assert reindex(run) is None
    begun = json.loads(said(run("reindex", "--model", "large", "--json")))["reindex"]
    assert (begun["state"], begun["lacking"], begun["active"]) == ("filling", 3, "small")
    assert "Paused" in said(run("reindex", "pause"))
    found.fill(rest_seconds=0.0)
    assert (reindex(run)["state"], reindex(run)["lacking"]) == ("paused", 3)
    refused = run("reindex", "switch")
    assert refused.exit_code == 1
    said(run("reindex", "resume"))
    found.fill(rest_seconds=0.0)
    assert "3 of 3 passages" in said(run("reindex", "status"))
    assert "`docwell reindex back` returns to it" in said(run("reindex", "switch"))
    assert (reindex(run)["state"], reindex(run)["active"]) == ("kept", "large")
    assert run("reindex", "switch").exit_code == 1  # that is where we are
    assert said(run("reindex", "back")) == "Searches use small again.\n"
    assert "large is ready, 3 of 3 passages" in said(run("status"))
    assert run("reindex", "drop").exit_code != 0  # it asks, and nobody answers
    assert "The vectors of large go" in said(run("reindex", "drop", "--yes"))
    assert reindex(run) is None


def test_a_passage_that_the_new_model_refuses_is_told_and_holds_the_switch_only_until_that_is_accepted(
    found: Library, run: Run, server: Server
) -> None:
    rest = "\n\n".join(f"## Part {part}\n\n" + "Words of this part. " * 80 for part in range(4))
    found.take("b.txt", f"It tells of bbbbbbb. {'More of it. ' * 100}\n\n{rest}")
    passages = found.one("SELECT count(*) FROM docwell.chunk_terms")
    refuse = {"bbbbbbb"}
    server.before = lambda request, _: (
        error(400, "this text is against the rules")
        if request["model"] == "large" and any(word in text for word in refuse for text in request["input"])
        else None
    )
    said(run("reindex", "--model", "large"))
    found.fill(rest_seconds=0.0)
    status = reindex(run)
    assert (status["state"], status["lacking"], status["refused"], status["refused_documents"]) == ("ready", 0, 1, ["b.txt"])
    assert "1 passages, of b.txt" in said(run("reindex", "status"))
    held = run("reindex", "switch")
    assert held.exit_code == 1
    assert "--accept-missing" in str(held.exception) + held.output
    said(run("reindex", "switch", "--accept-missing"))
    shown = json.loads(said(run("documents", "show", "b.txt", "--json")))["document"]["without_vector"]
    assert [(one["code"], one["passages"]) for one in shown] == [("refused", 1)]
    assert "against the rules" in shown[0]["reason"]
    assert found.one("SELECT count(*) FROM docwell.chunk_terms") == passages  # it is found by its words

    # It stands in the new version too, which is published all the same.
    text = (found.root / "b.txt").read_text()
    found.take("b.txt", text + "\n\nThe end is another one now.")
    assert found.one("SELECT state || served_version FROM docwell.document WHERE path = 'b.txt'") == "indexed3"

    refuse.clear()
    assert "1 passages" in said(run("reindex", "retry"))
    found.fill(rest_seconds=0.0)
    assert json.loads(said(run("documents", "show", "b.txt", "--json")))["document"]["without_vector"] == []


def test_a_server_that_refuses_every_text_is_a_trouble_of_its_own_and_not_of_the_passages(
    found: Library, run: Run, server: Server
) -> None:
    said(run("reindex", "--model", "large"))
    server.before = lambda request, _: error(400, "the model is broken") if request["model"] == "large" else None
    found.fill(rest_seconds=0.0)
    status = reindex(run)
    assert (status["lacking"], status["refused"]) == (3, 0)
    assert "the model is broken" in status["problem"]


def test_documents_of_an_older_parser_are_planned_and_read_again_when_that_is_asked_for(found: Library, run: Run) -> None:
    assert "Every document was read by" in said(run("reprocess"))
    found.connection.execute(
        "UPDATE docwell.version v SET fingerprint = 'parse=0;' || fingerprint FROM docwell.document d"
        " WHERE d.document_id = v.document_id AND d.path <> 'c.txt'"
    )
    plan = json.loads(said(run("reprocess", "--plan", "--json")))
    assert (plan["documents"], plan["chunks"], plan["embedding_model"]) == (2, 2, "small")
    assert "at a price that is not set" in said(run("reprocess", "--plan"))
    assert "2 of an older parser or prompt" in said(run("status"))
    assert found.work() == []  # a plan asks for nothing
    assert run("reprocess").exit_code != 0  # it asks, and nobody answers
    assert run("reprocess", "--source", "elsewhere", "--yes").exit_code == 1
    assert json.loads(said(run("reprocess", "--yes", "--json"))) == {"queued": 2}
    assert found.work() == ["indexed", "indexed"]
    assert "Every document was read by" in said(run("reprocess", "--plan"))
