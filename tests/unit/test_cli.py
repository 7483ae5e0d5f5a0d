"""The command line's promises: exit codes, and answers on stdout only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.cli import main


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`docwell …` in this process, in an empty home and with no settings but those given; what nothing caught is raised."""
    for name in [name for name in os.environ if name.startswith("DOCWELL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOCWELL_HOME", str(tmp_path))

    def command(*arguments: str, **environment: str) -> Done:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["docwell", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(returncode=int(ended.value.code or 0), stdout=said.out, stderr=said.err)

    return command


@pytest.mark.parametrize(("argument", "code"), [("nonsense", 2), ("status", 3)])
def test_the_process_ends_with_the_code_and_says_why_on_stderr_alone(argument: str, code: int, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", argument],
        env=clean | {"DOCWELL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["search"], ["documents", "list", "--bogus"], ["jobs", "list", "--state", "done"]])
def test_wrong_usage_is_2(arguments: list[str], run: Run) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["search", " "], "give a question"),
        (["search", "x", "--kind", "foo"], "text, table, code"),
        (["search", "x", "--modified-after", "foo"], "2026-11-29"),
        (["search", "x", "--modified-before", "yesterday"], "2026-11-29"),
        (["search", "x", "--mode", "foo"], "semantic"),
        (["search", "x", "--limit", "0"], "greater than or equal to 1"),
        (["why", "x", "--as", "foo"], "group:NAME"),
    ],
)
def test_an_option_that_cannot_be_understood_is_2_and_says_what_is_allowed(arguments: list[str], allowed: str, run: Run) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert allowed in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["search", "x"], ["documents", "list"], ["ingest", "x"], ["migrate"]])
def test_without_a_running_docwell_it_is_3_and_says_how_to_start_one(arguments: list[str], run: Run) -> None:
    done = run(*arguments)
    assert done.returncode == 3
    assert "make run" in done.stderr
    assert done.stdout == ""


def test_an_unreachable_database_is_3(run: Run) -> None:
    done = run("documents", "list", DOCWELL_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 3
    assert "PostgreSQL cannot be reached" in done.stderr


def test_an_unknown_setting_is_2_and_names_the_nearest(run: Run) -> None:
    done = run("config", "show", DOCWELL_API_PROT="1")
    assert done.returncode == 2
    assert "DOCWELL_API_PORT" in done.stderr


def test_config_show_says_where_a_setting_comes_from_and_masks_secrets(run: Run) -> None:
    done = run("config", "show", "--json", DOCWELL_API_TOKENS="secret-one,secret-two")
    settings = json.loads(done.stdout)["settings"]
    assert settings["api_tokens"] == {"value": ["********", "********"], "origin": "DOCWELL_API_TOKENS"}
    assert settings["chunk_tokens"] == {"value": 480, "origin": "default"}
    assert "secret-one" not in done.stdout + done.stderr


def test_mcp_config_names_this_home(run: Run, tmp_path: Path) -> None:
    server = json.loads(run("mcp-config", "--json").stdout)["mcpServers"]["docwell"]
    assert server["env"] == {"DOCWELL_HOME": str(tmp_path)}
    assert server["args"] == ["mcp", "--transport", "stdio"]


def test_a_namespace_or_tag_that_cannot_be_is_wrong_usage(run: Run) -> None:
    for arguments in (["--namespace", "Bad NS"], ["--tag", "a,b"]):
        done = run("ingest", "x", *arguments)
        assert done.returncode == 2
