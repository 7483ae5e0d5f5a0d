"""A watched folder: real events, a real catalogue, and files as people and programs write them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.folders import AT_ONCE, GRACE, SETTLE, Folder, eventually, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        yield opened


def test_a_file_is_asked_for_at_its_settle_time_and_the_workers_are_woken(folder: Folder) -> None:
    took = []
    with folder.watched() as watcher:
        for number in range(8):
            folder.woken.clear()
            began = time.monotonic()
            folder.write(f"{number}.md")
            eventually(lambda: folder.woken)
            took.append(time.monotonic() - began)
            assert folder.woken == [1]
            assert len(folder.live_jobs()) == number + 1
            eventually(lambda: watcher.waiting == 0)
            if took[-1] < SETTLE + 1.0:  # a busy machine may be late, and not each time
                break
    assert all(seconds >= SETTLE for seconds in took)
    assert took[-1] < SETTLE + 1.0


def test_a_file_that_grows_is_asked_for_once_and_not_before_it_rests(database: Database, tmp_path: Path) -> None:
    settle = 1.5
    with (
        open_folder(database.url, tmp_path / "docs", watch_mode="native", watch_settle_seconds=settle) as folder,
        folder.watched(),
    ):
        path = folder.write("slow.md", "x")
        writing = time.monotonic() + 2 * settle
        pause = threading.Event()
        while time.monotonic() < writing:
            pause.wait(0.1)
            with path.open("a") as file:
                file.write("more")
        ended = time.monotonic()
        assert folder.woken == []
        eventually(lambda: folder.woken)
        assert time.monotonic() - ended >= settle * 0.9
        assert folder.woken == [1]


def test_what_was_there_before_the_watcher_is_found_when_it_starts(folder: Folder) -> None:
    folder.write("before.md", age=60)
    folder.write("just before.md")
    with folder.watched():
        eventually(lambda: folder.live_jobs().keys() == {"before.md", "just before.md"})


def test_temporary_names_and_empty_files_wait_for_their_real_name_and_content(folder: Folder) -> None:
    with folder.watched() as watcher:
        part = folder.write("scan.pdf.part", "half")
        empty = folder.write("scanner.pdf", "")
        folder.write("marker.md")
        eventually(lambda: "marker.md" in folder.live_jobs())
        eventually(lambda: watcher.waiting == 0)
        assert folder.live_jobs().keys() == {"marker.md"}
        part.rename(folder.root / "scan.pdf")
        empty.write_text("content")
        eventually(lambda: folder.live_jobs().keys() == {"marker.md", "scan.pdf", "scanner.pdf"})


def test_a_deleted_file_is_deleted_after_the_grace(folder: Folder) -> None:
    path = folder.write("a.md", age=60)
    with folder.watched():
        eventually(folder.live_jobs)
        folder.work()
        began = time.monotonic()
        path.unlink()
        eventually(folder.live_jobs)
        assert time.monotonic() - began >= GRACE * 0.9
        assert folder.work() == [("a.md", "deleted")]


@pytest.mark.parametrize("way", ["delete and create", "rename a copy over it", "keep a backup under another name"])
def test_an_editor_that_saves_anew_has_changed_the_document(folder: Folder, way: str) -> None:
    path = folder.write("a.md", "first", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        before = folder.ids()["a.md"]
        if way == "delete and create":
            path.unlink()
            path.write_text("second version")
        elif way == "rename a copy over it":
            new = folder.write("a.md.new", "second version")
            new.rename(path)
        else:
            path.rename(folder.root / "a.md.bak")
            path.write_text("second version")
            (folder.root / "a.md.bak").unlink()
        eventually(folder.live_jobs)
        eventually(lambda: watcher.waiting == 0)
        assert folder.work() == [("a.md", "read")]
        assert folder.ids() == {"a.md": before}


def test_a_renamed_file_keeps_its_document_and_is_not_read_again(folder: Folder) -> None:
    path = folder.write("a.md", "text", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        before = folder.ids()["a.md"]
        folder.woken.clear()
        path.rename(folder.root / "b.md")
        eventually(lambda: folder.ids() == {"b.md": before})
        eventually(lambda: watcher.waiting == 0)
        assert folder.woken == []


def test_the_same_content_at_another_place_within_the_grace_is_a_move(folder: Folder) -> None:
    path = folder.write("a.md", "unmistakable", age=60)
    with folder.watched():
        eventually(folder.live_jobs)
        folder.work()
        before = folder.ids()["a.md"]
        path.unlink()
        folder.write("sub/b.md", "unmistakable")
        eventually(lambda: folder.ids() == {"sub/b.md": before})


def test_a_folder_that_moves_takes_its_documents_along(folder: Folder) -> None:
    for number in range(30):
        folder.write(f"old/deep/{number}.md", f"text {number}", age=60)
    with folder.watched() as watcher:
        eventually(lambda: len(folder.live_jobs()) == 30)
        folder.work()
        before = folder.ids()
        folder.woken.clear()
        (folder.root / "old").rename(folder.root / "new")
        expected = {path.replace("old/", "new/"): document for path, document in before.items()}
        eventually(lambda: folder.ids() == expected)
        eventually(lambda: watcher.waiting == 0)
        assert folder.woken == []
        folder.write("new/deep/more.md", "the moved folder is watched under its new name")
        eventually(lambda: "new/deep/more.md" in folder.live_jobs())


def test_a_folder_moved_in_is_taken_and_one_moved_out_is_deleted(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/a.md").write_text("one")
    (outside / "b.md").write_text("two")
    folder.write("stays.md", age=60)
    with folder.watched():
        outside.rename(folder.root / "in")
        eventually(lambda: {"in/deep/a.md", "in/b.md"} <= folder.live_jobs().keys())
        folder.work()
        (folder.root / "in").rename(outside)
        eventually(lambda: folder.live_jobs().keys() == {"in/deep/a.md", "in/b.md"})
        folder.work()
        assert folder.documents().keys() == {"stays.md"}


def test_a_tree_that_is_copied_in_is_taken_whole_and_one_that_is_removed_is_deleted(folder: Folder, tmp_path: Path) -> None:
    for number in range(60):
        path = tmp_path / f"tree/{number % 7}/{number % 3}/{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {number}")
    for number in range(70):
        folder.write(f"rest/{number}.md", f"other text {number}", age=60)
    with folder.watched():
        eventually(lambda: len(folder.live_jobs()) == 70)
        shutil.copytree(tmp_path / "tree", folder.root / "tree")
        eventually(lambda: len(folder.live_jobs()) == 130)
        folder.work()
        shutil.rmtree(folder.root / "tree")
        eventually(lambda: len(folder.live_jobs()) == 60)
        folder.work()
        assert len(folder.documents()) == 70


def test_removing_most_of_a_source_is_held(folder: Folder) -> None:
    for number in range(30):
        folder.write(f"d/{number}.md", f"text {number}", age=60)
    with folder.watched():
        eventually(lambda: len(folder.live_jobs()) == 30)
        folder.work()
        shutil.rmtree(folder.root / "d")
        eventually(lambda: folder.source.sweep_error)
        assert folder.live_jobs() == {}
        assert "30 of 30 documents" in (folder.source.sweep_error or "")


def test_a_root_that_goes_away_deletes_nothing_and_is_watched_again_when_it_is_back(folder: Folder) -> None:
    folder.write("a.md", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        away = folder.root.with_name("away")
        folder.root.rename(away)
        eventually(lambda: watcher.mode is None)
        eventually(lambda: folder.source.sweep_error)
        (away / "b.md").write_text("written while it was away")
        away.rename(folder.root)
        eventually(lambda: "b.md" in folder.live_jobs())
        folder.write("c.md")
        eventually(lambda: "c.md" in folder.live_jobs())
        assert folder.live_jobs().keys() == {"b.md", "c.md"}
        eventually(lambda: folder.source.sweep_error is None)


def test_the_ignore_file_is_no_document_and_its_change_is_followed(folder: Folder) -> None:
    folder.write("a.md", age=60)
    folder.write("drafts/b.md", age=60)
    with folder.watched():
        eventually(lambda: len(folder.live_jobs()) == 2)
        folder.work()
        rules = folder.write(".docwellignore", "drafts/\n")
        eventually(lambda: folder.live_jobs().keys() == {"drafts/b.md"})
        folder.work()
        assert folder.documents().keys() == {"a.md"}
        rules.unlink()
        eventually(lambda: folder.live_jobs().keys() == {"drafts/b.md"})


def test_a_rule_that_comes_while_a_file_settles_is_heeded(database: Database, tmp_path: Path) -> None:
    with (
        open_folder(database.url, tmp_path / "docs", watch_mode="native", watch_settle_seconds=1.5) as folder,
        folder.watched() as watcher,
    ):
        folder.write("secret.md")
        eventually(lambda: watcher.waiting == 1)
        folder.write(".docwellignore", "secret.md\n")
        eventually(lambda: watcher.waiting == 0)
        assert folder.documents() == {}


def test_rules_that_are_saved_by_delete_and_create_let_nothing_in(database: Database, tmp_path: Path) -> None:
    with (
        open_folder(database.url, tmp_path / "docs", watch_mode="native", watch_settle_seconds=1.0) as folder,
        folder.watched() as watcher,
    ):
        rules = folder.write(".docwellignore", "secret.md\n")
        folder.write("secret.md")
        folder.write("a.md")
        eventually(lambda: folder.live_jobs().keys() == {"a.md"})
        sweeps = folder.source.newest_sweep
        rules.unlink()
        folder.write("secret.md", "written while there are no rules")
        rules.write_text("secret.md\n*.log\n")
        eventually(lambda: folder.source.newest_sweep != sweeps)
        eventually(lambda: watcher.waiting == 0)
        assert folder.documents().keys() == {"a.md"}


def test_names_in_any_script_and_in_no_script_are_taken(folder: Folder) -> None:
    names = ["日本語/議事録.md", "Ελληνικά.md", "عربي.txt", "e\u0301tude.md", "\U0001f600.md", "a b\tc.md", "caf\udce9.txt"]
    with folder.watched():
        for name in names:
            folder.write(name)
        eventually(lambda: len(folder.live_jobs()) == len(names))
        assert {result for _, result in folder.work()} == {"read"}
        assert "\u00e9tude.md" in folder.documents()


def test_a_link_that_leaves_the_folder_and_a_pipe_are_left_alone(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("outside")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.md").write_text("outside")
    with folder.watched() as watcher:
        (folder.root / "leak.md").symlink_to(tmp_path / "secret.md")
        (folder.root / "leaks").symlink_to(tmp_path / "tree")
        (folder.root / "round").symlink_to(folder.root)
        os.mkfifo(folder.root / "pipe.md")
        folder.write("real.md")
        (folder.root / "inside.md").symlink_to("real.md")
        eventually(lambda: folder.live_jobs().keys() == {"real.md", "inside.md"})
        eventually(lambda: watcher.waiting == 0)
        assert folder.documents().keys() == {"real.md", "inside.md"}


def test_a_file_without_read_permission_is_left_to_its_job(folder: Folder) -> None:
    with folder.watched():
        folder.write("closed.md").chmod(0)
        eventually(lambda: folder.live_jobs().keys() == {"closed.md"})


def test_a_change_of_mode_alone_asks_for_nothing(folder: Folder) -> None:
    path = folder.write("a.md", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        folder.woken.clear()
        path.chmod(0o640)
        folder.write("marker.md")
        eventually(lambda: "marker.md" in folder.live_jobs())
        eventually(lambda: watcher.waiting == 0)
        assert folder.live_jobs().keys() == {"marker.md"}


def test_more_files_than_there_is_room_for_are_found_by_a_sweep(folder: Folder) -> None:
    with folder.watched(capacity=5):
        for number in range(40):
            folder.write(f"{number}.md")
        eventually(lambda: len(folder.live_jobs()) == 40)


def test_the_watcher_stops_at_once_whatever_still_settles(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native", watch_settle_seconds=600) as folder:
        began = 0.0
        with folder.watched() as watcher:
            folder.write("a.md")
            eventually(lambda: watcher.waiting == 1)
            began = time.monotonic()
        assert time.monotonic() - began < AT_ONCE
