"""The embedded Redis: one private socket, nothing on disk, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from kombu.connection import Connection

from infra.local.redis import EmbeddedRedis
from tests.integration.test_local_postgres import ROOT, wait_until

HOLD = """
import sys, time
from pathlib import Path
from infra.local.redis import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1]))
server.start()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(home)
    yield server
    server.stop()


def test_redis_py_and_kombu_reach_it_over_a_path_with_a_space(redis_url: str) -> None:
    assert "%20" in redis_url
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    path = redis_url.removeprefix("unix://").partition("?")[0]
    with Connection(f"redis+socket://{path}?virtual_host=0") as connection:  # type: ignore[no-untyped-call]
        queue = connection.SimpleQueue("test_local_redis")
        queue.put({"wake": "up"})
        message = queue.get(timeout=5)
        assert message.payload == {"wake": "up"}
        message.ack()
        queue.close()


def test_only_this_user_can_open_its_socket_and_no_port_is_open(server: EmbeddedRedis) -> None:
    server.start()
    assert server.socket.stat().st_mode & 0o777 == 0o700
    with redis.Redis.from_url(server.url) as client:
        assert client.config_get("port") == {"port": "0"} or client.config_get("port") == {b"port": b"0"}


def test_it_writes_nothing_to_disk(server: EmbeddedRedis) -> None:
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.set("a", "b")
    server.stop()
    assert not list(server.home.rglob("*.rdb"))
    assert not list(server.home.rglob("*.aof"))


def test_it_ends_with_a_launcher_that_is_killed_and_starts_again_over_the_stale_socket(server: EmbeddedRedis) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", HOLD, server.home], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "ready\n"
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    wait_until(lambda: not server.is_ready())
    server.start()
    assert server.is_ready()


def test_a_server_that_outlived_its_launcher_is_ended_by_the_next_start(server: EmbeddedRedis) -> None:
    server.start()
    stray = int((server.socket.parent / "redis.pid").read_text())
    successor = EmbeddedRedis(server.home)
    successor.start()
    try:
        assert int((server.socket.parent / "redis.pid").read_text()) != stray
        assert os.waitid(os.P_PID, stray, os.WEXITED | os.WNOWAIT) is not None
    finally:
        successor.stop()
