"""A whole Docwell of its own for a measurement: started as a user starts it, in a folder that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
READY = "Docwell is ready"
"""How the banner begins, which comes when everything is ready."""


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str, every: float = 0.005) -> float:
    """Poll until the condition holds; returns the seconds it took."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(every)
    return time.perf_counter() - began


@dataclass(kw_only=True)
class Instance:
    """One `docwell up` with its folders and ports."""

    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    log: list[str] = field(default_factory=list)
    _drain: threading.Thread | None = None

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    @property
    def services(self) -> dict[str, Any]:
        """What runs, and where."""
        loaded: dict[str, Any] = json.loads((self.folder / "home" / "run" / "services.json").read_text())
        return loaded

    def start(self) -> float:
        """Start it; returns the seconds until the ready banner."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.cli", "up"],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line)
            if READY in line:
                self._drain = threading.Thread(target=self.process.stdout.read, daemon=True)
                self._drain.start()
                return time.perf_counter() - began
        raise RuntimeError("docwell up ended:\n" + "".join(self.log))

    def stop(self) -> float:
        """Ctrl-C; returns the seconds until it ended."""
        began = time.perf_counter()
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.bury(60)
        return time.perf_counter() - began

    def bury(self, seconds: float) -> None:
        """Wait until it has ended, whatever ended it."""
        process, self.process = self.process, None
        if process is not None and process.stdout is not None:
            process.wait(seconds)
            if self._drain is not None:
                self._drain.join()
            process.stdout.close()

    def run(self, *arguments: str) -> Any:
        """One `docwell … --json`."""
        done = subprocess.run(
            [sys.executable, "-m", "infra.cli", *arguments, "--json"],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            raise RuntimeError(f"docwell {' '.join(arguments)}: {done.stderr}")
        return json.loads(done.stdout)

    def peak_memory(self) -> dict[str, int]:
        """The most memory that each process had at a time (VmHWM), in MiB, by its command."""
        peaks: dict[str, int] = {}
        for pid in descendants(self.process.pid if self.process else 0):
            status = _read(Path(f"/proc/{pid}/status"))
            name = process_name(pid)
            peak = next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
            peaks[name] = max(peak, peaks.get(name, 0))
        return dict(sorted(peaks.items()))


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _read(entry / "stat").rpartition(")")[2].split()
            if len(fields) > 1:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting.extend(children.get(found[-1], []))
    return found


def process_name(pid: int) -> str:
    """A short name of what runs: `docwell worker`, `parser`, `postgres`, `redis-server`."""
    arguments = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
    if "infra.cli" in arguments:
        return f"docwell {arguments[arguments.index('infra.cli') + 1]}"
    if any("parse.child" in argument for argument in arguments):
        return "parser"
    return Path(arguments[0].split(":")[0].split(" ")[0]).name or str(pid)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@contextmanager
def instance(settings: Mapping[str, str] | None = None) -> Iterator[Instance]:
    """An instance that is not started yet; stopped and removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="docwell-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "inbox").mkdir()
        clean = {key: value for key, value in os.environ.items() if not key.startswith("DOCWELL_")}
        environment = clean | {
            "DOCWELL_HOME": str(folder / "home"),
            "DOCWELL_INBOX": str(folder / "inbox"),
            "DOCWELL_API_PORT": str(free_port()),
            "DOCWELL_MCP_PORT": str(free_port()),
            **(settings or {}),
        }
        made = Instance(folder=folder, environment=environment)
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def running(settings: Mapping[str, str] | None = None) -> Iterator[Instance]:
    """An instance that is ready."""
    with instance(settings) as made:
        made.start()
        yield made
