"""Deletions that are too many at once wait for a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.folders import Folder, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs") as opened:
        yield opened


def test_more_than_half_and_at_least_twenty_deletions_are_held_until_approved(folder: Folder) -> None:
    for number in range(39):
        folder.write(f"{number:02}.md", f"text {number}")
    folder.sweep()
    folder.work()
    complete = folder.source.newest_sweep
    for number in range(20):
        (folder.root / f"{number:02}.md").unlink()
    report = folder.sweep()
    assert (len(report.held), report.gone) == (20, 0)
    assert folder.live_jobs() == {}
    error = folder.source.sweep_error
    assert error is not None
    assert error.startswith("20 of 39 documents of source docs would be deleted")
    assert folder.source.newest_sweep == complete
    folder.approve()
    assert folder.sweep().gone == 20
    folder.work()
    assert len(folder.documents()) == 19


@pytest.mark.parametrize(("total", "gone"), [(40, 20), (30, 19)])
def test_half_of_a_source_or_fewer_than_twenty_are_deleted_at_once(folder: Folder, total: int, gone: int) -> None:
    for number in range(total):
        folder.write(f"{number:02}.md", f"text {number}")
    folder.sweep()
    folder.work()
    for number in range(gone):
        (folder.root / f"{number:02}.md").unlink()
    report = folder.sweep()
    assert (report.held, report.gone) == ((), gone)


def _held(folder: Folder) -> tuple[int, bool]:
    with folder.pool.connection() as connection:
        row = connection.execute("SELECT held_deletes, approved_at IS NOT NULL FROM docwell.source").fetchone()
    assert row is not None
    return row


def _fill(folder: Folder, count: int) -> list[Path]:
    paths = [folder.write(f"{number:02}.md", f"text {number}") for number in range(count)]
    folder.sweep()
    folder.work()
    return paths


def test_an_approval_lets_go_what_was_held_then_and_nothing_that_went_missing_later(folder: Folder) -> None:
    paths = _fill(folder, 100)
    for path in paths[:60]:
        path.unlink()
    report = folder.sweep()
    assert (len(report.held), _held(folder)) == (60, (60, False))
    assert "docwell sources approve-deletes docs" in (report.error or "")
    folder.approve()
    assert _held(folder) == (60, True)
    for path in paths[60:90]:
        path.unlink()
    report = folder.sweep()
    assert (report.gone, len(report.held)) == (60, 30)
    assert _held(folder) == (30, False)
    folder.work()
    assert folder.documents().keys() == {path.name for path in paths[60:]}
    folder.approve()
    assert folder.sweep().gone == 30
    folder.work()
    assert folder.documents().keys() == {path.name for path in paths[90:]}
    assert _held(folder) == (0, False)


def test_an_approval_does_not_delete_a_file_that_is_back(folder: Folder) -> None:
    paths = _fill(folder, 30)
    for path in paths:
        path.unlink()
    folder.sweep()
    folder.approve()
    for path in paths[:10]:
        path.write_text("back again")
    report = folder.sweep()
    assert (report.gone, report.held, report.error) == (20, (), None)
    folder.work()
    assert folder.documents().keys() == {path.name for path in paths[:10]}


def test_files_that_are_back_are_held_no_more(folder: Folder) -> None:
    paths = _fill(folder, 30)
    texts = {path: path.read_text() for path in paths}
    for path in paths:
        path.unlink()
    folder.sweep()
    assert _held(folder) == (30, False)
    for path, text in texts.items():
        path.write_text(text)
    assert folder.sweep().error is None
    assert _held(folder) == (0, False)


def test_a_root_that_goes_away_keeps_what_is_held_and_approved(folder: Folder) -> None:
    for path in _fill(folder, 30):
        path.unlink()
    folder.sweep()
    folder.approve()
    folder.root.rename(folder.root.with_name("away"))
    assert folder.sweep().gone == 0
    assert _held(folder) == (30, True)
    folder.root.with_name("away").rename(folder.root)
    assert folder.sweep().gone == 30


def test_approved_deletions_that_wait_for_a_worker_are_not_held_again(folder: Folder) -> None:
    for path in _fill(folder, 30):
        path.unlink()
    folder.sweep()
    folder.approve()
    assert folder.sweep().gone == 30
    report = folder.sweep()
    assert (report.gone, report.held, report.error) == (0, (), None)


def test_files_that_a_new_rule_ignores_are_held_too(folder: Folder) -> None:
    _fill(folder, 30)
    folder.write(".docwellignore", "*.md\n")
    report = folder.sweep()
    assert (len(report.held), report.gone) == (30, 0)
    assert "gone or ignored now" in (report.error or "")
