"""`docwell sources` for sources over the network: added, looked at before, shown, asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra.cli import make_app
from infra.cli.source_add import config_path
from ingest_worker.sources import registry
from shared.config import OtherSettings, load_settings
from shared.errors import ConfigurationError, PermanentError, ServiceUnavailable
from tests.conftest import Database
from tests.example_source import open_source
from tests.notes_server import TOKEN, Notes, serve_notes
from tests.remotes import follow

Run = Callable[..., Result]


@pytest.fixture
def notes() -> Iterator[Notes]:
    with serve_notes() as served:
        yield served


@pytest.fixture
def run(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` in a folder of its own, with a package installed that offers the type `notes`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")

    class Offered:
        name = "notes"
        load = staticmethod(lambda: open_source)

    monkeypatch.setattr(registry, "entry_points", lambda **_: [Offered()])
    return lambda *arguments, **options: CliRunner().invoke(make_app(), list(map(str, arguments)), **options)


def _json(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_a_folder_is_looked_at_before_it_is_added_and_the_configuration_keeps_its_comments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    for name, text in {"a.md": "text", "sub/b.pdf": "%PDF", "c.part": "x", "empty.md": ""}.items():
        (tmp_path / "docs" / name).write_text(text)
    config = tmp_path / "docwell.toml"
    config.write_text('# ours\nchunk_tokens = 300  # small\n\n[[sources]]\nname = "old"  # the first\nroot = "old"\n')
    arguments = ("sources", "add", "docs", "--type", "folder", "--root", "docs", "--tag", "x", "--set", "max_bytes=1000")
    found = _json(run(*arguments, "--dry-run", "--json"))
    assert found["written"] is None
    assert (found["preview"]["items"], found["preview"]["by_ending"], found["preview"]["whole"]) == (
        2,
        {".md": 1, ".pdf": 1},
        True,
    )
    assert found["preview"]["examples"] == ["a.md", "sub/b.pdf"]
    assert "docs" not in config.read_text()
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    written = config.read_text()
    assert written.startswith('# ours\nchunk_tokens = 300  # small\n\n[[sources]]\nname = "old"  # the first\nroot = "old"\n')
    added = load_settings({}, directory=tmp_path)[0].sources[1]
    assert (added.name, added.tags, added.max_bytes) == ("docs", ("x",), 1000)
    assert isinstance(run(*arguments).exception, ConfigurationError)


def test_the_table_of_what_is_pushed_is_added_without_a_look(run: Run, tmp_path: Path) -> None:
    arguments = ("sources", "add", "push", "--type", "push", "--set", "enrich=false")
    assert _json(run(*arguments, "--dry-run", "--json")) == {"source": "push", "type": "push", "written": None, "preview": None}
    assert run(*arguments).exit_code == 0
    (added,) = load_settings({}, directory=tmp_path)[0].sources
    assert (added.type, added.enrich) == ("push", False)
    assert "other" in str(run("sources", "add", "other", "--type", "push").exception)


def test_a_source_of_another_maker_is_added_after_it_was_reached(run: Run, notes: Notes, tmp_path: Path) -> None:
    for number in range(12):
        notes.write(f"n{number:03}", "text")
    arguments = ("sources", "add", "mine", "--type", "notes", "--set", f"url={notes.url}")
    refused = run(*arguments, "--set", "token=hush")
    assert isinstance(refused.exception, ConfigurationError)
    assert "--set token_file=PATH" in str(refused.exception)
    (tmp_path / "token").write_text("wrong")
    refused = run(*arguments, "--set", "token_file=token")
    assert isinstance(refused.exception, PermanentError)
    assert not (tmp_path / "docwell.toml").exists()
    (tmp_path / "token").write_text(TOKEN)
    seen = run(*arguments, "--set", "token_file=token", "--dry-run", "--limit", 7)
    assert "10 (there are more; raise --limit)" in seen.output
    assert run(*arguments, "--set", "token_file=token").exit_code == 0
    assert TOKEN not in (tmp_path / "docwell.toml").read_text()
    (added,) = load_settings({}, directory=tmp_path)[0].sources
    assert isinstance(added, OtherSettings)
    assert (added.name, added.options) == ("mine", {"url": notes.url, "token": TOKEN})


def test_a_source_that_is_away_or_refuses_us_is_not_written(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    arguments = ["sources", "add", "wiki", "--type", "confluence", "--set", f"api_token_file={secret}"]
    # Names that look like numbers are names.
    result = run(*arguments, "--set", "base_url=http://127.0.0.1:1", "--set", "username=2026", "--set", "spaces=INF")
    assert isinstance(result.exception, ServiceUnavailable), result.exception
    assert not (tmp_path / "docwell.toml").exists()
    result = run(*arguments, "--set", "base_ulr=http://127.0.0.1:1")
    assert isinstance(result.exception, ConfigurationError)
    assert "base_url" in str(result.exception)


@pytest.fixture
def configured(notes: Notes, tmp_path: Path) -> Notes:
    (tmp_path / "docwell.toml").write_text(
        f'[[sources]]\nname = "notes"\ntype = "notes"\nurl = "{notes.url}"\ntoken = "{TOKEN}"\npermissions = false\n'
    )
    return notes


def test_show_tells_how_far_a_source_is_followed_and_what_failed(run: Run, database: Database, configured: Notes) -> None:
    for number in range(12):
        configured.write(f"n{number:03}", "text")
    configured.fail("/notes/n003/text", 500)
    with follow(database.url, configured) as followed:
        followed.settle()
        followed.event("n001")
    shown = _json(run("sources", "show", "notes", "--json"))
    assert (shown["documents"], shown["type"], shown["sweep_error"]) == (11, "notes", None)
    remote = shown["remote"]
    assert (remote["items"], remote["failed"], remote["breaker"], remote["events_waiting"]) == (12, 1, "closed", 1)
    (failed,) = _json(run("sources", "show", "notes", "--failed", "--json"))["failed"]
    assert (failed["key"], failed["code"], failed["attempts"]) == ("n003", "server_error", 1)
    assert "breaker" in run("sources", "show", "notes").output
    assert shown["address"] == configured.url
    assert f"\t{configured.url}\t" in run("sources", "list").stdout
    (found,) = (one for one in json.loads(run("doctor", "--json").stdout)["checks"] if one["check"] == "sources")
    assert "notes is watched by nobody" in found["finding"]
    assert "1 of the things of notes could not be taken" in found["finding"]
    config_path().unlink()  # asked from elsewhere, whom its watcher asks is known all the same
    (row,) = _json(run("sources", "list", "--json"))["sources"]
    assert row["address"] == "notes:notes"


def test_a_dry_run_says_what_a_sync_would_do_and_does_none_of_it(run: Run, database: Database, configured: Notes) -> None:
    for number in range(5):
        configured.write(f"n{number}", "text")
    assert _json(run("sources", "show", "notes", "--dry-run", "--json"))["preview"]["new"] == 5  # before it is followed
    with follow(database.url, configured) as followed:
        followed.settle()
        configured.write("n0", "changed")
        configured.change("n1", title="Another")
        configured.change("n2", path="moved.md")
        configured.delete("n3")
        configured.write("new", "text")
        configured.asked.clear()
        found = _json(run("sources", "sync", "notes", "--dry-run", "--json"))["preview"]
        assert {key: found[key] for key in ("new", "changed", "facts", "moved", "unchanged", "gone")} == {
            "new": 1,
            "changed": 1,
            "facts": 1,
            "moved": 1,
            "unchanged": 1,
            "gone": 1,
        }
        assert set(configured.asked) == {"/notes"}
        assert followed.source.sweep_requested is None
        assert len(followed.documents()) == 5


def test_pause_and_sync_work_for_a_remote_source(run: Run, database: Database, configured: Notes) -> None:
    configured.write("a", "text")
    with follow(database.url, configured) as followed:
        followed.settle()
        assert _json(run("sources", "pause", "notes", "--json"))["paused"]
        configured.write("a", "changed")
        followed.settle(100_000)
        assert followed.texts() == {"a.md": "text"}
        assert not _json(run("sources", "resume", "notes", "--json"))["paused"]
        followed.settle()
        assert followed.texts() == {"a.md": "changed"}
        result = run("sources", "sync", "notes")
        assert result.exit_code == 0
        assert "No watcher looks after source notes" in result.stderr
