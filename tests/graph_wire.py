"""How the stand-in of Microsoft Graph speaks HTTP, faults on the way among it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

FAULTS = ("throttle", "error", "drop", "half")
"""Kinds that come by chance."""


@dataclass(kw_only=True)
class Answer:
    """What goes over the wire."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Fault:
    """Calls whose path fits `pattern` fail `times` times. Kinds: throttle, error, drop, half, slow."""

    kind: str
    pattern: str = ""
    times: int = 1
    status: int = 503
    retry_after: str | None = "7"
    seconds: float = 0.0


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None, inner: str = "") -> None:
        super().__init__(message)
        error: Json = {"code": code, "message": message or code}
        if inner:
            error["innerError"] = {"code": inner}
        self.answer = json_answer({"error": error}, status=status, headers=headers or {})


def json_answer(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """An answer in JSON."""
    return Answer(status=status, body=json.dumps(value).encode(), headers={"Content-Type": "application/json", **(headers or {})})


def handler_of(
    pick_fault: Callable[[str], Fault | None], answer: Callable[[str, str, dict[str, str], bytes], Answer]
) -> type[BaseHTTPRequestHandler]:
    """Serves what `answer` says, unless `pick_fault` has something else for the call."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault = pick_fault(self.path)
            if fault is not None and fault.kind == "slow":
                time.sleep(fault.seconds)
            if fault is not None and fault.kind == "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if fault is not None and fault.kind in {"throttle", "error"}:
                status = 429 if fault.kind == "throttle" else fault.status
                told = {} if fault.retry_after is None or status in {500, 502, 504} else {"Retry-After": fault.retry_after}
                self.put(json_answer({"error": {"code": "activityLimitReached", "message": "Busy"}}, status=status, headers=told))
                return
            self.put(answer(self.command, self.path, headers, body), half=fault is not None and fault.kind == "half")

        def put(self, found: Answer, *, half: bool = False) -> None:
            lines = [f"HTTP/1.1 {found.status} X", f"Content-Length: {len(found.body)}"]
            lines += [f"{name}: {value}" for name, value in found.headers.items()]
            sent = found.body[: len(found.body) // 2] if half else found.body
            # One write: headers and body apart would wait for each other.
            self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + sent)
            if half:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = do_PATCH = do_DELETE = serve  # noqa: N815

    return Handler


class Server(ThreadingHTTPServer):
    """A thread for each connection; none is waited for."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go when they like."""
