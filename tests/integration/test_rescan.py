"""The sweep against a real folder and a real catalogue."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_worker.catalogue.left_out import Cause
from ingest_worker.catalogue.source_state import request_sweep
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.rescan import SweepOptions, sweep
from ingest_worker.intake.tally import SAME_NAME, Tally
from ingest_worker.intake.walk import walk
from shared.text import normalise_path
from tests.conftest import Database
from tests.folders import Folder, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs") as opened:
        yield opened


def test_a_first_sweep_asks_for_every_file_and_a_second_for_none(folder: Folder) -> None:
    for name in ("a.md", "b/c.md", "b/d/e.md"):
        folder.write(name)
    first = folder.sweep()
    assert (first.seen, first.new, first.error) == (3, 3, None)
    assert sum(folder.woken) == 3
    folder.work()
    second = folder.sweep()
    assert (second.seen, second.new, second.changed, second.again, second.gone) == (3, 0, 0, 0, 0)
    assert folder.live_jobs() == {}
    assert folder.source.newest_sweep == second.began


def test_changed_new_and_gone_files_are_told_apart(folder: Folder) -> None:
    for name in ("keep.md", "change.md", "go.md"):
        folder.write(name, name)
    folder.sweep()
    folder.work()
    folder.write("change.md", "other text")
    folder.write("come.md", "new text")
    (folder.root / "go.md").unlink()
    report = folder.sweep()
    assert (report.changed, report.new, report.gone) == (1, 1, 1)
    assert folder.live_jobs() == {"change.md": "ingest", "come.md": "ingest", "go.md": "ingest"}
    assert sorted(folder.work()) == [("change.md", "read"), ("come.md", "read"), ("go.md", "deleted")]
    assert set(folder.documents()) == {"keep.md", "change.md", "come.md"}


def test_the_walk_has_the_byte_order_of_the_paths_whatever_the_names(tmp_path: Path) -> None:
    names = ["a-b/x", "a.txt", "a/b", "a/b.c/d", "a0", "Z", "é/1", "é", "日本/語", "\U0001f600.md", "a\\b", "a b", "ａ"]
    for name in [*names, "caf\udce9.txt", "caf\udce8.txt", "e\u0301x/nfd", "\u00e9x/nfc", "e\u0301x/a", "\u00e9x/z"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(name.encode("utf-8", "surrogateescape").hex())
    tally = Tally()
    paths = [found.path for found in walk(str(tmp_path), IgnoreRules(tmp_path), tally)]
    assert paths == sorted(paths, key=lambda path: path.encode("utf-8"))
    assert len(paths) == len(set(paths)) == 17
    assert tally.entries == {"a\\b": SAME_NAME}
    assert all(path == normalise_path(path) for path in paths)


def test_a_name_spelt_in_two_forms_is_one_document(folder: Folder) -> None:
    folder.write("re\u0301sume\u0301.md", "decomposed")
    folder.sweep()
    assert set(folder.documents()) == {"r\u00e9sum\u00e9.md"}
    assert folder.work() == [("r\u00e9sum\u00e9.md", "read")]
    folder.write("r\u00e9sum\u00e9.md", "composed")
    folder.sweep()
    assert folder.work() == [("r\u00e9sum\u00e9.md", "read")]
    assert folder.sweep().gone == 0


def test_a_name_that_is_no_text_is_read_under_its_own_bytes(folder: Folder) -> None:
    folder.write("caf\udce9.txt")
    folder.sweep()
    assert folder.work() == [("caf%E9.txt", "read")]
    report = folder.sweep()
    assert (report.new, report.gone) == (0, 0)
    (folder.root / "caf\udce9.txt").unlink()
    assert folder.sweep().gone == 1


def test_names_with_every_odd_character_are_read(folder: Folder) -> None:
    names = ["a\nb.md", 'quote\'s "double".md', "back\\slash.md", " lead.md", "trail .md", "percent%s.md", "-rf.md", "{x}.md"]
    for name in names:
        folder.write(name)
    assert folder.sweep().new == len(names)
    assert [result for _, result in folder.work()] == ["read"] * len(names)
    report = folder.sweep()
    assert (report.new, report.gone, report.again) == (0, 0, 0)


def test_empty_files_wait_and_one_that_was_a_document_counts_as_changed(folder: Folder) -> None:
    folder.write("empty.md", "")
    folder.write("full.md")
    report = folder.sweep()
    assert (report.new, report.counts["empty"]) == (1, 1)
    folder.work()
    folder.write("full.md", "")
    assert folder.sweep().changed == 1


def test_a_file_written_a_moment_ago_is_given_to_the_settler(folder: Folder) -> None:
    folder.write("fresh.md")
    later: list[str] = []
    report = folder.sweep(rest_seconds=60.0, later=later.append)
    assert (report.new, report.settling, later) == (0, 1, ["fresh.md"])


def test_a_moved_file_keeps_its_document(folder: Folder) -> None:
    folder.write("old/a.md", "some text")
    folder.write("other.md", "more text")
    folder.sweep()
    folder.work()
    before = folder.ids()
    (folder.root / "new").mkdir()
    (folder.root / "old/a.md").rename(folder.root / "new/b.md")
    report = folder.sweep()
    assert (report.moved, report.new, report.gone) == (1, 0, 0)
    assert folder.ids() == {"new/b.md": before["old/a.md"], "other.md": before["other.md"]}
    assert folder.live_jobs() == {}


def test_a_move_to_a_name_that_sorts_before_the_old_one_is_one_too(folder: Folder) -> None:
    folder.write("z.md", "some text")
    folder.sweep()
    folder.work()
    before = folder.ids()["z.md"]
    (folder.root / "z.md").rename(folder.root / "a.md")
    assert folder.sweep().moved == 1
    assert folder.ids() == {"a.md": before}


def test_a_document_that_is_gone_waits_while_a_new_file_that_may_be_it_settles(folder: Folder) -> None:
    folder.write("old.md", "some text")
    folder.write("other.md", "unlike any other")
    folder.sweep()
    folder.work()
    before = folder.ids()["old.md"]
    (folder.root / "old.md").rename(folder.root / "new.md")
    (folder.root / "other.md").unlink()
    report = folder.sweep(rest_seconds=60.0, patient=True)
    assert (report.settling, report.postponed, report.gone) == (1, 1, 1)
    assert folder.live_jobs().keys() == {"other.md"}
    assert folder.sweep().moved == 1
    assert folder.ids()["new.md"] == before


def test_a_document_that_is_gone_does_not_wait_for_ever(folder: Folder) -> None:
    folder.write("old.md", "some text")
    folder.sweep()
    folder.work()
    (folder.root / "old.md").unlink()
    folder.write("new.md", "more text")
    assert folder.sweep(rest_seconds=60.0, patient=False).gone == 1


def test_a_copy_is_no_move(folder: Folder) -> None:
    folder.write("a.md", "some text")
    folder.sweep()
    folder.work()
    shutil.copy2(folder.root / "a.md", folder.root / "b.md")
    report = folder.sweep()
    assert (report.moved, report.new) == (0, 1)


def test_a_missing_root_deletes_nothing_and_says_so(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    folder.root.rename(folder.root.with_name("away"))
    report = folder.sweep()
    assert (report.gone, report.seen) == (0, 0)
    error = folder.source.sweep_error
    assert error is not None
    assert "Nothing was deleted" in error
    assert folder.documents() == {"a.md": "skipped"}
    folder.root.with_name("away").rename(folder.root)
    assert folder.sweep().error is None
    assert folder.source.sweep_error is None


def test_a_file_that_may_not_be_read_is_asked_for_again_only_when_somebody_touched_it(folder: Folder) -> None:
    path = folder.write("a.md")
    folder.sweep()
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.job SET state = 'dead'")
        connection.execute("UPDATE docwell.document SET state = 'failed', reason_code = 'permission_denied', changed_at = now()")
    assert folder.sweep().again == 0
    path.chmod(0o600)
    assert folder.sweep().again == 1


def test_a_failure_that_was_not_the_files_fault_is_tried_again_after_a_while(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.document SET state = 'failed', modified_ns = NULL, changed_at = now()")
    assert folder.sweep(again_seconds=100.0).again == 0
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.document SET changed_at = now() - interval '2 minutes'")
    assert folder.sweep(again_seconds=100.0).again == 1


def test_files_of_one_name_in_two_folders_are_two_documents(folder: Folder) -> None:
    folder.write("a/readme.md", "one")
    folder.write("b/readme.md", "two")
    folder.sweep()
    assert folder.documents().keys() == {"a/readme.md", "b/readme.md"}
    folder.work()
    (folder.root / "a/readme.md").unlink()
    folder.sweep()
    folder.work()
    assert folder.documents().keys() == {"b/readme.md"}


def test_a_sweep_answers_the_request_that_it_found_and_no_later_one(folder: Folder) -> None:
    with folder.pool.connection() as connection:
        request_sweep(connection, "docs")
    before = folder.source
    with folder.pool.connection() as connection:
        later = request_sweep(connection, "docs")
    options = SweepOptions(rest_seconds=0.0, grace_seconds=0.0)
    sweep(folder.pool, before, IgnoreRules(folder.root), folder.woken.append, threading.Event(), options)
    assert folder.source.sweep_requested == later
    folder.sweep()
    assert folder.source.sweep_requested is None


def test_a_source_that_is_taken_out_or_paused_during_a_sweep_gets_nothing_of_it(folder: Folder) -> None:
    folder.write("a.md")
    options = SweepOptions(rest_seconds=0.0, grace_seconds=0.0)
    for statement in ("UPDATE docwell.source SET paused = true", "UPDATE docwell.source SET paused = false, removed_at = now()"):
        before = folder.source
        with folder.pool.connection() as connection:
            connection.execute(statement.encode())
        sweep(folder.pool, before, IgnoreRules(folder.root), folder.woken.append, threading.Event(), options)
        assert folder.documents() == {}
        assert folder.source.newest_sweep is None


def test_a_folder_moved_whole_is_no_deletion_however_large(folder: Folder) -> None:
    for number in range(30):
        folder.write(f"old/{number:02}.md", f"text {number}")
    folder.sweep()
    folder.work()
    before = folder.ids()
    (folder.root / "old").rename(folder.root / "new")
    report = folder.sweep()
    assert (report.moved, report.held, report.gone) == (30, (), 0)
    assert folder.ids() == {path.replace("old/", "new/"): document for path, document in before.items()}


def test_on_another_device_nothing_is_deleted(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    (folder.root / "a.md").unlink()
    report = folder.sweep(expected=(-1, 1))
    assert (len(report.held), report.gone) == (1, 0)
    assert report.error is not None
    assert "another device" in report.error


def test_a_file_that_comes_back_within_the_grace_is_not_deleted(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    (folder.root / "a.md").unlink()
    graces = []

    class Grace(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            """The file comes back while the sweep waits for that; no time passes."""
            graces.append(timeout)
            folder.write("a.md", "written anew")
            return False

    report = folder.sweep(stop=Grace(), grace_seconds=0.5)
    assert (graces, report.gone) == ([0.5], 0)
    assert folder.sweep().changed == 1


def test_links_that_leave_the_root_and_special_files_are_not_followed(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("outside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.md").write_text("outside")
    folder.write("real.md", "inside")
    (folder.root / "leak.md").symlink_to(tmp_path / "secret.md")
    (folder.root / "leaks").symlink_to(tmp_path / "outside")
    (folder.root / "loop").symlink_to(folder.root)
    (folder.root / "nothing.md").symlink_to(tmp_path / "not there")
    (folder.root / "inside.md").symlink_to("real.md")
    os.mkfifo(folder.root / "pipe.md")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder.root / "s.md"))
        report = folder.sweep()
    assert set(folder.documents()) == {"real.md", "inside.md"}
    links = {path for path, why in report.tally.entries.items() if why.cause is Cause.LINK}
    assert links == {"leak.md", "leaks", "loop", "nothing.md"}
    assert {path for path, why in report.tally.entries.items() if why.cause is Cause.SPECIAL} == {"pipe.md", "s.md"}
    assert [result for _, result in folder.work()] == ["read", "read"]
    assert folder.sweep().new == 0


def test_an_ignored_file_leaves_the_index_and_the_rules_are_those_of_the_folder(folder: Folder) -> None:
    folder.write("a.md")
    folder.write("drafts/b.md")
    folder.write("c.tmp")
    report = folder.sweep()
    assert (report.new, report.counts["ignored"]) == (2, 1)
    folder.work()
    folder.write(".docwellignore", "drafts/\n")
    assert folder.sweep().gone == 1
    folder.work()
    assert set(folder.documents()) == {"a.md"}


def test_a_sweep_touches_its_own_source_alone(database: Database, folder: Folder, tmp_path: Path) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    with folder.pool.connection() as connection:
        connection.execute(
            "INSERT INTO docwell.source (name, type, namespace_id, root)"
            " SELECT 'other', 'folder', namespace_id, %s FROM docwell.namespace WHERE name = 'default'",
            (str(tmp_path / "other"),),
        )
        connection.execute(
            "INSERT INTO docwell.document (source_id, namespace_id, audience_id, path, state)"
            " SELECT s.source_id, s.namespace_id, a.audience_id, 'theirs.md', 'indexed'"
            " FROM docwell.source s JOIN docwell.audience a USING (namespace_id) WHERE s.name = 'other'"
        )
    (folder.root / "a.md").unlink()
    folder.sweep()
    assert folder.live_jobs() == {"a.md": "ingest"}
    assert folder.work() == [("a.md", "deleted")]


def test_documents_that_nobody_works_on_are_asked_for_again(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    assert folder.sweep().again == 0
    with folder.pool.connection() as connection:
        connection.execute("DELETE FROM docwell.job")
    assert folder.sweep().again == 1
    folder.work()
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.document SET state = 'failed', modified_ns = NULL")
    assert folder.sweep().again == 1


def test_an_excluded_document_stays_out(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.document SET state = 'excluded'")
    folder.write("a.md", "changed")
    report = folder.sweep()
    assert (report.changed, report.new, report.gone) == (0, 0, 0)
    (folder.root / "a.md").unlink()
    assert folder.sweep().gone == 0
    assert folder.live_jobs() == {}


def _write_deep(root: Path, folders: list[str]) -> None:
    """A file below folders whose path is longer than one call takes."""
    here = Path.cwd()
    try:
        os.chdir(root)
        for part in folders:
            Path(part).mkdir()
            os.chdir(part)
        Path("d.md").write_text("text")
    finally:
        os.chdir(here)


def test_a_path_that_is_too_long_for_the_index_is_left_out_and_the_sweep_is_complete(folder: Folder) -> None:
    for name in ("a.md", "b.md", "c.md"):
        folder.write(name)
    _write_deep(folder.root, [os.urandom(120).hex() for _ in range(14)])
    report = folder.sweep()
    assert set(folder.documents()) == {"a.md", "b.md", "c.md"}
    assert report.error is None
    (row,) = folder.left_out()
    assert row.cause == "long_path"
    assert "Shorten it" in row.rule


def test_a_path_that_the_database_does_not_take_costs_that_file_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.md", "b.md", "c.md"):
        folder.write(name)
    _write_deep(folder.root, [os.urandom(120).hex() for _ in range(14)])
    monkeypatch.setattr("ingest_worker.intake.rescan.LONGEST_PATH_BYTES", 10_000)
    report = folder.sweep()
    assert set(folder.documents()) == {"a.md", "b.md", "c.md"}
    assert report.error is not None
    assert "1 files could not be recorded" in report.error


def test_a_sweep_that_is_stopped_leaves_no_record(folder: Folder) -> None:
    folder.write("a.md")
    stop = threading.Event()
    stop.set()
    rules = IgnoreRules(folder.root)
    report = sweep(
        folder.pool, folder.source, rules, folder.woken.append, stop, SweepOptions(rest_seconds=0.0, grace_seconds=0.0)
    )
    assert report.stopped
    assert folder.source.newest_sweep is None
