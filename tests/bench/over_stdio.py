"""`search_documents` over stdio as a client starts it, with the bundled model warm, beside the times that were stored before."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.bench.figures import spread
from tests.bench.instance import ROOT, Instance, running
from tests.bench.mcp_client import PROTOCOL

BASELINE = Path(__file__).with_name("stdio_baseline.json")
"""Milliseconds of an earlier run; `python -m tests.bench.over_stdio` writes them anew."""

CALLS = 200
WARM_SECONDS = 60.0
_WORDS = (
    *("source", "folder", "document", "version", "passage", "citation", "namespace", "reader"),
    *("token", "model", "queue", "lease", "webhook", "page"),
)


def stdio_latency() -> list[dict[str, Any]]:
    """Questions about this project's own documentation, each asked once. The vector of each question is made anew."""
    with running() as made:
        made.run("ingest", str(ROOT / "docs"), str(ROOT / "README.md"))
        with _client(made) as ask:
            began = time.perf_counter()
            while ask("a first question")["structuredContent"].get("warming"):
                if time.perf_counter() - began > WARM_SECONDS:
                    raise TimeoutError("the model did not get warm")
            times = []
            for number in range(CALLS):
                first, second = _WORDS[number % len(_WORDS)], _WORDS[(number * 5 + 1) % len(_WORDS)]
                began = time.perf_counter()
                ask(f"what does the {first} do when {second} {number} fails")
                times.append((time.perf_counter() - began) * 1000)
    found = spread(times)
    now = {"p50": found["p50"], "p95": found["p95"], "p99": float(np.quantile(times, 0.99)), "n": found["n"]}
    before = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else None
    rows = [{"measure": "search_documents over stdio, ms", **now}]
    if before is not None:
        rows.append({"measure": "stored before, ms", **before})
        rows.append({"measure": "now / before", **{name: now[name] / before[name] for name in ("p50", "p95", "p99")}})
    return rows


class _Asked:
    """One server over its pipes."""

    def __init__(self, sent: IO[str], answers: IO[str]) -> None:
        self._sent = sent
        self._answers = answers
        self._number = 0

    def request(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self.tell({"id": self._number, "method": method, "params": parameters})
        for line in self._answers:
            message = json.loads(line)
            if message.get("id") == self._number:
                if "result" not in message or message["result"].get("isError"):
                    raise RuntimeError(line[:500])
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError("the server ended")

    def tell(self, message: dict[str, Any]) -> None:
        self._sent.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._sent.flush()

    def __call__(self, query: str) -> dict[str, Any]:
        return self.request("tools/call", {"name": "search_documents", "arguments": {"query": query}})


@contextmanager
def _client(made: Instance) -> Iterator[_Asked]:
    with subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "mcp"],
        env=made.environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked = _Asked(process.stdin, process.stdout)
        client = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        asked.request("initialize", client)
        asked.tell({"method": "notifications/initialized"})
        yield asked
        process.stdin.close()


if __name__ == "__main__":
    measured = dict(stdio_latency()[0])
    measured.pop("measure")
    BASELINE.write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")
    print(BASELINE.read_text(encoding="utf-8"))
