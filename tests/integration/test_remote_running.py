"""Sources over the network within the watcher: threads, the lock, what others are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ingest_worker.sources.running import MODE, following
from ingest_worker.sources.sync import Opener
from shared.config import OtherSettings, Settings
from shared.database import Pool, open_pool
from tests.conftest import Database
from tests.example_source import open_source
from tests.folders import eventually
from tests.notes_server import TOKEN, Notes, serve_notes


@pytest.fixture
def notes() -> Iterator[Notes]:
    with serve_notes() as served:
        yield served


@pytest.fixture
def pool(database: Database) -> Iterator[Pool]:
    with open_pool(database.url, name="test-running", size=8) as opened:
        yield opened


def _follow(database: Database, notes: Notes, pool: Pool, opener: Opener = open_source, **more: Any) -> Any:
    table = {"name": "notes", "type": "notes", "url": notes.url, "token": TOKEN, "permissions": False} | more
    source = OtherSettings.model_validate(table)
    return following([source], Settings.model_validate({"database_url": database.url}), pool, lambda _: None, opener=opener)


def _one(pool: Pool, query: str) -> Any:
    with pool.connection() as connection:
        row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def test_a_source_is_followed_by_one_watcher_and_shows_that_it_is(database: Database, notes: Notes, pool: Pool) -> None:
    notes.write("a", "text")
    with _follow(database, notes, pool):
        eventually(lambda: _one(pool, "SELECT count(*) FROM docwell.document") == 1, within=20)
        eventually(lambda: _one(pool, "SELECT watch_mode FROM docwell.source WHERE watcher_seen IS NOT NULL") == MODE, within=20)
        opened: list[str] = []

        def second(*_: Any, **__: Any) -> Any:
            opened.append("second")
            raise AssertionError("two follow one source")

        with _follow(database, notes, pool, opener=second):
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            eventually(lambda: _one(pool, locks) == 1, within=20)
        assert opened == []
    assert _one(pool, "SELECT watch_mode FROM docwell.source") is None


def test_an_event_reaches_the_index_without_waiting_for_the_interval(database: Database, notes: Notes, pool: Pool) -> None:
    from ingest_worker.catalogue import events

    notes.write("a", "text")
    with _follow(database, notes, pool, sync_seconds=10_000):
        eventually(lambda: _one(pool, "SELECT newest_sweep FROM docwell.source") is not None, within=20)
        notes.write("a", "changed")
        with pool.connection() as connection:
            source_id = _one(pool, "SELECT source_id FROM docwell.source")
            events.store(connection, source_id=source_id, kind="", delivery_id=None, body=b"a")
        eventually(lambda: _one(pool, "SELECT state FROM docwell.event") == "handled", within=20)
        assert notes.asked["/notes/a/text"] == 2


def test_a_source_that_cannot_be_opened_does_not_end_the_watcher(database: Database, notes: Notes, pool: Pool) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("url")

    with _follow(database, notes, pool, opener=broken):
        eventually(lambda: _one(pool, "SELECT sweep_error FROM docwell.source") == "KeyError: 'url'", within=20)
