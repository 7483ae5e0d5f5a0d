"""What `compose.yaml` says, and what its services do: see `tests/compose_stack.py` for what stands for the containers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import redis
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from shared.usage import STREAM
from tests.compose_stack import (
    ROOT,
    SECRETS,
    SERVICES,
    Stack,
    container_redis,
    interpolate,
    standing,
    wait_until,
)
from tests.ports import free_port

OURS = ("embedder", "scheduler", "worker", "watcher", "api", "mcp")

ANSWER_SECONDS = 60.0


@pytest.fixture
def stack() -> Iterator[Stack]:
    with standing() as found:
        yield found


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
