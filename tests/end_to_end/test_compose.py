"""`compose.yaml` without an engine for containers: each service's own command, environment and health check, as processes.

What stands for a container: host names become loopback, published and inner ports become free ones, mounts become folders,
and the images' `docwell` and `python` are this interpreter. PostgreSQL gets its roles from the SQL that its container runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import redis
import yaml  # type: ignore[import-untyped]
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from infra.local.postgres import EmbeddedPostgres
from infra.local.redis import redis_program
from shared.usage import STREAM
from tests.conftest import passable_folder

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("embedder", "scheduler", "worker", "watcher", "api", "mcp")
SECRETS = ("POSTGRES_PASSWORD", "DOCWELL_OWNER_PASSWORD", "DOCWELL_READER_PASSWORD", "DOCWELL_API_TOKENS", "DOCWELL_MCP_TOKENS")

START_SECONDS = 90.0
ANSWER_SECONDS = 60.0


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@pytest.fixture
def stack() -> Iterator[Stack]:
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


# --- what the file says


def test_compose_refuses_to_start_without_each_secret_and_says_which() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    complete = dict.fromkeys(SECRETS, "x")
    interpolate(text, complete)
    for name in SECRETS:
        with pytest.raises(KeyError, match=f"Set {name} in .env"):
            interpolate(text, complete | {name: ""})


def test_the_example_of_an_env_file_names_every_variable_that_compose_reads_and_no_other() -> None:
    read = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text(encoding="utf-8")))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE)) == read
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]+)\}", (ROOT / "compose.yaml").read_text(encoding="utf-8")))
    shown = dict(re.findall(r"^#([A-Z_]+)=(.+)$", example, re.MULTILINE))
    assert {name: shown[name] for name in defaults} == defaults


def test_nothing_is_published_beyond_loopback_by_default() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert interpolate(port, {}).startswith("127.0.0.1:"), name


@pytest.mark.parametrize("name", [*OURS, "migrate"])
def test_our_containers_are_unprivileged_and_read_only(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in service
    assert not interpolate(service["user"], {}).startswith("0")


def test_watcher_and_worker_see_the_inbox_at_the_same_path() -> None:
    assert SERVICES["watcher"]["volumes"] == SERVICES["worker"]["volumes"]
    assert SERVICES["watcher"]["environment"]["DOCWELL_INBOX"] == SERVICES["worker"]["volumes"][0].split(":")[-2]


def test_the_mcp_server_gets_no_password_but_the_readers() -> None:
    environment = SERVICES["mcp"]["environment"]
    assert "DOCWELL_DATABASE_URL" not in environment
    assert "DOCWELL_OWNER_PASSWORD" not in str(environment)


def test_the_dockerfile_copies_only_what_exists_and_has_a_target_for_each_image() -> None:
    dockerfile = (ROOT / "infra/docker/Dockerfile").read_text(encoding="utf-8")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE))
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile, re.MULTILINE):
        assert (ROOT / source).exists(), source
        assert f"!{Path(source).parts[0]}" in ignored, source
    for source in re.findall(r"^COPY --from=(\S+) ", dockerfile, re.MULTILINE):
        assert source in stages
    for name, service in SERVICES.items():
        if "build" in service:
            assert service["build"]["target"] in stages, name
            assert (ROOT / service["build"]["dockerfile"]).exists()


def test_every_image_from_elsewhere_is_pinned_by_a_tag() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    dockerfile = (ROOT / "infra/docker/Dockerfile").read_text(encoding="utf-8")
    images += re.findall(r"^ARG PYTHON=(\S+)$", dockerfile, re.MULTILINE)
    assert len(images) == 3
    for image in images:
        assert re.search(r":\d+\.\d+", image), image


def test_the_dockerfile_installs_all_that_builds_the_wheel_from_the_lock() -> None:
    dockerfile = (ROOT / "infra/docker/Dockerfile").read_text(encoding="utf-8")
    taken = re.search(r"keep = /\^\(([^)]+)\)==/", dockerfile)
    assert taken is not None
    needed, waiting = set(), ["hatchling"]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        requirements = importlib.metadata.requires(name) or []
        waiting += [found for one in requirements if ";" not in one and (found := re.split(r"[^\w.-]", one)[0]) not in needed]
    assert set(taken[1].split("|")) == needed
    lock = (ROOT / "requirements/install.txt").read_text(encoding="utf-8")
    assert needed <= set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))


def test_the_mcp_container_may_add_to_the_usage_log_and_do_nothing_else_at_redis(tmp_path: Path) -> None:
    variables = {"DOCWELL_REDIS_PASSWORD": "a1", "DOCWELL_USAGE_REDIS_PASSWORD": "b2", "DOCWELL_USAGE_LOG": "ids"}
    port = free_port()
    stack = Stack(folder=tmp_path, variables=dict.fromkeys(SECRETS, "x") | variables, ports={"redis": port, "mcp": 1})
    mcp, scheduler = stack.environment("mcp", "mcp"), stack.environment("scheduler", "scheduler")
    assert mcp["DOCWELL_USAGE_LOG"] == "ids"
    assert "DOCWELL_REDIS_URL" not in mcp
    assert "DOCWELL_USAGE_REDIS_URL" not in scheduler
    with (
        container_redis(port, tmp_path, variables),
        redis.Redis.from_url(mcp["DOCWELL_USAGE_REDIS_URL"], protocol=2, driver_info=None) as server,
        redis.Redis.from_url(scheduler["DOCWELL_REDIS_URL"]) as owner,
        redis.Redis.from_url(f"redis://127.0.0.1:{port}/0") as stranger,
    ):
        wait_until(lambda: _takes(server), 10, lambda: (tmp_path / "redis.log").read_text(encoding="utf-8"))
        with pytest.raises(redis.ResponseError, match="no permissions"):
            server.xread({STREAM: "0"})
        with pytest.raises(redis.AuthenticationError):
            stranger.xlen(STREAM)
        assert owner.xlen(STREAM) == 1


def _takes(client: redis.Redis) -> bool:
    try:
        return bool(client.xadd(STREAM, {"event": "x"}))
    except redis.ConnectionError:
        return False


def test_the_query_image_holds_none_of_the_ingest_sides_packages() -> None:
    lock = (ROOT / "requirements/query.txt").read_text(encoding="utf-8")
    held = set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    assert "mcp" in held
    # redis-py writes the usage log, and is light; what belongs to the ingest side or asks a model is not there.
    assert not held & {"celery", "anthropic", "watchdog", "tree-sitter", "tree-sitter-language-pack", "pypdfium2", "fastapi"}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose_accepts_the_file_and_names_a_missing_token(tmp_path: Path) -> None:
    def config(variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
        argv = ["docker-compose", "--file", str(ROOT / "compose.yaml"), "config", "--quiet"]
        return subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    complete = dict.fromkeys(SECRETS, "x")
    accepted = config(complete)
    assert accepted.returncode == 0, accepted.stderr
    refused = config(complete | {"DOCWELL_MCP_TOKENS": ""})
    assert refused.returncode != 0
    assert "Set DOCWELL_MCP_TOKENS in .env" in refused.stderr


# --- the file, run


async def ask(url: str, token: str, query: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as http, Client(streamable_http_client(url, http_client=http)) as client:
        answer = await client.call_tool("search_documents", {"query": query})
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    results: list[dict[str, Any]] = answer.structured_content["results"]
    return results


@pytest.mark.timeout(300)
def test_a_file_in_the_inbox_is_found_over_mcp_through_the_services_of_compose(stack: Stack) -> None:
    migrate = subprocess.run(
        stack.argv(SERVICES["migrate"]["command"]),
        env=stack.environment("migrate", "migrate"),
        cwd=stack.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrate.returncode == 0, migrate.stderr
    for name in OURS:
        stack.start(name)
    for name in OURS:
        stack.wait_healthy(name)

    # More workers, as with `--scale worker=2`; each container has a run folder of its own.
    stack.start("worker", "worker-2")
    stack.wait_healthy("worker", "worker-2")

    note = stack.inbox / "heron.md"
    note.write_text("# Birds\n\nThe grey heron stands still at the pond for hours.\n", encoding="utf-8")
    mcp_url = f"http://127.0.0.1:{stack.ports['mcp']}/mcp"
    token = stack.variables["DOCWELL_MCP_TOKENS"]
    found: list[dict[str, Any]] = []

    def is_found() -> bool:
        found[:] = asyncio.run(ask(mcp_url, token, "grey heron at the pond"))
        # While the model warms the keyword leg answers alone.
        return bool(found) and "semantic" in found[0]["matched_by"]

    wait_until(is_found, ANSWER_SECONDS, lambda: "\n".join(stack.log(name) for name in ("watcher", "worker", "mcp")))
    assert found[0]["path"] == "heron.md"

    # What the documents say to run inside of the containers.
    assert stack.execute("mcp", "docwell", "search", "grey heron", "--json")["results"][0]["path"] == "heron.md"
    assert stack.execute("worker", "docwell", "status", "--json")["documents"]["searchable"] == 1

    # Neither door opens without its token.
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(mcp_url, json=call, headers=accept).status_code == 401
    assert httpx.post(mcp_url, json=call, headers=accept | {"Authorization": "Bearer wrong"}).status_code == 401
    api_url = f"http://127.0.0.1:{stack.ports['api']}"
    assert httpx.get(f"{api_url}/v1/status").status_code == 401

    # The other way in: pushed over HTTP, and done by whichever worker is there when the first one has gone.
    assert stack.stop("worker") == 0, stack.log("worker")
    pushed = httpx.put(
        f"{api_url}/v1/documents/default/otter.md",
        content="The otter sleeps on its back, holding a paw of its neighbour.",
        headers={"Content-Type": "text/markdown", "Authorization": f"Bearer {stack.variables['DOCWELL_API_TOKENS']}"},
    )
    assert pushed.status_code == 202, pushed.text

    def is_found_too() -> bool:
        return any(one["path"] == "otter.md" for one in asyncio.run(ask(mcp_url, token, "how does the otter sleep")))

    wait_until(is_found_too, ANSWER_SECONDS, lambda: stack.log("worker-2"))

    for name in ("worker-2", "watcher", "scheduler", "api", "mcp", "embedder"):
        # A server may end by the signal itself, once it has finished its requests.
        assert stack.stop(name) in (0, -signal.SIGTERM), f"{name}: {stack.log(name)}"
