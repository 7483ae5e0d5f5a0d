"""Events of a source, and what the engine does when the source fails, throttles or is away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingest_worker.sources.inbox import MOST_NAMED
from tests.conftest import Database
from tests.notes_server import Notes, serve_notes
from tests.remotes import Followed, follow


@pytest.fixture
def notes() -> Iterator[Notes]:
    with serve_notes() as served:
        yield served


@pytest.fixture
def followed(database: Database, notes: Notes) -> Iterator[Followed]:
    with follow(database.url, notes) as opened:
        yield opened


def test_an_event_is_looked_at_without_waiting_for_the_next_question(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.notes.write("n001", "changed")
    followed.notes.delete("n002")
    followed.notes.asked.clear()
    for _ in range(3):
        followed.event("n001")
    followed.event("n002")
    followed.event("unknown")
    followed.settle()
    assert followed.texts() == {"n000.md": "text 0", "n001.md": "changed"}
    assert followed.notes.asked["/notes/n001"] == 1
    assert followed.rows("SELECT DISTINCT state FROM docwell.event") == [("handled",)]


def test_an_event_that_only_rings_asks_for_what_changed(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.notes.write("n001", "changed")
    followed.event("*")
    followed.settle()
    assert followed.texts()["n001.md"] == "changed"
    assert followed.rows("SELECT state FROM docwell.event") == [("handled",)]


def test_of_an_event_that_names_hundreds_everything_is_looked_at_in_place_of_each(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.notes.change("n001", readers=["user:ann"])
    followed.notes.asked.clear()
    followed.event("\n".join(["n001", *(f"unknown{number}" for number in range(MOST_NAMED))]))
    followed.event("n002")
    followed.settle()
    assert [path for path in followed.notes.asked if path.startswith("/notes/")] == ["/notes/n002"]
    assert followed.rows("SELECT DISTINCT state FROM docwell.event") == [("handled",)]
    assert followed.rows("SELECT listing FROM docwell.remote") == [(2,)]


@pytest.mark.parametrize("body", [b"\xff", b"n0\x0001"], ids=["no text", "a key with NUL"])
def test_an_event_that_nobody_understands_is_given_up_and_costs_the_others_nothing(followed: Followed, body: bytes) -> None:
    followed.notes.fill(2)
    followed.settle()
    with followed.pool.connection() as connection:
        connection.execute(
            "INSERT INTO docwell.event (source_id, body, body_sha256, attempts) VALUES (%s, %s, %s, 7)",
            (followed.source.source_id, body, b"x"),
        )
    followed.notes.write("n001", "changed")
    followed.event("n001")
    followed.settle()
    assert followed.texts()["n001.md"] == "changed"
    assert followed.rows("SELECT state FROM docwell.event ORDER BY event_id") == [("dead",), ("handled",)]


def test_events_that_come_while_the_source_is_away_wait_for_it(followed: Followed) -> None:
    followed.notes.fill(2)
    followed.settle()
    followed.notes.write("n001", "changed")
    followed.event("n001")
    followed.notes.fail("/notes/n001", 0)
    assert followed.tick()
    assert followed.rows("SELECT state FROM docwell.event") == [("waiting",)]
    followed.settle(10)
    assert followed.texts()["n001.md"] == "changed"
    assert followed.rows("SELECT state FROM docwell.event") == [("handled",)]


def test_one_item_that_fails_costs_the_others_nothing_and_is_tried_again(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.notes.fail("/notes/n003/text", 500)
    followed.settle()
    assert len(followed.documents()) == 11
    assert followed.failures() == {"n003": "server_error"}
    followed.settle(70)
    assert len(followed.documents()) == 12
    assert followed.failures() == {}


@pytest.mark.parametrize("change", [{}, {"title": "Another"}])
def test_a_thing_that_could_not_be_asked_for_once_is_settled_when_it_can(followed: Followed, change: dict[str, str]) -> None:
    followed.notes.fill(2)
    followed.settle()
    followed.notes.fail("/notes/n001", 500)
    followed.event("n001")
    followed.settle()
    assert followed.failures() == {"n001": "server_error"}
    followed.notes.change("n001", **change)
    followed.settle(70)
    assert followed.failures() == {}


def test_whoever_waits_for_a_sweep_learns_that_it_failed_and_it_is_tried_again(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.request()
    followed.notes.write("n001", "changed")
    followed.notes.fail("/notes", 500)
    assert followed.tick()
    source = followed.source
    assert (source.sweep_requested, source.sweep_error) == (None, "The notes server failed with 500.")
    followed.settle(10)
    assert followed.source.sweep_error is None
    assert followed.texts()["n001.md"] == "changed"


def test_a_source_that_asks_for_a_pause_is_left_alone_that_long(followed: Followed) -> None:
    followed.notes.fill(2)
    followed.settle()
    followed.notes.write("n001", "changed")
    followed.notes.fail("/changes", 429)
    assert followed.tick(200)
    followed.notes.asked.clear()
    assert not followed.tick(9)
    assert followed.notes.asked == {}
    assert followed.remote.failures == 0
    followed.settle(2)
    assert followed.texts()["n001.md"] == "changed"


def test_failures_in_a_row_leave_longer_and_longer_pauses_and_one_success_ends_them(followed: Followed) -> None:
    followed.notes.fill(2)
    followed.settle()
    followed.clock.forward(200)
    followed.notes.fail("/changes", *[500] * 6)
    pauses = []
    for _ in range(6):
        assert followed.tick()
        resume_at = followed.remote.resume_at
        assert resume_at is not None
        pauses.append((resume_at - followed.clock.now).total_seconds())
        followed.clock.now = resume_at
    assert pauses == [5, 10, 20, 40, 80, 160]
    assert followed.remote.failures == 6
    followed.settle()
    assert (followed.remote.failures, followed.remote.resume_at, followed.source.sweep_error) == (0, None, None)


def test_a_person_who_asks_does_not_wait_out_a_failure(followed: Followed) -> None:
    followed.notes.fill(2)
    followed.settle()
    followed.notes.fail("/changes", 500)
    followed.tick(200)
    assert not followed.tick()
    followed.request()
    assert followed.tick()
    assert followed.source.sweep_requested is None


def test_ten_items_that_fail_in_a_row_are_the_source_s_fault(followed: Followed) -> None:
    followed.notes.fill(30)
    followed.notes.fail("/notes/", *[500] * 10)
    followed.tick()
    assert len(followed.failures()) == 10
    assert followed.remote.failures == 1
    followed.settle(10)
    assert len(followed.documents()) == 30


def test_an_item_that_always_asks_for_a_pause_does_not_stop_the_others_for_ever(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.notes.fail("/notes/n003/text", *[429] * 3)
    for _ in range(4):
        followed.settle(11)
    assert len(followed.documents()) == 11
    assert followed.source.newest_sweep is not None
    followed.settle(3600)
    assert len(followed.documents()) == 12


def test_wrong_secrets_are_told_and_tried_again_with_those_of_the_settings(followed: Followed) -> None:
    followed.notes.fill(1)
    followed.restart(options={**followed.settings.options, "token": "wrong"})
    followed.settle()
    error = followed.source.sweep_error
    assert error is not None
    assert "refuses the token" in error
    assert "wrong" not in error
