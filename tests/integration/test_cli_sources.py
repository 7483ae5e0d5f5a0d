"""`docwell sources`, as people and scripts run it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from ingest_worker.catalogue.asking import Conflict, Unknown
from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from shared.errors import PermanentError, ServiceUnavailable
from tests.conftest import Database
from tests.folders import Folder, open_folder

Run = Callable[..., Result]


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        yield opened


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` in an empty folder, on this test's database and a broker that is away."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    return lambda *arguments, **options: CliRunner().invoke(make_app(), list(map(str, arguments)), **options)


def _json(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def _fill(folder: Folder, count: int) -> list[Path]:
    paths = [folder.write(f"{number:02}.md", f"text {number}") for number in range(count)]
    folder.sweep()
    folder.work()
    return paths


def test_the_list_shows_how_each_source_is_watched_and_what_it_holds_and_leaves_out(folder: Folder, run: Run) -> None:
    folder.write("x.part")
    for path in _fill(folder, 25)[:22]:
        path.unlink()
    folder.sweep()
    (row,) = _json(run("sources", "list", "--json"))["sources"]
    assert (row["name"], row["namespace"], row["root"], row["documents"]) == ("docs", "default", str(folder.root), 25)
    assert (row["watched"], row["watch_mode"], row["watch_notice"]) == (False, None, None)
    assert (row["held_deletes"], row["left_out"]) == (22, 1)
    assert row["sweep_counts"] == {"seen": 3, "held": 22, "ignored": 1}
    assert "docwell sources approve-deletes docs" in row["sweep_error"]
    heading, line = (text.split("\t") for text in run("sources", "list").stdout.splitlines())
    cells = dict(zip(heading, line, strict=True))
    assert (cells["MODE"], cells["HELD"], cells["LEFT OUT"]) == ("not watched", "22", "1")
    assert "approve-deletes" in cells["NOTICE"]
    with folder.watched():
        (row,) = _json(run("sources", "list", "--json"))["sources"]
        assert (row["watched"], row["watch_mode"]) == (True, "native")
        assert "\tnative\t" in run("sources", "list").stdout


def test_show_lists_what_is_left_out_and_what_is_held(folder: Folder, run: Run) -> None:
    folder.write("x.part")
    folder.write("empty.md", "")
    paths = _fill(folder, 25)
    for path in paths:
        path.unlink()
    folder.sweep()
    out = _json(run("sources", "show", "docs", "--left-out", "--json"))
    assert out["source"]["name"] == "docs"
    assert out["next_cursor"] is None
    assert [(row["path"], row["cause"]) for row in out["left_out"]] == [("empty.md", "empty"), ("x.part", "ignored")]
    assert "*.part (DOCWELL_IGNORE_NAMES)" in run("sources", "show", "docs", "--left-out").stdout
    held = _json(run("sources", "show", "docs", "--held", "--json"))["held"]
    assert [row["path"] for row in held] == [path.name for path in paths]
    assert "00.md" in run("sources", "show", "docs", "--held").stdout
    text = run("sources", "show", "docs").stdout
    assert "1 empty, 25 held, 1 ignored, 1 seen" in text
    assert run("sources", "show", "docs", "--held", "--left-out").exit_code == 2


def test_sync_asks_and_with_wait_tells_what_the_sweep_found(folder: Folder, run: Run) -> None:
    folder.write("a.md", age=60)
    with folder.watched():
        row = _json(run("sources", "sync", "docs", "--wait", "--json"))
        assert row["sweep_requested"] is None
        assert (row["sweep_counts"]["seen"], row["newest_sweep"] is not None) == (1, True)
        assert _json(run("sources", "sync", "docs", "--json"))["name"] == "docs"
        (folder.root / ".docwellignore").mkdir()
        failed = run("sources", "sync", "docs", "--wait")
        assert isinstance(failed.exception, PermanentError)
        assert "its rules are not known" in str(failed.exception)


def test_sync_without_a_watcher_says_so_and_leaves_the_request_to_the_next_one(folder: Folder, run: Run) -> None:
    waited = run("sources", "sync", "docs", "--wait")
    assert isinstance(waited.exception, ServiceUnavailable)
    assert "docwell up" in str(waited.exception)
    asked = run("sources", "sync", "docs")
    assert asked.exit_code == 0
    assert "No watcher looks after source docs" in asked.stderr
    with folder.watched():
        _json(run("sources", "sync", "docs", "--wait", "--json"))
    assert folder.source.sweep_requested is None


def test_sync_gives_up_when_the_sweep_takes_longer_than_was_allowed(folder: Folder, run: Run) -> None:
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.source SET watcher_seen = now() + interval '1 minute'")
    waited = run("sources", "sync", "docs", "--wait", "--timeout", "0.5")
    assert isinstance(waited.exception, PermanentError)
    assert "did not end within 0.5 s" in str(waited.exception)


def test_pause_and_resume(folder: Folder, run: Run) -> None:
    assert _json(run("sources", "pause", "docs", "--json"))["paused"] is True
    assert "\tpaused\t" in run("sources", "list").stdout
    for command in ("pause", "sync"):
        refused = run("sources", command, "docs")
        assert isinstance(refused.exception, Conflict)
        assert "is paused" in str(refused.exception)
    back = _json(run("sources", "resume", "docs", "--json"))
    assert (back["paused"], back["sweep_requested"] is not None) == (False, True)
    assert isinstance(run("sources", "resume", "docs").exception, Conflict)


def test_held_deletes_are_approved_after_asking_and_done_by_the_next_sweep(folder: Folder, run: Run) -> None:
    assert isinstance(run("sources", "approve-deletes", "docs", "--yes").exception, Conflict)
    for path in _fill(folder, 25):
        path.unlink()
    folder.sweep()
    asked = run("sources", "approve-deletes", "docs")
    assert asked.exit_code == 2
    assert "Delete 25 documents of source docs" in asked.output
    assert folder.sweep().gone == 0
    with folder.watched():
        row = _json(run("sources", "approve-deletes", "docs", "--yes", "--wait", "--json"))
        assert (row["held_deletes"], row["approved_at"], row["sweep_error"]) == (0, None, None)
        assert row["sweep_counts"]["gone"] == 25
    folder.work()
    assert folder.documents() == {}


def test_remove_takes_the_documents_out_after_asking_and_says_how_the_source_returns(folder: Folder, run: Run) -> None:
    paths = _fill(folder, 5)
    assert run("sources", "remove", "docs").exit_code == 2
    assert len(folder.documents()) == 5
    done = _json(run("sources", "remove", "docs", "--yes", "--json"))
    assert (done["removed_documents"], done["source"]["documents"]) == (5, 0)
    assert done["source"]["removed_at"] is not None
    assert "docwell.toml" in done["returns"]
    assert folder.documents() == {}
    assert all(path.exists() for path in paths)
    assert _json(run("sources", "list", "--json"))["sources"] == []
    assert _json(run("sources", "show", "docs", "--json"))["removed_at"] is not None
    refused = run("sources", "sync", "docs")
    assert isinstance(refused.exception, Conflict)
    assert "was taken out" in str(refused.exception)
    assert _json(run("sources", "remove", "docs", "--yes", "--json"))["removed_documents"] == 0


@pytest.mark.parametrize(("kind", "cure"), [("manual", "docwell ingest PATH"), ("push", "push again")])
def test_what_nobody_looks_through_is_not_swept_but_can_be_removed(folder: Folder, run: Run, kind: str, cure: str) -> None:
    with folder.pool.connection() as connection:
        source = ensure_source(connection, kind, kind=kind)
        request_ingest(connection, source, ensure_namespace(connection, "default"), [Observed(name="a.md")])
    for command in ("sync", "pause", "resume", "approve-deletes"):
        refused = run("sources", command, kind)
        assert isinstance(refused.exception, Conflict)
        assert cure in str(refused.exception)
    done = _json(run("sources", "remove", kind, "--yes", "--json"))
    assert done["removed_documents"] == 1
    assert done["source"]["removed_at"] is None
    assert folder.documents() == {}


def test_a_source_that_is_not_there_is_a_failure_with_a_sentence(folder: Folder, run: Run) -> None:
    for command in ("show", "sync", "pause", "resume", "approve-deletes", "remove"):
        failed = run("sources", command, "nothing")
        assert isinstance(failed.exception, Unknown)
        assert "There is no source 'nothing'" in str(failed.exception)


def test_the_doctor_names_folders_that_nobody_watches_and_sweeps_that_met_trouble(folder: Folder, run: Run) -> None:
    def sources() -> dict[str, Any]:
        checks = json.loads(run("doctor", "--json").stdout)["checks"]
        return next(check for check in checks if check["check"] == "sources")

    assert "docs is watched by nobody" in sources()["finding"]
    with folder.watched():
        _json(run("sources", "sync", "docs", "--wait", "--json"))
        assert sources()["status"] == "ok"
        (folder.root / ".docwellignore").mkdir()
        run("sources", "sync", "docs", "--wait")
        found = sources()
        assert found["status"] == "warning"
        assert "its rules are not known" in found["finding"]
        assert "its rules are not known" in run("status").stdout


def test_a_document_whose_name_is_no_text_is_found_by_its_path_and_by_its_file(folder: Folder, run: Run) -> None:
    raw = os.fsdecode(b"caf\xe9.md")
    folder.write(raw)
    folder.sweep()
    for name in ("caf%E9.md", raw, str(folder.root / raw)):
        assert _json(run("documents", "show", name, "--json"))["document"]["path"] == "caf%E9.md"
        assert len(_json(run("documents", "list", "--path", Path(name).name, "--json"))["documents"]) == 1
