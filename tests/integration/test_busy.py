"""More is asked than can be answered: whoever cannot wait is told so, and a database that is there is not called away."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client

from query_server.access import LOCAL
from query_server.admission import Busy, Turns
from query_server.http import make_app
from query_server.retrieve.encode import Encoder
from query_server.server import DocwellServer
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.config import Settings
from shared.database import Pool, open_pool
from shared.errors import ServiceUnavailable
from tests.asking import NOW, WordEmbedder
from tests.conftest import Database
from tests.listening import listening

CONNECTIONS = 2
WAITING = 2


def _pool(url: str, seconds: float) -> Pool:
    return open_pool(url, name="busy", size=CONNECTIONS, max_waiting=WAITING, as_reader=True, wait_seconds=seconds, check=False)


def _warm(url: str, seconds: float) -> Pool:
    """Its connections are there, however slow the machine: only the wait for one in use can be in vain."""
    pool = _pool(url, seconds)
    with contextlib.ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(pool.connection(timeout=30))
    return pool


@contextlib.contextmanager
def _snapshots(pool: Pool) -> Iterator[Snapshots]:
    snapshots = Snapshots(lambda: pool)
    try:
        yield snapshots
    finally:
        snapshots.close()


@contextlib.contextmanager
def _all_taken(snapshots: Snapshots) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(snapshots.open(LOCAL))
        yield


def _service(snapshots: Snapshots) -> SearchService:
    return SearchService(snapshots, Encoder(WordEmbedder, patient=True), rescan_seconds=lambda: 300.0, clock=lambda: NOW)


def _until(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_whoever_comes_when_the_queue_is_full_is_sent_away_at_once_and_those_in_it_are_served(database: Database) -> None:
    pool = _pool(database.reader_url, 30)

    def ask() -> int:
        with snapshots.open(LOCAL) as connection:
            row = connection.execute("SELECT 1").fetchone()
            assert row is not None
            return int(row[0])

    with _snapshots(pool) as snapshots, ThreadPoolExecutor(WAITING) as threads:
        with _all_taken(snapshots):
            queued: list[Future[int]] = [threads.submit(ask) for _ in range(WAITING)]
            _until(lambda: pool.get_stats()["requests_waiting"] == WAITING)
            began = time.monotonic()
            for _ in range(5):
                with pytest.raises(Busy) as error:
                    ask()
                assert (error.value.code, error.value.retry_after) == ("busy", 1.0)
                assert "PostgreSQL" not in str(error.value)
            assert time.monotonic() - began < 5
        assert [one.result(10) for one in queued] == [1] * WAITING
        assert ask() == 1


def test_who_waits_in_vain_for_a_connection_is_told_busy_and_not_that_the_database_is_away(database: Database) -> None:
    with _snapshots(_warm(database.reader_url, 0.2)) as snapshots:
        with _all_taken(snapshots), pytest.raises(Busy), snapshots.open(LOCAL):
            pass
        with snapshots.open(LOCAL) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_once_a_wait_was_in_vain_a_database_that_is_away_is_not_called_busy_however_many_ask() -> None:
    def ask() -> str:
        with pytest.raises(ServiceUnavailable) as error, snapshots.open(LOCAL):
            pass
        return error.value.code

    with _snapshots(_pool("postgresql://127.0.0.1:9/none", 0.3)) as snapshots, ThreadPoolExecutor(12) as threads:
        assert ask() == "database_unavailable"
        assert {one.result(10) for one in [threads.submit(ask) for _ in range(12)]} == {"database_unavailable"}


def test_many_first_questions_at_once_share_one_pool(database: Database) -> None:
    opened = []

    def open_one() -> Pool:
        opened.append(1)
        time.sleep(0.02)  # long enough for the others to come by
        return _pool(database.reader_url, 10)

    snapshots = Snapshots(open_one)

    def ask() -> None:
        with snapshots.open(LOCAL):
            pass

    try:
        with ThreadPoolExecutor(WAITING) as threads:
            for one in [threads.submit(ask) for _ in range(WAITING)]:
                one.result(10)
    finally:
        snapshots.close()
    assert len(opened) == 1


def test_the_tools_say_busy_and_that_a_retry_helps(database: Database) -> None:
    async def ask() -> Any:
        async with Client(DocwellServer(service)) as client:
            return await client.call_tool("index_status", {})

    with _snapshots(_warm(database.reader_url, 0.2)) as snapshots, contextlib.closing(_service(snapshots)) as service:
        with _all_taken(snapshots):
            refused = anyio.run(ask)
        answered = anyio.run(ask)
    error = json.loads(refused.content[0].text)["error"]
    assert refused.is_error
    assert (error["code"], error["retryable"]) == ("busy", True)
    assert not answered.is_error


def test_a_busy_server_stays_ready(database: Database) -> None:
    with (
        _snapshots(_warm(database.reader_url, 0.2)) as snapshots,
        contextlib.closing(_service(snapshots)) as service,
        listening(make_app(service, Settings())) as url,
        _all_taken(snapshots),
    ):
        ready = httpx.get(f"{url}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True})


def test_calls_take_turns_in_order_and_what_is_beyond_the_queue_is_refused() -> None:
    done: list[int] = []

    async def main() -> None:
        turns = Turns(at_once=1, waiting=2, seconds=30)
        first_may_end = anyio.Event()

        async def call(number: int) -> None:
            async with turns.take():
                if number == 0:
                    await first_may_end.wait()
                done.append(number)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for number in range(3):
                    group.start_soon(call, number)
                    await anyio.wait_all_tasks_blocked()
                with pytest.raises(Busy):
                    await call(3)
                first_may_end.set()
            await call(4)

    anyio.run(main)
    assert done == [0, 1, 2, 4]


def test_a_turn_that_does_not_come_in_time_is_given_up_and_the_place_is_not_lost() -> None:
    async def main() -> None:
        turns = Turns(at_once=1, waiting=5, seconds=0.05)
        with anyio.fail_after(10):
            async with turns.take():
                with pytest.raises(Busy):
                    async with turns.take():
                        pass
            async with turns.take():
                pass

    anyio.run(main)
