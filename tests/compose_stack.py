"""The services of `compose.yaml` as processes, without an engine for containers: own commands, environments and health checks.

What stands for a container: host names become loopback, published and inner ports become free ones, mounts become folders,
and the images' `docwell` and `python` are this interpreter. PostgreSQL gets its roles from the SQL that its container runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from infra.local.postgres import EmbeddedPostgres
from infra.local.redis import redis_program
from tests.ports import free_port
from tests.scratch import passable_folder

ROOT = Path(__file__).resolve().parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SECRETS = ("POSTGRES_PASSWORD", "DOCWELL_OWNER_PASSWORD", "DOCWELL_READER_PASSWORD", "DOCWELL_API_TOKENS", "DOCWELL_MCP_TOKENS")

START_SECONDS = 90.0


# --- reading the file as compose does


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `${NAME:?message}`; the last raises KeyError with its message."""

    def value(match: re.Match[str]) -> str:
        name, operator, rest = match["name"], match["operator"], match["rest"]
        found = variables.get(name, "")
        if found == "" and operator == ":?":
            raise KeyError(rest)
        return found or (rest if operator == ":-" else "")

    return re.sub(r"\$\{(?P<name>\w+)(?:(?P<operator>:-|:\?)(?P<rest>[^}]*))?\}", value, text)


@dataclass(kw_only=True)
class Stack:
    """The services of the file that run here, by name, and what stands for their network and volumes."""

    folder: Path
    variables: dict[str, str]
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def inbox(self) -> Path:
        return self.folder / "inbox"

    def home(self, name: str) -> Path:
        return self.folder / name

    def localise(self, text: str) -> str:
        """Host names and ports of the file, as they are here."""
        text = interpolate(text, self.variables)
        for host, port in self.ports.items():
            text = re.sub(rf"(//|@){host}:\d+", rf"\g<1>127.0.0.1:{port}", text)
        return text

    def environment(self, service: str, name: str) -> dict[str, str]:
        """The container's whole environment: what the image sets, what the file sets, and nothing of ours."""
        home = self.home(name)
        (home / "run").mkdir(parents=True, exist_ok=True)
        found = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "DOCWELL_HOME": str(home), "DOCWELL_LOG_FORMAT": "json"}
        for variable, value in SERVICES[service].get("environment", {}).items():
            mounted = {"/inbox": str(self.inbox), "/etc/docwell/docwell.toml": str(ROOT / "infra" / "docker" / "docwell.toml")}
            found[variable] = mounted.get(value) or self.localise(str(value))
            if variable.endswith("_PORT"):
                found[variable] = str(self.ports[service])
        return found

    def argv(self, command: Sequence[str]) -> list[str]:
        program, *rest = command
        return [sys.executable, "-m", "infra.cli", *rest] if program == "docwell" else [sys.executable, *rest]

    def start(self, service: str, name: str | None = None) -> None:
        name = name or service
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                self.argv(SERVICES[service]["command"]),
                env=self.environment(service, name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_healthy(self, service: str, name: str | None = None) -> bool:
        """What the file's own health check says."""
        kind, *command = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        environment = self.environment(service, name or service)
        done = subprocess.run(self.argv(command), env=environment, cwd=self.folder, capture_output=True, check=False)
        return done.returncode == 0

    def wait_healthy(self, service: str, name: str | None = None) -> None:
        name = name or service

        def healthy() -> bool:
            assert self.processes[name].poll() is None, f"{name} ended: {self.log(name)}"
            return self.is_healthy(service, name)

        wait_until(healthy, START_SECONDS, lambda: f"{name} is not healthy: {self.log(name)}")

    def execute(self, name: str, *command: str) -> Any:
        """As `docker compose exec`: a command beside the process, in its environment; what it prints is one JSON document."""
        environment = self.environment(name, name)
        done = subprocess.run(self.argv(command), env=environment, cwd=self.folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-3000:]

    def stop(self, name: str) -> int:
        """As an engine stops a container: SIGTERM, and SIGKILL after the grace period, which fails the test."""
        service = name.rpartition("-")[0] or name
        grace = float(str(SERVICES[service].get("stop_grace_period", "10s")).removesuffix("s"))
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"{name} did not stop within {grace:g} s: {self.log(name)}") from None

    def kill_all(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(condition: Callable[[], bool], seconds: float, explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


# --- the services that are not ours


class ContainerPostgres(EmbeddedPostgres):
    """On a TCP port with passwords, and with the roles that the container's own SQL makes."""

    def __init__(self, home: Path, port: int, variables: Mapping[str, str]) -> None:
        command = [interpolate(part, variables) for part in SERVICES["postgres"]["command"]]
        settings = dict(part.split("=", 1) for flag, part in itertools.pairwise(command) if flag == "-c")
        super().__init__(home, settings={**settings, "listen_addresses": "127.0.0.1", "port": str(port), "fsync": "off"})
        self._port = port
        self._variables = dict(variables)

    @property
    def superuser_conninfo(self) -> str:
        return f"{super().superuser_conninfo} port={self._port}"

    def prepare(self) -> None:
        super().prepare()
        # As in the image: trusted on the socket, a password over TCP.
        rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (self.placement.data / "pg_hba.conf").write_text(rules, encoding="ascii")

    def provision(self) -> None:
        for script in sorted((ROOT / "infra/docker/postgres").glob("*.sql")):
            environment = self.environment | {
                name: interpolate(value, self._variables)
                for name, value in SERVICES["postgres"]["environment"].items()
                if name.endswith("_PASSWORD")
            }
            psql = self.placement.programs / "bin" / "psql"
            connection = f"{self.superuser_conninfo} dbname=postgres"
            subprocess.run([psql, "--no-psqlrc", "--quiet", connection, "-f", script], env=environment, check=True, timeout=60)


@contextlib.contextmanager
def container_redis(port: int, folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """The file's own command, on loopback."""
    _, *options = (interpolate(part, variables or {}) for part in SERVICES["redis"]["command"])
    argv = [str(redis_program()), *options, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as link:
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith((b"+PONG", b"-NOAUTH"))
            return False

        wait_until(answers, 30, lambda: "Redis does not answer")
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def standing() -> Iterator[Stack]:
    with passable_folder() as folder:
        ports = {name: free_port() for name in ("postgres", "redis", "embedder", "api", "mcp")}
        variables = {name: secrets.token_urlsafe(24) for name in SECRETS} | {"DOCWELL_WORKER_CONCURRENCY": "1"}
        # A password may hold any character.
        variables["DOCWELL_OWNER_PASSWORD"] += "@:/?#'\" %$"
        found = Stack(folder=folder, variables=variables, ports=ports)
        found.inbox.mkdir()
        postgres = ContainerPostgres(folder / "postgres", ports["postgres"], variables)
        try:
            postgres.start()
            with container_redis(ports["redis"], folder, variables):
                try:
                    yield found
                finally:
                    found.kill_all()
        finally:
            postgres.stop()
