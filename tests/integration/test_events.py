"""The inbox of webhook events: nothing that was taken in is lost, nothing is stored twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from ingest_worker.catalogue import events
from ingest_worker.catalogue.sources import ensure_source
from tests.conftest import Database


@pytest.fixture
def connection(database: Database) -> Iterator[Connection[Any]]:
    with psycopg.connect(database.url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def source_id(connection: Connection[Any]) -> int:
    return ensure_source(connection, "wiki", kind="confluence", namespace="wiki").source_id


def _store(connection: Connection[Any], source_id: int, body: bytes, delivery_id: str | None = None) -> events.Stored:
    return events.store(connection, source_id=source_id, kind="page_updated", delivery_id=delivery_id, body=body)


def _hurry(connection: Connection[Any]) -> None:
    connection.execute("UPDATE docwell.event SET next_at = clock_timestamp()")


def test_an_event_waits_until_it_is_finished_and_comes_with_all_that_was_sent(
    connection: Connection[Any], source_id: int
) -> None:
    stored = _store(connection, source_id, b"\x00{}\xff")
    [event] = events.waiting(connection, source_id)
    assert (event.event_id, event.kind, event.body) == (stored.event_id, "page_updated", b"\x00{}\xff")
    assert events.waiting(connection, source_id) == []
    events.finish(connection, [event.event_id])
    events.give_back(connection, source_id)
    assert events.waiting(connection, source_id) == []


def test_the_oldest_events_come_first(connection: Connection[Any], source_id: int) -> None:
    ids = [_store(connection, source_id, b"%d" % number).event_id for number in range(5)]
    assert [event.event_id for event in events.waiting(connection, source_id, limit=3)] == ids[:3]
    assert [event.event_id for event in events.waiting(connection, source_id, limit=3)] == ids[3:]


def test_a_delivery_that_is_known_is_a_duplicate_even_after_it_was_handled(connection: Connection[Any], source_id: int) -> None:
    first = _store(connection, source_id, b"a", "d1")
    events.finish(connection, [event.event_id for event in events.waiting(connection, source_id)])
    again = _store(connection, source_id, b"b", "d1")
    assert (again.duplicate, again.event_id) == (True, first.event_id)


def test_an_equal_body_is_a_duplicate_only_while_the_first_one_waits(connection: Connection[Any], source_id: int) -> None:
    first = _store(connection, source_id, b"same")
    assert _store(connection, source_id, b"same", "d2") == events.Stored(event_id=first.event_id, duplicate=True)
    events.waiting(connection, source_id)
    # The first is being looked at: whoever looks may have asked the source before this change was made.
    assert not _store(connection, source_id, b"same").duplicate


def test_events_of_another_kind_or_source_are_no_duplicates(connection: Connection[Any], source_id: int) -> None:
    other = ensure_source(connection, "other", kind="confluence", namespace="wiki").source_id
    _store(connection, source_id, b"same", "d1")
    assert not _store(connection, other, b"same", "d1").duplicate
    assert not events.store(connection, source_id=source_id, kind="page_moved", delivery_id=None, body=b"same").duplicate


def test_events_of_one_who_died_wait_again(connection: Connection[Any], source_id: int) -> None:
    first = _store(connection, source_id, b"a")
    events.waiting(connection, source_id)
    events.give_back(connection, source_id)
    assert [event.event_id for event in events.waiting(connection, source_id)] == [first.event_id]


def test_of_equal_events_that_come_back_one_waits(connection: Connection[Any], source_id: int) -> None:
    for _ in range(3):
        _store(connection, source_id, b"same")
        events.waiting(connection, source_id)
    _store(connection, source_id, b"same")
    events.give_back(connection, source_id)
    assert len(events.waiting(connection, source_id)) == 1


def test_a_failing_event_waits_longer_each_time_and_is_dead_in_the_end(connection: Connection[Any], source_id: int) -> None:
    stored = _store(connection, source_id, b"bad")
    waits = []
    for attempt in range(1, 4):
        [event] = events.waiting(connection, source_id)
        dead = events.fail(connection, event.event_id, "cannot be read", most_attempts=3)
        assert dead is (attempt == 3)
        assert events.waiting(connection, source_id) == []
        row = connection.execute("SELECT extract(epoch FROM next_at - clock_timestamp())::float FROM docwell.event").fetchone()
        assert row is not None
        waits.append(row[0])
        _hurry(connection)
    assert 50 < waits[0] < 61 < 110 < waits[1] < 121
    counted = events.inbox(connection, source_id)
    assert (counted.waiting, counted.taken, counted.dead, counted.error) == (0, 0, 1, "cannot be read")
    assert stored.event_id == event.event_id


def test_a_failing_event_yields_to_an_equal_one_that_came_meanwhile(connection: Connection[Any], source_id: int) -> None:
    first = _store(connection, source_id, b"same")
    events.waiting(connection, source_id)
    newer = _store(connection, source_id, b"same")
    assert not events.fail(connection, first.event_id, "away")
    _hurry(connection)
    assert [event.event_id for event in events.waiting(connection, source_id)] == [newer.event_id]


def test_many_are_stored_by_one_statement_and_each_hears_of_its_own(connection: Connection[Any], source_id: int) -> None:
    known = _store(connection, source_id, b"waits")

    def event(body: bytes, delivery_id: str | None = None) -> events.Arrived:
        return events.Arrived(source_id=source_id, kind="page_updated", delivery_id=delivery_id, body=body)

    came = [event(b"a", "d1"), event(b"waits"), event(b"a", "d1"), event(b"b"), event(b"b"), event(b"waits", "d2")]
    found = events.store_all(connection, came)
    assert [one.duplicate for one in found] == [False, True, True, False, True, True]
    assert (found[1].event_id, found[2].event_id, found[4].event_id) == (known.event_id, found[0].event_id, found[3].event_id)
    assert {event.body for event in events.waiting(connection, source_id)} == {b"a", b"b", b"waits"}


def test_of_a_handled_event_no_body_is_kept_and_it_is_known_still(connection: Connection[Any], source_id: int) -> None:
    _store(connection, source_id, b'{"title": "private"}', "d1")
    events.finish(connection, [event.event_id for event in events.waiting(connection, source_id)])
    assert connection.execute("SELECT body, octet_length(body_sha256) FROM docwell.event").fetchall() == [(b"", 32)]
    assert _store(connection, source_id, b'{"title": "private"}', "d1").duplicate


def test_only_what_was_handled_long_ago_is_forgotten(connection: Connection[Any], source_id: int) -> None:
    old = _store(connection, source_id, b"old", "old")
    events.waiting(connection, source_id)
    events.finish(connection, [old.event_id])
    _store(connection, source_id, b"waits")
    connection.execute("UPDATE docwell.event SET received_at = now() - interval '8 days'")
    recent = _store(connection, source_id, b"recent", "recent")
    assert events.prune(connection) == 1
    assert events.inbox(connection, source_id).waiting == 2
    assert _store(connection, source_id, b"recent", "recent").event_id == recent.event_id
