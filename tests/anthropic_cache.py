"""A stand-in for Anthropic's Messages API on loopback that keeps prefixes in a cache as the service does, and can fail on demand.

From its documentation on prompt caching: a prefix up to a block with `cache_control` is written once and read afterwards, when it
has a minimum of tokens (4,096 for Claude Haiku 4.5); it lives five minutes from its last use; it can be read from the moment at
which the answer that wrote it begins, so requests that are sent together before that each write it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MINIMUM_TOKENS = 4_096
LIFE_SECONDS = 300.0

Reply = tuple[int, dict[str, Any], dict[str, str]]
"""HTTP status, body and headers."""


def count_tokens(text: str) -> int:
    """Tokens as the stand-in counts them: four characters each."""
    return -(-len(text) // 4)


@dataclass
class PrefixCache:
    """Which prefixes can be read, until when."""

    minimum: int = MINIMUM_TOKENS
    life: float = LIFE_SECONDS
    clock: Callable[[], float] = time.monotonic
    until: dict[tuple[str, str], float] = field(default_factory=dict)

    def ask(self, model: str, prefix: str | None) -> tuple[int, int]:
        """Tokens of the prefix that are read from the cache, and that are written to it."""
        tokens = count_tokens(prefix or "")
        if prefix is None or tokens < self.minimum:
            return 0, 0
        if self.until.get((model, prefix), 0.0) > self.clock():
            self.until[model, prefix] = self.clock() + self.life
            return tokens, 0
        return 0, tokens

    def begin_answer(self, model: str, prefix: str | None) -> None:
        """From now on the prefix can be read."""
        if prefix is not None and count_tokens(prefix) >= self.minimum:
            self.until[model, prefix] = self.clock() + self.life


def api_error(status: int, kind: str, message: str, **headers: str) -> Reply:
    """An error as the API writes it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return status, body, {name.replace("_", "-"): value for name, value in headers.items()}


def passage_of(request: dict[str, Any]) -> str:
    """The passage that a request asks about."""
    found = re.search(r"<passage>\n(.*)\n</passage>", request["messages"][0]["content"][-1]["text"], re.DOTALL)
    assert found is not None
    return found[1]


def describe(request: dict[str, Any]) -> str:
    """A context that depends on the passage alone, with a word that stands nowhere else."""
    words = re.findall(r"\w+", passage_of(request))
    return f"This passage of zwielicht documents speaks of {' '.join(words[:6])}."


class AnthropicStandIn(ThreadingHTTPServer):
    """`before` may answer in place of the model, given request and number; `answer` and `stop_reason` shape what it says."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.usages: list[dict[str, int]] = []
        self.cache = PrefixCache()
        self.answer: Callable[[dict[str, Any]], str] = describe
        self.stop_reason = "end_turn"
        self.before: Callable[[dict[str, Any], int], Reply | None] = lambda _request, _number: None
        self.most_together = 0
        self._together = 0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            self._together += 1
            self.most_together = max(self.most_together, self._together)
        try:
            early = self.before(request, number)
            return early if early is not None else self._answer(request)
        finally:
            with self._lock:
                self._together -= 1

    def _answer(self, request: dict[str, Any]) -> Reply:
        blocks = request["messages"][0]["content"]
        texts = [request.get("system", ""), *(block["text"] for block in blocks)]
        marked = next((place for place, block in enumerate(blocks, start=1) if "cache_control" in block), 0)
        prefix = "".join(texts[: marked + 1]) if marked else None
        text = self.answer(request)
        with self._lock:
            read, written = self.cache.ask(request["model"], prefix)
            usage = {
                "input_tokens": count_tokens("".join(texts)) - read - written,
                "output_tokens": count_tokens(text),
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": written,
            }
            self.usages.append(usage)
        time.sleep(0.002)  # a model takes its time: whoever asks meanwhile finds no cache yet
        with self._lock:
            self.cache.begin_answer(request["model"], prefix)
        content = [{"type": "text", "text": text}] if text else []
        body = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }
        return 200, body, {}

    def total(self, name: str) -> int:
        """The sum of one field of all usages."""
        return sum(usage[name] for usage in self.usages)

    def handle_error(self, *arguments: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*arguments)


class _Handler(BaseHTTPRequestHandler):
    server: AnthropicStandIn
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/messages":
            reply = api_error(404, "not_found_error", "Not found")
        elif "key" not in (self.headers.get("x-api-key"), self.headers.get("authorization", "").removeprefix("Bearer ")):
            # Which of the two headers carries a key depends on the version of the SDK.
            reply = api_error(401, "authentication_error", "invalid x-api-key")
        else:
            reply = self.server.reply(request)
        status, body, headers = reply
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def anthropic_stand_in() -> Iterator[AnthropicStandIn]:
    """The stand-in, listening until the block ends. Its key is `key`."""
    with AnthropicStandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
