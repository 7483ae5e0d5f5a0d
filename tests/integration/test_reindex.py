"""Another embedding model while everything runs: filled, switched to, back, dropped; over the wire to a server on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from ingest_worker.catalogue.asking import Conflict
from ingest_worker.indexing import remove_retired
from ingest_worker.parse.cage import ParserCage
from ingest_worker.reindexing import control
from ingest_worker.reindexing.fill import fill_some
from ingest_worker.spaces import Models
from query_server.assembly import make_service
from query_server.service import SearchService
from shared.config import Settings
from shared.embedding.endpoint import Endpoint
from shared.embedding.open import open_embedder
from shared.embedding.protocol import Role
from shared.errors import ConfigurationError
from shared.prices import Price
from tests.conftest import Database
from tests.v1_embeddings import Server, error
from tests.versions import Library, open_library


def texts(count: int) -> list[str]:
    return [f"passage number {number} tells of subject {number * 7919}" for number in range(count)]


@contextmanager
def library(database: Database, folder: Path, cage: ParserCage, server: Server, **more: Any) -> Iterator[Library]:
    """A folder, and a worker whose settings name the model `small`."""
    named = {"embedding_provider": "openai", "embedding_base_url": server.url, "embedding_model": "small", **more}
    embedder = open_embedder(Settings(**named))
    with open_library(database.url, folder, cage, embedder=lambda: embedder, **named) as found:
        yield found


@contextmanager
def searching(database: Database, settings: Settings) -> Iterator[SearchService]:
    url = SecretStr(database.reader_url)
    service = make_service(lambda: settings.model_copy(update={"query_database_url": url}), patient=False)
    try:
        yield service
    finally:
        service.close()


def new(server: Server, model: str = "large", **facts: Any) -> Endpoint:
    return Endpoint(provider="openai", model=model, base_url=server.url, **facts)


def similarities(service: SearchService, query: str) -> list[float]:
    asked = service.search(query, mode="semantic", limit=50, max_tokens=50_000, explain=True)
    return [result["explanation"]["similarity"] for result in asked["results"]]


def until_ready(ask: Callable[[], Any]) -> Any:
    """The first answer that has vectors: a process that has just begun answers by words meanwhile."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
    raise AssertionError("no answer")


def test_readers_search_without_pause_while_the_model_is_changed_and_changed_back(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    wanted = texts(12)
    with library(database, tmp_path / "inbox", cage, server) as found, searching(database, found.tools.settings) as service:
        for number, text in enumerate(wanted):
            found.ask(f"{number}.txt", text)
        found.work()
        ids = found.connection.execute("SELECT audience_id, chunk_id FROM docwell.chunk_terms ORDER BY 2").fetchall()
        until_ready(lambda: similarities(service, wanted[0]))
        stop, troubles, answers = threading.Event(), [], [0]

        def read(first: int) -> None:
            number = first
            while not stop.is_set():
                number = (number + 1) % len(wanted)
                try:
                    near = similarities(service, wanted[number])
                    # The passage itself is as near as can be, if and only if both vectors are of one model.
                    if len(near) < len(wanted) or near[0] < 0.999:
                        troubles.append((number, near))
                    answers[0] += 1
                except Exception as problem:
                    troubles.append(problem)

        readers = [threading.Thread(target=read, args=(first,)) for first in (0, 5)]
        for reader in readers:
            reader.start()
        try:
            begun = control.start(found.connection, new(server, dimension=16), found.tools.settings)
            assert (begun.state, begun.lacking, begun.dimension) == ("filling", 12, 16)
            with pytest.raises(Conflict, match="12 of 12 passages have no vector of large yet"):
                control.switch(found.connection)
            found.fill()
            found.take("new.txt", "something new comes meanwhile")
            for back in (False, True, False):
                seen = answers[0]
                control.switch(found.connection, back=back)
                found.take(f"{back}.txt", f"something newer {back} {seen}")
                until_ready(lambda seen=seen: answers[0] > seen + 6)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert troubles == []
        rest = control.status(found.connection, found.tools.settings)
        assert rest is not None
        assert (rest.state, rest.active, rest.model, rest.lacking) == ("kept", "large", "small", 0)
        kept = found.connection.execute("SELECT audience_id, chunk_id FROM docwell.chunk_terms ORDER BY 2").fetchall()
        assert set(ids) <= set(kept)  # chunks, terms and ids stay


def test_new_documents_go_to_both_spaces_and_a_second_model_that_fails_keeps_none_from_being_published(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "the first")
        control.start(found.connection, new(server), found.tools.settings)
        found.take("b.txt", "the second")
        status = control.status(found.connection, found.tools.settings)
        assert status is not None
        assert (status.passages, status.lacking) == (2, 1)
        server.before = lambda request, _number: error(401, "no such key") if request["model"] == "large" else None
        found.take("c.txt", "the third")
        assert found.searched() == {"the first", "the second", "the third"}
        found.fill()
        status = control.status(found.connection, found.tools.settings)
        assert status is not None
        assert status.lacking == 2
        assert status.problem is not None
        assert "refused the key" in status.problem


def test_filling_goes_on_where_it_was_interrupted_and_embeds_nothing_twice(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    wanted = texts(80)
    with library(database, tmp_path / "inbox", cage, server) as found:
        for number, text in enumerate(wanted):
            found.ask(f"{number}.txt", text)
        found.work()
        control.start(found.connection, new(server), found.tools.settings)
        tools = found.tools
        assert fill_some(tools.pool, tools.models, tools.embedder, tools.settings, tools.work)
        control.pause(found.connection, paused=True)
        assert not fill_some(tools.pool, tools.models, tools.embedder, tools.settings, tools.work)
        paused = control.status(found.connection, tools.settings)
        assert paused is not None
        assert (paused.state, paused.lacking) == ("paused", 80 - 64)
        control.pause(found.connection, paused=False)
        found.fill(Models())  # another process
        ready = control.status(found.connection, tools.settings)
        assert ready is not None
        assert (ready.state, ready.lacking) == ("ready", 0)
        asked = [text for request in server.requests if request["model"] == "large" for text in request["input"]]
        assert sorted(text for text in asked if text.startswith("passage number")) == sorted(wanted)


def test_after_a_switch_processes_follow_the_index_though_their_settings_name_the_old_model(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "the first")
        control.start(found.connection, new(server), found.tools.settings)
        found.fill()
        control.switch(found.connection)
        control.drop(found.connection)
        assert remove_retired(found.connection) == 0  # a search that began before may still read it
        assert remove_retired(found.connection, after_seconds=0) == 1
    server.before = lambda request, _number: error(404, "no such model") if request["model"] == "small" else None
    with library(database, tmp_path / "inbox", cage, server) as found, searching(database, found.tools.settings) as service:
        found.take("b.txt", "the second")
        assert found.one("SELECT count(*) FROM docwell.document WHERE state = 'indexed'") == 2
        assert until_ready(lambda: similarities(service, "the second"))[0] > 0.999
    with library(database, tmp_path / "inbox", cage, server, embedding_model="large") as found:
        found.take("c.txt", "the third")  # the settings name the new model by now
        assert found.one("SELECT count(*) FROM docwell.document WHERE state = 'indexed'") == 3
        assert control.status(found.connection, found.tools.settings) is None
        server.before = lambda _request, _number: None
        control.start(found.connection, new(server, "small"), found.tools.settings)  # and it may come back


def test_a_model_that_nobody_changed_to_is_refused_with_the_command_that_does(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "the first")
    with library(database, tmp_path / "inbox", cage, server, embedding_model="large") as found:
        found.ask("b.txt", "the second")
        with pytest.raises(ConfigurationError, match="docwell reindex --provider openai --model large") as refused:
            found.work()
        assert refused.value.code == "embedding_mismatch"


def test_a_renamed_model_is_said_to_be_the_same_and_adopted_without_embedding_anything(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "the first")
    with library(database, tmp_path / "inbox", cage, server, embedding_model="small-2026") as found:
        found.ask("b.txt", "the second")
        with pytest.raises(ConfigurationError, match="docwell reindex adopt"):
            found.work()
        assert control.adopt(found.connection, found.tools.settings) == "small-2026"
        found.take("c.txt", "the third")
        assert "the third" in found.searched()
        with searching(database, found.tools.settings) as service:
            assert until_ready(lambda: similarities(service, "the first"))[0] > 0.999
    with (
        library(database, tmp_path / "inbox", cage, server, embedding_model="large") as found,
        pytest.raises(Conflict, match="another model"),
    ):
        control.adopt(found.connection, found.tools.settings)


def test_a_model_that_was_swapped_under_its_name_is_refused_by_both_sides_and_cured_by_filling_anew(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library(database, tmp_path / "inbox", cage, server, embedding_model="large") as found:
        found.take("a.txt", "the first")
    monkeypatch.setattr("tests.v1_embeddings.numbers", lambda text, dimension: [float(len(text)), *([1.0] * (dimension - 1))])
    with (
        library(database, tmp_path / "inbox", cage, server, embedding_model="large") as found,
        searching(database, found.tools.settings) as service,
    ):
        found.ask("b.txt", "the second")
        job = found.claim()
        assert job is not None
        with pytest.raises(ConfigurationError, match="docwell reindex --model large --again") as refused:
            found.tools.models.targets(found.tools.pool, found.tools.embedder, found.tools.settings)
        assert refused.value.code == "embedding_swapped"
        with pytest.raises(ConfigurationError, match="other vectors"):
            until_ready(lambda: similarities(service, "the first"))
        with pytest.raises(Conflict, match="--again"):
            control.start(found.connection, new(server), found.tools.settings)
        control.start(found.connection, new(server, again="2026-11-30"), found.tools.settings)
        found.fill()
        control.switch(found.connection)
        found.take("c.txt", "the third")
        assert until_ready(lambda: similarities(service, "the third"))[0] > 0.999


def test_an_estimate_asks_nobody_and_knows_the_money_where_a_price_is_set(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "one passage of a few words")
        asked = len(server.requests)
        tokens = found.one("SELECT sum(tokens) FROM docwell.chunk")
        priced = found.tools.settings.model_copy(update={"prices": {"large": Price(input=Decimal("0.13"))}})
        estimate = control.estimate(found.connection, new(server), priced)
        assert (estimate.passages, estimate.tokens) == (1, tokens)
        assert estimate.money == tokens * Decimal("0.13") / 1_000_000
        assert control.estimate(found.connection, new(server, "unpriced"), priced).money is None
        assert len(server.requests) == asked


def test_what_filling_costs_is_in_the_ledger(database: Database, tmp_path: Path, cage: ParserCage, server: Server) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "one passage of a few words")
        control.start(found.connection, new(server), found.tools.settings)
        found.fill()
        rows = found.connection.execute("SELECT model, calls FROM docwell.ledger WHERE kind = 'embedding' ORDER BY 1").fetchall()
        assert [model for model, _ in rows] == ["large", "small"]


def test_an_index_of_an_older_docwell_gets_its_probes_and_is_remembered(
    database: Database, tmp_path: Path, cage: ParserCage, server: Server
) -> None:
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("a.txt", "the first")
        found.connection.execute("UPDATE docwell.embedding_space SET endpoint = NULL, probes = '[]', revision = ''")
    with library(database, tmp_path / "inbox", cage, server) as found:
        found.take("b.txt", "the second")
        (row,) = found.connection.execute(
            "SELECT endpoint->>'model', jsonb_array_length(probes) FROM docwell.embedding_space"
        ).fetchall()
        assert row == ("small", 4)
        assert found.tools.embedder().embed(["a"], Role.QUERY).shape == (1, 8)
