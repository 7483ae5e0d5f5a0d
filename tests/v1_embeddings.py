"""A small server on loopback that answers as OpenAI's `/v1/embeddings` does, and as Azure's deployments do."""

import base64
import hashlib
import json
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

Answer = tuple[int, dict[str, str], Any]


def numbers(text: str, dimension: int) -> list[float]:
    """A direction that depends on the text alone."""
    rng = random.Random(hashlib.sha256(text.encode()).digest())
    return [rng.uniform(-1, 1) for _ in range(dimension)]


def error(status: int, message: str, **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, {"error": {"message": message}}


class Server(ThreadingHTTPServer):
    """`before` may answer in place of the model; `requests` keeps what was asked.

    Models whose names begin with `small` are one and the same; each other name is another model.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.dimension = 8
        self.base64 = True
        self.tokens: Callable[[list[str]], int] = lambda _texts: 1
        self.before: Callable[[dict[str, Any], int], Answer | None] = lambda _request, _number: None

    def answer(self, request: dict[str, Any]) -> Answer:
        self.requests.append(request)
        early = self.before(request, len(self.requests))
        if early is not None:
            return early
        dimension = request.get("dimensions", self.dimension)
        data = []
        for index, text in enumerate(request["input"]):
            vector: Any = numbers(text if request["model"].startswith("small") else request["model"] + text, dimension)
            if self.base64 and request.get("encoding_format") == "base64":
                vector = base64.b64encode(struct.pack(f"<{dimension}f", *vector)).decode()
            data.append({"object": "embedding", "index": index, "embedding": vector})
        data.reverse()
        return (
            200,
            {},
            {"object": "list", "data": data, "model": request["model"], "usage": {"total_tokens": self.tokens(request["input"])}},
        )

    def handle_error(self, *arguments: object) -> None:
        """A client that did not wait for its answer is part of the tests."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*arguments)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path.partition("?")[0].endswith("/embeddings")
        self.server.paths.append(self.path)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.keys.append(self.headers.get("authorization"))
        status, headers, body = self.server.answer(request)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "content-type": "application/json", "content-length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def embeddings_server() -> Iterator[Server]:
    """The server, listening until the block ends."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def expected(texts: list[str], dimension: int = 8) -> np.ndarray:
    """What its vectors are when they have length 1."""
    vectors = np.array([numbers(text, dimension) for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
