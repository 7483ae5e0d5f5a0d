"""MCP servers come and go behind one address, and so does the database; whoever asks notices a retry at most."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from infra.local.postgres import EmbeddedPostgres
from query_server.http import make_app
from query_server.retrieve.encode import Encoder
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.config import Settings
from shared.database import open_pool
from tests.asking import DIMENSION, MODEL, WordEmbedder, add
from tests.conftest import Database, passable_folder
from tests.corpus import open_corpus, text_chunk
from tests.faults.relay import relay
from tests.listening import listening
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("MCP_KILLS", "10"))
CLIENTS = 4
RETRY_SECONDS = 0.5
SEARCH = ("search_documents", {"query": "refunds", "mode": "keyword"})


def _until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.02)


def _call(address: str) -> dict[str, Any]:
    """A search over a connection of its own."""
    name, arguments = SEARCH
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", "/mcp", body.encode(), headers | {"MCP-Protocol-Version": "2025-11-25"})
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, raw[:300]
    result: dict[str, Any] = json.loads(raw)["result"]
    return result


def _paths(result: dict[str, Any]) -> list[str]:
    assert not result["isError"], result["content"]
    return [passage["path"] for passage in result["structuredContent"]["results"]]


@dataclass(kw_only=True)
class Server:
    """`docwell mcp --transport http` on a port that stays its own."""

    url: str
    home: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
        settings = {
            "DOCWELL_HOME": str(self.home),
            "DOCWELL_DATABASE_URL": self.url,
            "DOCWELL_QUERY_DATABASE_URL": self.url,
            "DOCWELL_REDIS_URL": "redis://127.0.0.1:9/0",
            "DOCWELL_EMBEDDING_PROVIDER": "openai",
            "DOCWELL_EMBEDDING_BASE_URL": "http://127.0.0.1:9/v1",
            "DOCWELL_EMBEDDING_API_KEY": "none",
            "DOCWELL_EMBEDDING_MODEL": "none",
            "DOCWELL_EMBEDDING_DIMENSION": "64",
            "DOCWELL_MCP_PORT": str(self.port),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.cli", "mcp", "--transport", "http"],
            env=clean | settings,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _until(self._answers, "a server")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the server ended"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)


@contextmanager
def _servers(url: str, number: int) -> Iterator[list[Server]]:
    with passable_folder() as home, ExitStack() as ends:
        made = [Server(url=url, home=home) for _ in range(number)]
        for one in made:
            ends.callback(one.kill)
            one.start()
        yield made


@pytest.fixture
def indexed(database: Database) -> Database:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        add(corpus, "billing.md", text_chunk("Refunds are paid within five days."))
    return database


@dataclass(kw_only=True)
class Clients:
    """Who asks without a pause, and again once when a call broke off."""

    address: str
    stopped: threading.Event = field(default_factory=threading.Event)
    cleared: threading.Event = field(default_factory=threading.Event)
    answered: int = 0
    retried: int = 0
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask_on(self) -> None:
        while not self.stopped.is_set():
            try:
                self._ask_once()
            except (OSError, http.client.HTTPException):
                with self._lock:
                    self.retried += 1
                # A process that is being killed takes connections until the system has cleared it away.
                self.stopped.wait(RETRY_SECONDS)
                self.cleared.wait(60)
                try:
                    self._ask_once()
                except Exception as error:
                    self.failures.append(repr(error))
            except Exception as error:
                self.failures.append(repr(error))

    def _ask_once(self) -> None:
        assert _paths(_call(self.address)) == ["billing.md"]
        with self._lock:
            self.answered += 1


@pytest.mark.timeout(600)  # it starts a dozen processes, one after the other
def test_servers_that_are_killed_again_and_again_cost_a_client_one_retry_at_most(indexed: Database) -> None:
    with _servers(indexed.reader_url, 2) as servers, relay([server.port for server in servers]) as address:
        clients = Clients(address=address)
        clients.cleared.set()
        threads = [threading.Thread(target=clients.ask_on) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            for number in range(KILLS):
                before = clients.answered
                # Whoever was hit by the kill before has had the retry: a second kill would be one too many.
                _until(lambda: clients.answered >= before + 4 * CLIENTS or bool(clients.failures), "answers")  # noqa: B023
                server = servers[number % len(servers)]
                clients.cleared.clear()
                server.kill()
                clients.cleared.set()
                server.start()
        finally:
            clients.stopped.set()
            clients.cleared.set()
            for thread in threads:
                thread.join(60)
    print(f"{KILLS} kills, {clients.answered} answers, {clients.retried} after a retry")
    assert clients.failures == []
    assert clients.answered > KILLS * CLIENTS
    assert 0 < clients.retried <= KILLS * CLIENTS


def test_a_server_whose_database_was_away_recovers_by_itself(indexed: Database, postgres: EmbeddedPostgres) -> None:
    def administer(statement: sql.Composed) -> None:
        with psycopg.connect(postgres.superuser_conninfo, dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def admit(allowed: bool) -> None:
        statement = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        administer(statement.format(sql.Identifier(indexed.name), sql.Literal(allowed)))

    def is_away() -> bool:
        # Again and again: one that was let in just before may be seen among the others only now.
        terminate = sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}")
        administer(terminate.format(sql.Literal(indexed.name)))
        return code(_call(address)) == "database_unavailable"

    def code(result: dict[str, Any]) -> str:
        return str(json.loads(result["content"][0]["text"])["error"]["code"]) if result["isError"] else "ok"

    snapshots = Snapshots(lambda: open_pool(indexed.reader_url, name="away", as_reader=True, check=False, wait_seconds=1))
    service = SearchService(snapshots, Encoder(WordEmbedder, patient=True), rescan_seconds=lambda: 300.0)
    with closing(service), listening(make_app(service, Settings())) as url:
        address = url.removeprefix("http://")
        _until(lambda: code(_call(address)) == "ok", "an answer", 30)
        try:
            admit(False)
            _until(is_away, "the error", 30)
            assert httpx.get(f"{url}/readyz").status_code == 503
            assert httpx.get(f"{url}/healthz").status_code == 200
        finally:
            admit(True)
        _until(lambda: code(_call(address)) == "ok", "the recovery", 30)
        assert httpx.get(f"{url}/readyz").status_code == 200
