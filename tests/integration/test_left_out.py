"""What a sweep does not take is remembered, with the rule or reason."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest_worker.intake import tally
from tests.conftest import Database
from tests.folders import Folder, eventually, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        yield opened


def _by_path(folder: Folder) -> dict[str, tuple[str, str]]:
    return {row.path: (row.cause, row.rule) for row in folder.left_out()}


def _counted(folder: Folder) -> tuple[int, dict[str, int]]:
    with folder.pool.connection() as connection:
        row = connection.execute("SELECT left_out, sweep_counts FROM docwell.source WHERE name = 'docs'").fetchone()
    assert row is not None
    return row


def test_every_kind_of_entry_that_is_left_out_is_remembered_with_its_reason(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("outside")
    folder.write(".docwellignore", "drafts/\n*.log\n!keep.log\n")
    for name in ("real.md", "keep.log", "run.log", "drafts/a.md", "drafts/b/c.md", "x.part", "node_modules/y/readme.md", ".env"):
        folder.write(name)
    folder.write("later.md", "")
    folder.write("sub/a.md", "in another folder")
    (folder.root / "out.md").symlink_to(tmp_path / "outside.md")
    (folder.root / "to folder").symlink_to(folder.root / "sub")
    (folder.root / "nowhere.md").symlink_to(folder.root / "not there")
    os.mkfifo(folder.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder.root / "socket"))
        report = folder.sweep()
    assert set(folder.documents()) == {"real.md", "keep.log", "sub/a.md"}
    found = _by_path(folder)
    assert {path: cause for path, (cause, _) in found.items()} == {
        "drafts/": "ignored",
        "run.log": "ignored",
        "x.part": "ignored",
        "node_modules/": "ignored",
        ".env": "ignored",
        "later.md": "empty",
        "out.md": "link",
        "to folder": "link",
        "nowhere.md": "link",
        "pipe": "special",
        "socket": "special",
    }
    assert found["drafts/"][1] == "drafts/ (.docwellignore)"
    assert found["x.part"][1] == "*.part (DOCWELL_IGNORE_NAMES)"
    assert found["node_modules/"][1] == "node_modules/ (DOCWELL_IGNORE_FOLDERS)"
    assert "as soon as it has content" in found["later.md"][1]
    assert "leaves the source's folder" in found["out.md"][1]
    assert "leads nowhere" in found["nowhere.md"][1]
    assert _counted(folder) == (11, report.counts)


def test_the_next_sweep_forgets_what_is_taken_now_and_keeps_since_when_the_rest_is_left_out(folder: Folder) -> None:
    folder.write("a.part")
    folder.write("b.part")
    folder.sweep()
    before = {row.path: row.found_at for row in folder.left_out()}
    assert set(before) == {"a.part", "b.part"}
    (folder.root / "a.part").rename(folder.root / "a.md")
    folder.write("c.part")
    folder.sweep()
    after = {row.path: row.found_at for row in folder.left_out()}
    assert set(after) == {"b.part", "c.part"}
    assert after["b.part"] == before["b.part"]
    assert set(folder.documents()) == {"a.md"}


def test_an_entry_whose_rule_changes_is_remembered_with_the_new_one(folder: Folder) -> None:
    folder.write("a.part")
    folder.sweep()
    folder.write(".docwellignore", "a.*\n")
    folder.sweep()
    assert _by_path(folder) == {"a.part": ("ignored", "a.* (.docwellignore)")}


def test_what_is_remembered_is_bounded_and_the_count_is_whole(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_IGNORED", 10)
    monkeypatch.setattr(tally, "MOST_OF_ANOTHER_CAUSE", 3)
    for number in range(25):
        folder.write(f"{number:02}.tmp")
        folder.write(f"{number:02}.md", "")
    folder.sweep()
    causes = [row.cause for row in folder.left_out()]
    assert (causes.count("ignored"), causes.count("empty")) == (10, 3)
    assert _counted(folder)[0] == 50


def test_a_folder_that_is_away_keeps_what_was_known_of_it(folder: Folder) -> None:
    folder.write("a.part")
    folder.sweep()
    folder.root.rename(folder.root.with_name("away"))
    assert folder.sweep().error is not None
    assert set(_by_path(folder)) == {"a.part"}
    assert _counted(folder)[0] == 1


def test_of_two_names_that_differ_in_their_unicode_form_one_is_the_document_and_the_other_is_told(folder: Folder) -> None:
    folder.write("r\u00e9sum\u00e9.md", "composed")
    folder.write("re\u0301sume\u0301.md", "decomposed")
    folder.sweep()
    assert set(folder.documents()) == {"r\u00e9sum\u00e9.md"}
    (row,) = folder.left_out()
    assert (row.path, row.cause) == ("re\u0301sume\u0301.md", "same_name")
    assert "Rename one of them" in row.rule
    folder.work()
    (folder.root / "re\u0301sume\u0301.md").rename(folder.root / "other.md")
    folder.sweep()
    assert folder.left_out() == ()
    assert set(folder.documents()) == {"r\u00e9sum\u00e9.md", "other.md"}


def test_names_that_differ_only_in_bytes_that_are_no_text_are_two_documents(folder: Folder) -> None:
    names = [os.fsdecode(name) for name in (b"caf\xe9.md", b"caf\xe8.md", b"caf\xc3\xa9.md")]
    for name in names:
        folder.write(name, name.encode("utf-8", "surrogateescape").hex())
    folder.sweep()
    assert set(folder.documents()) == {"caf%E9.md", "caf%E8.md", "caf\u00e9.md"}
    assert sorted(folder.work()) == [("caf%E8.md", "read"), ("caf%E9.md", "read"), ("caf\u00e9.md", "read")]
    assert folder.left_out() == ()
    report = folder.sweep()
    assert (report.new, report.changed, report.gone) == (0, 0, 0)


def test_a_name_that_is_spelt_as_the_other_is_written_wins_and_the_other_is_told(folder: Folder) -> None:
    folder.write("caf%E9.md", "spelt so")
    folder.write(os.fsdecode(b"caf\xe9.md"), "written so")
    folder.sweep()
    assert folder.documents().keys() == {"caf%E9.md"}
    (row,) = folder.left_out()
    assert row.cause == "same_name"
    folder.work()
    with folder.pool.connection() as connection:
        assert connection.execute("SELECT size FROM docwell.document").fetchone() == (len("spelt so"),)


def test_rules_and_names_that_are_no_text_are_remembered_readably(folder: Folder) -> None:
    (folder.root / ".docwellignore").write_bytes(b"latin-\xe9.md\nbad\\\n")
    folder.write(os.fsdecode(b"latin-\xe9.md"))
    folder.sweep()
    assert _by_path(folder) == {"latin-%E9.md": ("ignored", "latin-%E9.md (.docwellignore)")}


def test_a_folder_that_cannot_be_read_is_told_and_nothing_of_it_is_deleted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        folder.write(f"closed/{number}.md", f"text {number}")
    folder.write("open.md")
    folder.sweep()
    folder.work()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("/closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        (folder.root / "open.md").unlink()
        report = folder.sweep()
    assert (report.gone, report.held) == (1, ())
    assert report.error is not None
    assert "1 folders could not be read (the first is 'closed/': Permission denied)" in report.error
    assert _by_path(folder)["closed/"][0] == "unreadable"
    assert "Permission denied" in _by_path(folder)["closed/"][1]
    assert folder.sweep().error is None
    assert folder.left_out() == ()


def test_rules_that_cannot_be_read_take_and_delete_nothing(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    folder.work()
    folder.write("secret/b.md")
    (folder.root / "a.md").unlink()
    (folder.root / ".docwellignore").mkdir()
    report = folder.sweep()
    assert report.error is not None
    assert "its rules are not known" in report.error
    assert folder.documents().keys() == {"a.md"}
    assert folder.live_jobs() == {}
    (folder.root / ".docwellignore").rmdir()
    folder.write(".docwellignore", "secret/\n")
    assert folder.sweep().error is None
    assert folder.live_jobs() == {"a.md": "ingest"}


def test_a_watched_folder_takes_nothing_while_its_rules_cannot_be_read(folder: Folder) -> None:
    with folder.watched() as watcher:
        (folder.root / ".docwellignore").mkdir()
        eventually(lambda: "rules are not known" in (folder.source.sweep_error or ""))
        folder.write("secret/b.md")
        folder.write("a.md")
        watcher.request_sweep()
        (folder.root / ".docwellignore").rmdir()
        folder.write(".docwellignore", "secret/\n")
        eventually(lambda: folder.live_jobs().keys() == {"a.md"})
        assert folder.documents().keys() == {"a.md"}


def test_a_double_that_is_written_does_not_take_the_documents_place(folder: Folder) -> None:
    folder.write("r\u00e9.md", "the document", age=60)
    folder.write("re\u0301.md", "its double", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        folder.write("re\u0301.md", "its double, written anew")
        folder.write("marker.md")
        eventually(lambda: "marker.md" in folder.live_jobs())
        eventually(lambda: watcher.waiting == 0)
        assert folder.live_jobs().keys() == {"marker.md"}
        (folder.root / "r\u00e9.md").unlink()
        eventually(lambda: "r\u00e9.md" in folder.live_jobs())
        assert ("r\u00e9.md", "read") in folder.work()
