"""An OpenAI-compatible `/v1/embeddings` on loopback that costs next to nothing: signed feature hashing of words.

Weinberger et al., "Feature Hashing for Large Scale Multitask Learning" (2009). Run as a program it takes a port.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
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
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1, lengths)


class Handler(BaseHTTPRequestHandler):
    """Answers `POST` on every path."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """The vectors of one request."""
        return embed(texts)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
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
        body = json.dumps({"object": "list", "model": asked.get("model"), "data": data, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
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
