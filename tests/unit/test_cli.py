"""The command line's promises: exit codes, and answers on stdout only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    return subprocess.run(
        [sys.executable, "-m", "infra.cli", *arguments],
        env=clean | {"DOCWELL_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["search"], ["documents", "list", "--bogus"], ["jobs", "list", "--state", "done"]]
)
def test_wrong_usage_is_2(arguments: list[str], tmp_path: Path) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


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
def test_an_option_that_cannot_be_understood_is_2_and_says_what_is_allowed(
    arguments: list[str], allowed: str, tmp_path: Path
) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 2
    assert allowed in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["search", "x"], ["documents", "list"], ["status"], ["ingest", "x"], ["migrate"]])
def test_without_a_running_docwell_it_is_3_and_says_how_to_start_one(arguments: list[str], tmp_path: Path) -> None:
    done = run(*arguments, home=tmp_path)
    assert done.returncode == 3
    assert "make run" in done.stderr
    assert done.stdout == ""


def test_an_unreachable_database_is_3(tmp_path: Path) -> None:
    done = run("documents", "list", home=tmp_path, DOCWELL_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 3
    assert "PostgreSQL cannot be reached" in done.stderr


def test_an_unknown_setting_is_2_and_names_the_nearest(tmp_path: Path) -> None:
    done = run("config", "show", home=tmp_path, DOCWELL_API_PROT="1")
    assert done.returncode == 2
    assert "DOCWELL_API_PORT" in done.stderr


def test_config_show_says_where_a_setting_comes_from_and_masks_secrets(tmp_path: Path) -> None:
    done = run("config", "show", "--json", home=tmp_path, DOCWELL_API_TOKENS="secret-one,secret-two")
    settings = json.loads(done.stdout)["settings"]
    assert settings["api_tokens"] == {"value": ["********", "********"], "origin": "DOCWELL_API_TOKENS"}
    assert settings["chunk_tokens"] == {"value": 480, "origin": "default"}
    assert "secret-one" not in done.stdout + done.stderr


def test_mcp_config_names_this_home(tmp_path: Path) -> None:
    server = json.loads(run("mcp-config", "--json", home=tmp_path).stdout)["mcpServers"]["docwell"]
    assert server["env"] == {"DOCWELL_HOME": str(tmp_path)}
    assert server["args"] == ["mcp", "--transport", "stdio"]


def test_a_namespace_or_tag_that_cannot_be_is_wrong_usage(tmp_path: Path) -> None:
    for arguments in (["--namespace", "Bad NS"], ["--tag", "a,b"]):
        done = run("ingest", "x", *arguments, home=tmp_path)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
