"""`docwell up`, whole: from an empty folder to a cited passage, through a kill, a restart and an orderly stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.local.folders import exclusive, prepare_home
from infra.local.runtime import lock_path, services_path
from tests.ports import free_port

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(400)

SECRETS = {
    "DOCWELL_WEBHOOK_SECRETS": ("whsec_b3VycyBpcyBhIHNlY3JldCB0aGF0", "IGlzIGxvbmcgZW5vdWdo", {"api"}),
    "DOCWELL_API_TOKENS": ("a-token-of-the-api", "", {"api"}),
    "DOCWELL_MCP_TOKENS": ("a-token-of-the-mcp-server", "", {"mcp"}),
    "ANTHROPIC_API_KEY": ("sk-ant-not-a-key", "", {"worker", "scheduler"}),
    "DOCWELL_EMBEDDING_API_KEY": ("sk-embedding-not-a-key", "", {"worker", "mcp"}),
    "DOCWELL_DOCUMENT_PASSWORDS": ("open-sesame-of-documents", "", {"worker"}),
}
"""How each begins and ends, and who may have it."""


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@dataclass(kw_only=True)
class Installation:
    """A home with an inbox, and the command line that works on it."""

    home: Path
    ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))

    @property
    def inbox(self) -> Path:
        return self.home.parent / "inbox"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
        return kept | {
            "PYTHONPATH": str(ROOT),
            "DOCWELL_HOME": str(self.home),
            "DOCWELL_INBOX": str(self.inbox),
            "DOCWELL_API_PORT": str(self.ports[0]),
            "DOCWELL_MCP_PORT": str(self.ports[1]),
            "DOCWELL_WATCH_SETTLE_SECONDS": "0.2",
            **{variable: f"{mark}{end}" for variable, (mark, end, _) in SECRETS.items()},
        }

    def knowing(self) -> dict[str, set[str]]:
        """For each secret, the services of whose processes one has it in its environment."""
        found: dict[str, set[str]] = {variable: set() for variable in [*SECRETS, "DOCWELL_DATABASE_URL"]}
        for pid, words in self.processes().items():
            service = re.search(r" -m infra\.cli (\w+)", words)
            # Anything else that is ours: PostgreSQL, Redis, the parsers' cage.
            name = service[1] if service else Path(words.split(" ")[0]).name
            with contextlib.suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                for variable, named in found.items():
                    mark = f"{variable}=" if variable not in SECRETS else SECRETS[variable][0]
                    if mark.encode() in environment and name != "up":
                        named.add(name)
        return found

    def argv(self, *command: str) -> list[str]:
        return [sys.executable, "-P", "-m", "infra.cli", *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command),
            env=self.environment,
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @contextlib.contextmanager
    def up(self) -> Iterator[subprocess.Popen[str]]:
        """`docwell up`, ready; killed at the end if it still runs."""
        process = subprocess.Popen(
            self.argv("up"),
            env=self.environment,
            cwd=self.home.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self.said = self._until_ready(process)
            yield process
        finally:
            process.kill()
            process.communicate()

    def _until_ready(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        said = ""
        while "  Logs:" not in said:  # the banner's last line
            line = process.stdout.readline()
            assert line, f"it ended before it was ready:\n{said}"
            said += line
        return said

    def found(self, query: str) -> list[str]:
        """The paths that a search finds."""
        done = self.run("search", query, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return [result["path"] for result in answer["results"]]

    def processes(self) -> dict[int, str]:
        """Every process that has to do with this home: by its environment, its arguments or its working directory."""
        mark = os.fsencode(self.home)
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(entry.name) == os.getpid():
                    continue
                words = (entry / "cmdline").read_bytes()
                if mark in words or mark in (entry / "environ").read_bytes() or mark in os.fsencode((entry / "cwd").readlink()):
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
        return found


@pytest.fixture
def installation(home: Path) -> Installation:
    return Installation(home=home)


def test_a_file_is_found_and_stays_found_through_a_kill_a_restart_and_an_orderly_stop(installation: Installation) -> None:
    installation.inbox.mkdir()
    (installation.inbox / "billing.md").write_text("# Billing\n\nTo cancel an invoice, open the ledger and press Cancel.\n")
    with installation.up() as process:
        # What lay in the inbox before the start, and what is dropped into it afterwards.
        wait_until(lambda: "billing.md" in installation.found("cancel an invoice"))
        (installation.inbox / "garden.md").write_text("# Garden\n\nRoses are cut back in March, before new leaves come.\n")
        wait_until(lambda: "garden.md" in installation.found("when are roses cut back"))

        for said in (str(installation.inbox), f"http://127.0.0.1:{installation.ports[0]}", f":{installation.ports[1]}/mcp"):
            assert said in installation.said
        assert "claude mcp add docwell --env" in installation.said
        assert services_path(installation.home).stat().st_mode & 0o777 == 0o600
        writers = {"api", "worker", "watch", "scheduler"}
        expected = {variable: services for variable, (_, _, services) in SECRETS.items()} | {"DOCWELL_DATABASE_URL": writers}
        assert installation.knowing() == expected
        told = json.loads(installation.run("status", "--json").stdout)["services"]
        assert {one["name"]: one["state"] for one in told} == dict.fromkeys(
            ["embedder", "postgres", "redis", "mcp", "api", "worker", "watch", "scheduler"], "running"
        )

        second = installation.run("up")
        assert second.returncode != 0
        assert f"Docwell already runs in {installation.home} (pid {process.pid})" in second.stderr

        process.kill()
        process.wait()
        wait_until(lambda: not installation.processes(), 30.0)

    alone = installation.run("search", "roses")
    assert alone.returncode == 3
    assert "make run" in alone.stderr

    with installation.up() as process:
        assert "billing.md" in installation.found("cancel an invoice")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    # What it ended by force is gone when the system has cleared it away.
    wait_until(lambda: not installation.processes(), 10.0)
    assert not services_path(installation.home).exists()


def test_a_port_that_is_taken_is_named_with_the_setting_before_anything_starts(installation: Installation) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", installation.ports[1]))
        taken.listen()
        done = installation.run("up")
    assert done.returncode != 0
    assert f"Port {installation.ports[1]} on 127.0.0.1 is used by another program" in done.stderr
    assert "DOCWELL_MCP_PORT" in done.stderr
    assert not (installation.home / "postgres").exists()


def test_a_second_up_on_the_same_home_is_refused_with_the_first_ones_number(installation: Installation) -> None:
    prepare_home(installation.home)
    with exclusive(lock_path(installation.home)):
        lock_path(installation.home).write_text("4242\n")
        done = installation.run("up")
    assert done.returncode != 0
    assert f"Docwell already runs in {installation.home} (pid 4242)" in done.stderr
