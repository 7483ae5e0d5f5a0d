"""The engine that keeps the index equal to a source over HTTP, on real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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


def test_the_first_listing_takes_everything_with_its_bytes_and_a_job_each(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    assert followed.texts() == {f"n{number:03}.md": f"text {number}" for number in range(12)}
    assert (followed.jobs(), sum(followed.woken)) == (12, 12)
    assert followed.source.newest_sweep is not None
    assert (followed.remote.listing_seen, followed.remote.listing_total) == (12, 12)


def test_nothing_is_read_and_nothing_asked_for_when_nothing_has_changed(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    followed.finish_jobs()
    followed.notes.asked.clear()
    followed.whole()
    assert {path for path in followed.notes.asked if path.endswith("/text")} == set()
    assert followed.jobs() == 0


def test_a_change_is_found_from_the_cursor_and_only_that_is_read(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    followed.notes.asked.clear()
    followed.notes.write("n003", "changed")
    followed.notes.write("new", "came")
    followed.notes.delete("n004")
    followed.settle(200)
    assert set(followed.notes.asked) == {"/changes", "/notes/n003/text", "/notes/new/text"}
    assert followed.texts()["n003.md"] == "changed"
    assert followed.texts()["new.md"] == "came"
    assert "n004.md" not in followed.documents()


def test_facts_apply_at_once_and_no_byte_is_read_for_them(followed: Followed) -> None:
    followed.notes.write("a", "text", heading=("Handbook",))
    followed.settle()
    followed.notes.asked.clear()
    followed.notes.change("a", title="Another title", tags=("x", "y"))
    followed.settle(200)
    assert "/notes/a/text" not in followed.notes.asked
    assert followed.rows("SELECT title, tags, url FROM docwell.document") == [
        ("Another title", ["x", "y"], f"{followed.notes.url}/notes/a")
    ]
    assert followed.rows("SELECT heading FROM docwell.pushed_content") == [(["Handbook"],)]


def test_a_thing_that_moves_keeps_its_document_and_is_not_read(followed: Followed) -> None:
    followed.notes.write("a", "text", "old/place.md")
    followed.settle()
    before = followed.documents()["old/place.md"]
    followed.notes.asked.clear()
    followed.notes.change("a", path="new/place.md")
    followed.settle(200)
    assert followed.documents() == {"new/place.md": before}
    assert "/notes/a/text" not in followed.notes.asked


def test_things_may_change_places(followed: Followed) -> None:
    followed.notes.write("a", "of a", "one.md")
    followed.notes.write("b", "of b", "two.md")
    followed.settle()
    before = followed.documents()
    followed.notes.change("a", path="two.md")
    followed.notes.change("b", path="one.md")
    followed.settle(200)
    assert followed.documents() == {"one.md": before["two.md"], "two.md": before["one.md"]}
    assert followed.texts() == {"one.md": "of b", "two.md": "of a"}


def test_of_two_things_on_one_path_the_second_gets_a_suffix_and_its_own_path_when_that_is_free(followed: Followed) -> None:
    followed.notes.write("a", "of a", "same.md")
    followed.notes.write("b", "of b", "same.md")
    followed.settle()
    assert followed.texts() == {"same.md": "of a", "same~b.md": "of b"}
    second = followed.documents()["same~b.md"]
    followed.notes.delete("a")
    followed.settle(200)
    assert followed.documents() == {"same.md": second}
    assert followed.texts() == {"same.md": "of b"}


def test_a_thing_that_takes_the_path_of_one_that_went_in_the_same_batch_has_its_own_document(followed: Followed) -> None:
    followed.notes.write("a", "of a", "same.md")
    followed.settle()
    followed.notes.delete("a")
    followed.notes.write("b", "of b", "same.md")
    followed.settle(200)
    assert followed.texts() == {"same.md": "of b"}
    followed.whole()
    assert followed.texts() == {"same.md": "of b"}


def test_what_comes_back_is_the_document_that_it_was_wherever_it_stands(followed: Followed) -> None:
    followed.notes.write("a", "text", "here.md")
    followed.settle()
    before = followed.documents()["here.md"]
    followed.notes.delete("a")
    followed.settle(200)
    assert followed.documents() == {}
    followed.notes.write("a", "text", "there.md")
    followed.settle(200)
    assert followed.documents() == {"there.md": before}
    assert followed.texts() == {"there.md": "text"}


def test_what_did_not_come_in_a_whole_listing_is_gone(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    del followed.notes.notes["n005"]  # no journal tells of it
    followed.settle(200)
    assert "n005.md" in followed.documents()
    followed.whole()
    assert "n005.md" not in followed.documents()
    assert len(followed.documents()) == 11


def test_a_listing_that_breaks_off_deletes_nothing_and_begins_again(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    del followed.notes.notes["n011"]
    followed.clock.forward(followed.settings.full_sync_seconds + 1)
    followed.notes.fail("/notes", 200, 500)
    assert followed.tick()
    assert len(followed.documents()) == 12
    assert followed.source.sweep_error == "The notes server failed with 500."
    assert not followed.tick()
    followed.settle(10)
    assert len(followed.documents()) == 11
    assert followed.source.sweep_error is None


def test_more_than_half_are_held_until_a_person_lets_them_go(followed: Followed) -> None:
    followed.notes.fill(39)
    followed.settle()
    for number in range(20):
        followed.notes.delete(f"n{number:03}")
    followed.settle(200)
    assert len(followed.documents()) == 39
    error = followed.source.sweep_error
    assert error is not None
    assert error.startswith("20 of 39 documents of source notes would be deleted")
    assert "approve-deletes notes" in error
    followed.whole()
    assert len(followed.documents()) == 39
    followed.approve()
    followed.settle()
    assert len(followed.documents()) == 19
    assert (followed.source.sweep_error, followed.source.sweep_requested, followed.source.approved_at) == (None, None, None)


def test_a_cursor_that_expired_leads_to_a_look_at_everything(followed: Followed) -> None:
    followed.notes.fill(12)
    followed.settle()
    followed.notes.delete("n000")
    followed.notes.write("n001", "changed")
    followed.notes.forget_journal()
    followed.settle(200)
    assert "n000.md" not in followed.documents()
    assert followed.texts()["n001.md"] == "changed"


def test_narrower_readers_apply_though_the_bytes_cannot_be_had(database: Database, notes: Notes) -> None:
    with follow(database.url, notes, permissions=True) as followed:
        notes.write("a", "text", readers=("group:all",))
        followed.settle()
        notes.write("a", "secret now", readers=("user:ann",))
        notes.fail("/notes/a/text", 500)
        followed.settle(200)
        assert followed.rows("SELECT readers FROM docwell.document") == [(["user:ann"],)]
        assert followed.texts() == {"a.md": "text"}
        followed.settle(70)
        assert followed.texts() == {"a.md": "secret now"}


def test_with_permissions_a_source_is_restricted_and_without_they_are_not_looked_at(database: Database, notes: Notes) -> None:
    notes.write("a", "text", readers=("user:ann",))
    notes.write("b", "text", readers=())
    notes.write("c", "text")
    with follow(database.url, notes, permissions=True) as followed:
        followed.settle()
        audiences = "docwell.document d JOIN docwell.audience a USING (audience_id)"
        query = f"SELECT path, a.readers, restricted FROM {audiences} ORDER BY path"
        assert followed.rows(query) == [("a.md", ["user:ann"], True), ("b.md", [], True), ("c.md", [], True)]
        followed.restart(permissions=False)
        followed.settle()
        assert followed.rows("SELECT readers FROM docwell.document") == [(None,), (None,), (None,)]
        assert followed.source.readers is None


def test_permissions_that_are_turned_on_do_not_wait_for_a_listing(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.finish_jobs()
    followed.restart(permissions=True)
    before = followed.jobs()
    _ = followed.sync  # made anew, it brings the source's row up to date
    assert (before, followed.jobs()) == (0, 3)


def test_a_document_that_is_too_large_is_skipped_with_the_reason_and_taken_when_the_limit_is_raised(
    database: Database, notes: Notes
) -> None:
    notes.write("a", "x" * 100)
    with follow(database.url, notes, max_bytes=50) as followed:
        followed.settle()
        assert followed.rows("SELECT path, state, reason_code FROM docwell.document") == [("a.md", "skipped", "too_large")]
        assert followed.failures() == {"a": "too_large"}
        notes.asked.clear()
        followed.whole()
        assert "/notes/a/text" not in notes.asked
        followed.restart(max_bytes=200)
        followed.settle()
        assert followed.texts() == {"a.md": "x" * 100}
        assert followed.failures() == {}


def test_an_excluded_document_stays_out_until_it_is_included_and_is_then_as_its_source_has_it(followed: Followed) -> None:
    from ingest_worker.catalogue.exclusion import exclude, include

    followed.notes.write("a", "text")
    followed.settle()
    document_id = followed.documents()["a.md"]
    with followed.pool.connection() as connection:
        exclude(connection, document_id)
    followed.notes.write("a", "changed")
    followed.settle(200)
    assert followed.rows("SELECT state FROM docwell.document") == [("excluded",)]
    with followed.pool.connection() as connection:
        include(connection, document_id)
    followed.whole()
    assert followed.texts() == {"a.md": "changed"}


def test_what_was_erased_does_not_come_back_and_no_name_of_it_is_kept(followed: Followed) -> None:
    from ingest_worker.catalogue.erasures import Place, block

    followed.notes.write("a", "text", "private/name.md")
    followed.settle()
    with followed.pool.connection() as connection, connection.transaction():
        place = Place(
            document_id=followed.documents()["private/name.md"], source="notes", namespace="default", path="private/name.md"
        )
        block(connection, place, [])
        connection.execute("DELETE FROM docwell.document")
    followed.whole()
    assert followed.documents() == {}
    assert followed.rows("SELECT path, error_code FROM docwell.remote_item") == [("", "erased")]


def test_other_settings_of_what_there_is_lead_to_a_look_at_everything_and_tags_apply_to_all(followed: Followed) -> None:
    followed.notes.fill(3)
    followed.settle()
    followed.notes.asked.clear()
    followed.restart(tags=("handbook",))
    followed.settle()
    assert followed.rows("SELECT DISTINCT tags FROM docwell.document") == [(["handbook"],)]
    assert followed.notes.asked["/notes"] == 1
    assert not any(path.endswith("/text") for path in followed.notes.asked)


def test_a_paused_source_is_not_asked(followed: Followed) -> None:
    from ingest_worker.catalogue.source_state import set_paused

    followed.notes.fill(2)
    followed.settle()
    with followed.pool.connection() as connection:
        set_paused(connection, "notes", paused=True)
    followed.notes.asked.clear()
    assert not followed.tick(100_000)
    assert followed.notes.asked == {}


def test_a_source_that_was_taken_out_comes_back_whole_when_it_is_configured_again(followed: Followed) -> None:
    from ingest_worker.catalogue.removal import remove_source

    followed.notes.fill(3)
    followed.settle()
    with followed.pool.connection() as connection:
        connection.autocommit = True
        assert list(remove_source(connection, followed.source)) == [1, 2, 3]
    assert not followed.tick(100_000)
    assert followed.documents() == {}
    followed.restart()
    followed.settle()
    assert len(followed.texts()) == 3
