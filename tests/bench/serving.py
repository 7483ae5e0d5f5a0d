"""The MCP server over HTTP under many clients: time, calls a second of a core, memory; beside the SDK's server that does nothing.

`MCP_CALLS` says how many calls the memory is watched over (100,000), `MCP_SECONDS` how long that may take at most (300).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from infra.local.runtime import attach
from query_server.assembly import open_service
from shared.config import load_settings
from tests.bench import mcp_client, trivial_server
from tests.bench.figures import spread
from tests.bench.ingesting import is_listening, make_corpus, stub, stub_settings
from tests.bench.instance import Instance, descendants, process_name, running, wait_for
from tests.bench.querying import analyse
from tests.ports import free_port

CLIENTS = (1, 16, 64)
CALLS = {1: 300, 16: 800, 64: 1600}
BLOCKS = 5
TICKS = os.sysconf("SC_CLK_TCK")

Calls: TypeAlias = Callable[[int], tuple[str, Mapping[str, Any]]]
"""The tool and the arguments of each call, by its number."""


def mcp_load() -> list[dict[str, Any]]:
    """The 300-file corpus with the stub embedder. No question comes twice, so that nothing is answered from memory.

    What HTTP costs is the difference of the first two rows: blocks of the same kind of search through the code and over HTTP take
    turns, so that whatever else the machine does befalls both.

    p50, p95 and p99 are of all calls at that number of clients; `calls/s` is what came through on this machine, the clients and
    PostgreSQL beside it; `calls/s of a core` divides by the processor time of the server's process alone.
    """
    with stub() as url, running(stub_settings(url)) as made:
        files = made.folder / "corpus"
        files.mkdir()
        make_corpus(files)
        summary = made.run("ingest", str(files))["summary"]
        analyse(made)
        pid = _pid_of(made, "docwell mcp")
        mcp_url = made.services["mcp_url"]
        mcp_client.ask(mcp_url, _searches("warm"), clients=8, calls=700)
        mcp_client.ask(mcp_url, _new_words, clients=4, calls=400)  # whatever it keeps by number of entries is full now
        rows = _in_turn(made, mcp_url, summary["chunks"])
        rows += [_at(f"search_documents, {clients} clients", mcp_url, _searches, clients, pid) for clients in CLIENTS]
        with _trivial() as (trivial_url, trivial_pid):
            mcp_client.ask(trivial_url, _nothing("warm"), clients=1, calls=50)
            rows += [
                _at(f"a tool that does nothing, {clients} clients", trivial_url, _nothing, clients, trivial_pid)
                for clients in CLIENTS
            ]
        documents = [one["document_id"] for one in made.run("documents", "list", "--limit", "100")["documents"]]
        rows.append(_memory(mcp_url, pid, documents))
    return rows


def _questions(kind: str) -> Callable[[int], Mapping[str, Any]]:
    """Two frequent words, a rare identifier, and a word that nobody else asks for."""
    rng = random.Random(kind)

    def question(number: int) -> Mapping[str, Any]:
        words = " ".join(f"term{rng.randrange(4000)}" for _ in range(2))
        return {"query": f"{words} ERR-{rng.randrange(300):04d}-05 marker {kind}{number}"}

    return question


def _new_words(number: int) -> tuple[str, Mapping[str, Any]]:
    """A search for 120 words that nobody asks for again."""
    return "search_documents", {"query": " ".join(f"w{number * 120 + word}" for word in range(120))}


def _in_turn(made: Instance, url: str, chunks: int) -> list[dict[str, Any]]:
    settings, _ = load_settings(made.environment)
    by_code: list[float] = []
    over_http: list[float] = []
    question = _questions("code")
    with open_service(attach(settings)) as service:
        service.search("nothing")
        for block in range(BLOCKS):
            for number in range(CALLS[1] // BLOCKS):
                query = str(question(number)["query"])
                began = time.perf_counter()
                service.search(query)
                by_code.append((time.perf_counter() - began) * 1000)
            load = mcp_client.ask(url, _searches(f"turn{block}"), clients=1, calls=CALLS[1] // BLOCKS)
            over_http += load.milliseconds
    return [
        {"measure": f"search through the code, in turn with HTTP ({chunks} chunks)", **_columns(by_code)},
        {"measure": "search over HTTP, in turn with the code", **_columns(over_http)},
    ]


def _searches(kind: str) -> Calls:
    question = _questions(kind)
    return lambda number: ("search_documents", question(number))


def _nothing(kind: str) -> Calls:
    question = _questions(kind)
    return lambda number: ("nothing", question(number))


def _every_tool(kind: str, documents: Sequence[str]) -> Calls:
    """Each eighth call is a search of its own; between them the other tools, which are quicker, take turns."""
    question = _questions(kind)

    def call(number: int) -> tuple[str, Mapping[str, Any]]:
        if number % 8 == 0:
            return "search_documents", question(number)
        others: list[tuple[str, Mapping[str, Any]]] = [
            ("read_document", {"document_id": documents[number % len(documents)], "max_tokens": 500}),
            ("list_documents", {"limit": 20}),
            ("index_status", {}),
        ]
        return others[number % len(others)]

    return call


def _at(measure: str, url: str, calls_of: Callable[[str], Calls], clients: int, pid: int) -> dict[str, Any]:
    before = _processor_seconds(pid)
    load = mcp_client.ask(url, calls_of(f"at{clients}"), clients=clients, calls=CALLS[clients])
    calls = len(load.milliseconds)
    return {
        "measure": measure,
        **_columns(load.milliseconds),
        "calls/s": calls / load.seconds,
        "calls/s of a core": calls / (_processor_seconds(pid) - before),
    }


def _memory(url: str, pid: int, documents: Sequence[str]) -> dict[str, Any]:
    """Resident memory before, in quarters of the way, and after."""
    calls = int(os.environ.get("MCP_CALLS", "100000"))
    until = time.perf_counter() + float(os.environ.get("MCP_SECONDS", "300"))
    sizes = [_resident(pid)]
    done = 0
    for quarter in range(4):
        left = max(0.0, until - time.perf_counter())
        asked = _every_tool(f"memory{quarter}", documents)
        load = mcp_client.ask(url, asked, clients=16, calls=calls // 4, seconds=left / (4 - quarter))
        done += len(load.milliseconds)
        sizes.append(_resident(pid))
    return {"measure": f"resident memory over {done} calls, MiB: {' '.join(f'{size:.1f}' for size in sizes)}", **_columns(sizes)}


def _columns(values: list[float]) -> dict[str, Any]:
    ordered = sorted(values)
    found = spread(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {
        "p50": found["p50"],
        "p95": found["p95"],
        "p99": p99,
        "max": found["max"],
        "n": len(values),
        "calls/s": None,
        "calls/s of a core": None,
    }


def _pid_of(made: Instance, name: str) -> int:
    """The process itself, not one that only started it."""
    found = [pid for pid in descendants(made.process.pid if made.process else 0) if process_name(pid) == name]
    return found[-1]


def _processor_seconds(pid: int) -> float:
    """User and system time, see proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(pid: int) -> float:
    """VmRSS, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def _trivial() -> Iterator[tuple[str, int]]:
    port = free_port()
    process = subprocess.Popen([sys.executable, trivial_server.__file__, str(port)])
    try:
        wait_for(lambda: is_listening(port), seconds=30, what="the trivial server")
        yield f"http://127.0.0.1:{port}/mcp", process.pid
    finally:
        process.terminate()
        process.wait(10)
