"""An OpenAI-compatible `/v1/embeddings` on loopback that costs next to nothing: signed feature hashing of words.

Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009). Run as a program it takes a port.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from numpy.typing import NDArray

DIMENSION = 384


@lru_cache(maxsize=100_000)
def _place(word: str) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return number % DIMENSION, 1.0 if (number >> 32) & 1 else -1.0


def embed(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors, float32 (n, 384); the same text always gives the same one."""
    matrix = np.zeros((len(texts), DIMENSION), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            column, sign = _place(word)
            matrix[row, column] += sign
    matrix[~matrix.any(axis=1), 0] = 1.0  # words that cancel each other out still have a direction
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1, lengths)


class Handler(BaseHTTPRequestHandler):
    """Answers `POST` on every path."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: with Nagle's algorithm the second waits 40 ms for the first to be acknowledged.
    disable_nagle_algorithm = True

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def refuse(self, texts: list[str]) -> tuple[int, Mapping[str, str]] | None:
        """A status and headers to answer instead of vectors."""
        return None

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """The vectors of one request."""
        return embed(texts)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        refusal = self.refuse(texts)
        if refusal is not None:
            self._answer(refusal[0], {"error": {"message": "not now", "type": "server_error"}}, refusal[1])
            return
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(row.tobytes()).decode()
                if asked.get("encoding_format") == "base64"
                else row.tolist(),
            }
            for index, row in enumerate(self.embed(texts))
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self._answer(200, {"object": "list", "model": asked.get("model"), "data": data, "usage": usage}, {})

    def _answer(self, status: int, content: object, headers: Mapping[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """Says nothing of clients that end in the middle of a request."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """It is the client that tells what it missed."""


def make_server(port: int = 0, handler: type[Handler] = Handler) -> Server:
    """A server that is bound and not yet serving."""
    return Server(("127.0.0.1", port), handler)


if __name__ == "__main__":
    make_server(int(sys.argv[1])).serve_forever()
