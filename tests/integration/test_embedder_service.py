"""The embedder process and its client, with the real model, over a real socket."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest
import uvicorn

from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from shared.embedding.protocol import Embedder, Role
from shared.embedding.remote import RemoteEmbedder
from shared.embedding.service import EmbedderService
from shared.embedding.wire import MAX_BYTES, MAX_TEXTS
from shared.errors import ConfigurationError, PermanentError, ServiceUnavailable

SERVE = "import sys; from shared.config import Settings; from shared.embedding.service import serve; serve(Settings(**{}))"


def wait_until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@contextmanager
def running(service: EmbedderService) -> Iterator[str]:
    """The service on a free port of loopback: its URL."""
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def client(url: str, **patience: float) -> Iterator[RemoteEmbedder]:
    remote = RemoteEmbedder(url, **patience)
    try:
        yield remote
    finally:
        remote.close()


@pytest.fixture(scope="module")
def local() -> Embedder:
    return LocalEmbedder(bundled_model_dir(), threads=2)


@pytest.fixture(scope="module")
def url(local: Embedder) -> Iterator[str]:
    with running(EmbedderService(lambda: local)) as address:
        wait_until(lambda: httpx.get(f"{address}/readyz").is_success)
        yield address


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="embedder "))
    yield path
    shutil.rmtree(path)


def test_the_client_gets_the_vectors_that_the_model_makes(url: str, local: Embedder) -> None:
    texts = ["Wie kündige ich?", "每天需要多少蛋白质？", "", "broken \ud800 surrogate"] + [f"passage {n}" for n in range(70)]
    with client(url) as remote:
        assert remote.fingerprint == local.fingerprint
        for role in Role:
            np.testing.assert_allclose(remote.embed(texts, role), local.embed(texts, role), atol=1e-4)
        assert remote.embed([], Role.PASSAGE).shape == (0, 384)


def test_a_query_is_answered_while_passages_are_being_embedded(url: str) -> None:
    passages = [f"{n} " + "Der Vertrag endet mit dem Ablauf der vereinbarten Frist. " * 14 for n in range(24)]
    ended: dict[str, float] = {}

    def embed(name: str, texts: list[str], role: Role) -> None:
        with client(url) as remote:
            remote.embed(texts, role)
        ended[name] = time.monotonic()

    ingest = threading.Thread(target=embed, args=("passages", passages, Role.PASSAGE))
    begin = time.monotonic()
    ingest.start()
    for number in range(3):
        embed(f"query {number}", ["Wann endet der Vertrag?"], Role.QUERY)
    ingest.join()
    assert max(ended[f"query {number}"] for number in range(3)) < ended["passages"]
    assert ended["query 2"] - begin < (ended["passages"] - begin) * 0.8


def test_requests_that_are_too_large_or_no_requests_are_refused(url: str) -> None:
    def status(content: bytes) -> tuple[int, str]:
        answer = httpx.post(f"{url}/embed", content=content)
        return answer.status_code, answer.json()["code"]

    many = json.dumps({"texts": ["x"] * (MAX_TEXTS + 1), "role": "query"}).encode()
    assert status(many) == (413, "request_too_large")
    assert status(b"x" * (MAX_BYTES + 1)) == (413, "request_too_large")
    for wrong in (b"", b"[]", b'{"texts": [1], "role": "query"}', b'{"texts": ["a"], "role": "both"}', b"\xff"):
        assert status(wrong) == (400, "request_invalid")


def test_a_text_that_no_request_can_hold_is_refused_with_the_reason(url: str) -> None:
    with client(url) as remote, pytest.raises(PermanentError, match="at most"):
        remote.embed(["x" * (MAX_BYTES + 1)], Role.PASSAGE)


def test_health_is_answered_while_the_model_is_loaded_and_embedding_says_warming(local: Embedder) -> None:
    loaded = threading.Event()

    def load() -> Embedder:
        loaded.wait(30)
        return local

    with running(EmbedderService(load)) as address, client(address, query_patience=0.1) as remote:
        assert httpx.get(f"{address}/healthz").is_success
        assert httpx.get(f"{address}/readyz").status_code == 503
        answer = httpx.post(f"{address}/embed", json={"texts": ["a"], "role": "query"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        with pytest.raises(ServiceUnavailable) as caught:
            remote.embed(["a"], Role.QUERY)
        assert caught.value.code == "embedder_warming"
        threading.Timer(0.2, loaded.set).start()
        assert remote.embed(["a"], Role.PASSAGE).shape == (1, 384)


def test_a_model_that_cannot_be_loaded_is_reported_and_stops_the_process(folder: Path) -> None:
    settings = {"embedder_url": f"unix://{quote(str(folder))}/e.sock", "embedding_model_path": str(folder)}
    process = subprocess.run(
        [sys.executable, "-c", SERVE.format(settings)], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode != 0
    assert "model.onnx is missing" in process.stderr
    assert not (folder / "e.sock").exists()


def test_an_embedder_that_is_away_is_named_with_the_command_that_starts_it(folder: Path) -> None:
    with client(f"unix://{folder}/none.sock", query_patience=0.2) as remote, pytest.raises(ServiceUnavailable) as caught:
        remote.embed(["a"], Role.QUERY)
    assert "docwell embedder" in str(caught.value)


def test_a_restart_of_the_embedder_is_bridged(folder: Path) -> None:
    path = folder / "e.sock"
    settings = {"embedder_url": f"unix://{quote(str(path))}"}

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", SERVE.format(settings)])
        wait_until(path.exists)
        return process

    process = start()
    try:
        with client(settings["embedder_url"]) as remote:
            before = remote.embed(["one"], Role.PASSAGE)
            assert path.stat().st_mode & 0o777 == 0o600
            process.kill()
            process.wait()
            results: list[np.ndarray] = []
            waiting = threading.Thread(target=lambda: results.append(remote.embed(["one"], Role.PASSAGE)))
            waiting.start()
            process = start()
            waiting.join(60)
            np.testing.assert_allclose(results[0], before, atol=1e-5)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            assert not path.exists()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_another_model_behind_the_same_url_is_refused(local: Embedder, folder: Path) -> None:
    own = folder / "own-model"
    own.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (own / name).symlink_to(bundled_model_dir() / name)
    models: list[Embedder] = [local]
    service = EmbedderService(lambda: models[0])
    with running(service) as address, client(address) as remote:
        assert remote.fingerprint == local.fingerprint
        service._embedder = LocalEmbedder(own, threads=1)
        with pytest.raises(ConfigurationError, match="another model"):
            remote.embed(["a"], Role.PASSAGE)


def test_a_second_embedder_on_the_same_socket_is_refused(folder: Path) -> None:
    from shared.embedding.service import _listen_on_path

    with _listen_on_path(folder / "e.sock"), pytest.raises(ConfigurationError, match="Another embedder"):
        _listen_on_path(folder / "e.sock")


def test_a_client_made_before_a_fork_works_in_the_child(url: str) -> None:
    code = (
        "import os, sys\n"
        "from shared.embedding.protocol import Role\n"
        "from shared.embedding.remote import RemoteEmbedder\n"
        "remote = RemoteEmbedder(sys.argv[1])\n"
        "remote.embed(['a'], Role.QUERY)\n"
        "child = os.fork()\n"
        "assert remote.embed(['a'], Role.QUERY).shape == (1, 384)\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True, timeout=60)
