"""The Docwell under attack: its processes, and what can be done to them. Only processes below its own supervisor are touched."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from infra.local.runtime import attach
from shared.config import Settings, load_settings
from tests.bench.ingesting import stub_settings
from tests.bench.instance import ROOT, Instance, descendants, instance, process_name
from tests.faults import embedder
from tests.faults.plan import Blow, BlowStep
from tests.faults.texts import CHUNK_TOKENS
from tests.ports import free_port

LEASE_SECONDS = 3.0
RESCAN_SECONDS = 8.0

SETTINGS = {
    "DOCWELL_CHUNK_TOKENS": str(CHUNK_TOKENS),
    "DOCWELL_CHUNK_OVERLAP": "0",
    "DOCWELL_WATCH_SETTLE_SECONDS": "0.3",
    "DOCWELL_WATCH_RESCAN_SECONDS": str(RESCAN_SECONDS),
    "DOCWELL_DELETE_GRACE_SECONDS": "0.6",
    "DOCWELL_JOB_LEASE_SECONDS": str(LEASE_SECONDS),
    "DOCWELL_WORKER_CONCURRENCY": "2",
}

_SERVICES = {
    Blow.WORKER: "docwell worker",
    Blow.WATCH: "docwell watch",
    Blow.SCHEDULER: "docwell scheduler",
    Blow.API: "docwell api",
    Blow.MCP: "docwell mcp",
    Blow.REDIS: "redis-server",
    Blow.POSTGRES: "postgres",
}
_MOODS = {Blow.EMBEDDER_AWAY: "away", Blow.EMBEDDER_ERRORS: "errors", Blow.EMBEDDER_LIMITS: "limits"}


class Stage:
    """A running instance with the embedder that it uses."""

    def __init__(self, made: Instance, mood: Path) -> None:
        self.made = made
        self._mood = mood
        self._ending = threading.Event()

    @property
    def settings(self) -> Settings:
        """As a command of this instance has them."""
        return attach(load_settings(self.made.environment)[0])

    @property
    def api_url(self) -> str:
        return str(self.made.services["api_url"])

    def strike(self, step: BlowStep) -> bool:
        """Do it, and end it when it lasts; False when what it is for does not run at the moment."""
        rng = random.Random(step.draw)
        if step.blow is Blow.EVERYTHING:
            self._kill_everything()
            return True
        if step.blow is Blow.REDIS_FLUSHED:
            return self._flush()
        if step.blow in _MOODS:
            self._mood.write_text(_MOODS[step.blow])
            self._ending.wait(step.lasting)
            self._mood.write_text("ok")
            return True
        pids = self._targets(step.blow)
        if not pids:
            return False
        pid = rng.choice(pids)
        if step.blow is Blow.CHILD_PAUSED:
            return self._pause(pid, max(step.lasting, LEASE_SECONDS + 2.0))
        if step.blow is Blow.REDIS_HANGS:
            return self._pause(pid, step.lasting)
        return _signal(pid, signal.SIGKILL)

    def hurry(self) -> None:
        """End what lasts."""
        self._ending.set()

    def pid_of(self, blow: Blow) -> int | None:
        """The main process that this blow is for."""
        found = self._targets(blow)
        return found[0] if found else None

    def _targets(self, blow: Blow) -> Sequence[int]:
        main = self.made.process.pid if self.made.process is not None else 0
        names = {pid: process_name(pid) for pid in descendants(main)}
        parents = {pid: _parent(pid) for pid in names}
        if blow in _SERVICES:
            return [pid for pid, name in names.items() if name == _SERVICES[blow] and parents[pid] == main]
        if blow is Blow.REDIS_HANGS:
            return self._targets(Blow.REDIS)
        if blow in {Blow.CHILD, Blow.CHILD_PAUSED}:
            return [pid for pid, name in names.items() if name == "docwell worker" and parents[pid] != main]
        if blow is Blow.PARSER:
            return [pid for pid, name in names.items() if name == "parser"]
        if blow is Blow.BACKEND:
            return [pid for pid, name in names.items() if name == "postgres" and "docwell" in _title(pid)]
        raise ValueError(blow)

    def _flush(self) -> bool:
        with suppress(redis.RedisError), redis.Redis.from_url(self.made.services["redis_url"], socket_timeout=1) as client:
            client.flushall()
            return True
        return False

    def _pause(self, pid: int, seconds: float) -> bool:
        if not _signal(pid, signal.SIGSTOP):
            return False
        try:
            self._ending.wait(seconds)
        finally:
            _signal(pid, signal.SIGCONT)
        return True

    def _kill_everything(self) -> None:
        """As when the machine loses its power; then it starts again."""
        assert self.made.process is not None
        everything = descendants(self.made.process.pid)
        for pid in everything:
            _signal(pid, signal.SIGKILL)
        self.made.bury(60)
        self.made.start()


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


@contextmanager
def open_stage(**settings: str) -> Iterator[Stage]:
    """A ready instance of its own; stopped and removed afterwards."""
    port = free_port()
    chosen = {**SETTINGS, **stub_settings(f"http://127.0.0.1:{port}/v1"), **settings, "PYTHONPATH": str(ROOT)}
    with instance(chosen) as made:
        mood = made.folder / "mood"
        mood.write_text("ok")
        server = subprocess.Popen([sys.executable, "-m", embedder.__name__, str(port), str(mood)], cwd=ROOT)
        try:
            made.start()
            yield Stage(made, mood)
        finally:
            server.kill()
            server.wait()
