"""How long a hybrid query takes, as the reader under row-level security: through the code, and through MCP over HTTP.

Beside it the peers that search too, over the same files in the same run, each on a PostgreSQL with the same settings; see
`tests.bench.ingesting` for where they are looked for. What is not there is left out and said so.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import anyio
import psycopg
from mcp import Client

from infra.local.postgres import EmbeddedPostgres
from infra.local.runtime import attach
from query_server.assembly import open_service, reader_url
from query_server.retrieve.encode import Encoder
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from shared.collector import leave_alone_what_is_loaded
from shared.config import load_settings
from shared.database import open_pool
from shared.embedding.open import open_embedder
from shared.embedding.protocol import Role, Vectors
from tests.bench.figures import spread
from tests.bench.ingesting import is_there, make_corpus, run_peer, stub, stub_settings
from tests.bench.instance import Instance, running
from tests.bench.stub_embedder import embed

QUERIES = 100
SEARCHING_PEERS = ("langchain", "llama-index", "haiku.rag")
_PEER_FIGURES = re.compile(r"hybrid p50 (?P<p50>[\d.]+)ms p95 (?P<p95>[\d.]+)ms")


def hybrid_latency() -> list[dict[str, Any]]:
    """The 300-file corpus with the stub embedder; words of the corpus and one exact marker in each query.

    The time of a real model comes on top: some ten milliseconds for the local one.
    """
    with stub() as url, running(stub_settings(url)) as made:
        files = made.folder / "corpus"
        files.mkdir()
        make_corpus(files)
        summary = made.run("ingest", str(files))["summary"]
        queries = [
            f"term{number * 7 % 4000} term{number * 13 % 4000} ERR-{number * 3:04d}-05 marker" for number in range(QUERIES)
        ]
        analyse(made)
        markers = [f"ERR-{number:04d}-05 marker" for number in range(0, 300, 3)]
        rows = [
            {
                "measure": f"hybrid query through the code, ms ({summary['chunks']} chunks)",
                **spread(_through_code(made, queries)),
            },
            {"measure": "the peers' queries through the code, ms", **spread(_through_code(made, markers))},
            {
                "measure": "the same, the embedder in the process as langchain's and llama-index's, ms",
                **spread(_without_embedder(made, markers)),
            },
            {"measure": "hybrid query through MCP over HTTP, ms", **spread(_through_mcp(made, queries))},
        ]
        rows += [_peer(name) for name in SEARCHING_PEERS]
        rows += [{"measure": f"peak memory of {name}, MiB", **spread([peak])} for name, peak in made.peak_memory().items()]
    return rows


def analyse(made: Instance) -> None:
    """As the scheduler does some time after an ingest."""
    home = made.folder / "home"
    with psycopg.connect(EmbeddedPostgres(home).superuser_conninfo, dbname="docwell", autocommit=True) as connection:
        connection.execute("ANALYZE")


def _peer(name: str) -> dict[str, Any]:
    """A peer asks for an exact marker in each query, without an LLM, its embedder a stub too."""
    if not is_there(name):
        return {"measure": f"{name}: not installed, left out"}
    found = _PEER_FIGURES.search(run_peer(name))
    if found is None:
        raise RuntimeError(f"{name} printed no time of a query")
    return {"measure": f"{name}: its hybrid query, ms", "p50": float(found["p50"]), "p95": float(found["p95"]), "n": QUERIES}


def _through_code(made: Instance, queries: Sequence[str]) -> list[float]:
    settings, _ = load_settings(made.environment)
    with open_service(attach(settings)) as service:
        service.search(queries[0])
        leave_alone_what_is_loaded()  # as a server does when it is about to serve
        return [_milliseconds(functools.partial(service.search, query)) for query in queries]


def _without_embedder(made: Instance, queries: Sequence[str]) -> list[float]:
    settings, _ = load_settings(made.environment)
    attached = attach(settings)
    fingerprint = open_embedder(attached).fingerprint

    class InProcess:
        def __init__(self) -> None:
            self.fingerprint = fingerprint

        def embed(self, texts: Sequence[str], role: Role) -> Vectors:
            return embed(list(texts))

    snapshots = Snapshots(lambda: open_pool(reader_url(attached), name="query", size=1, as_reader=True, check=False))
    with closing(SearchService(snapshots, Encoder(InProcess, patient=True), rescan_seconds=lambda: 300.0)) as service:
        service.search("warm")
        leave_alone_what_is_loaded()
        return [_milliseconds(functools.partial(service.search, query)) for query in queries]


def _through_mcp(made: Instance, queries: Sequence[str]) -> list[float]:
    async def ask() -> list[float]:
        async with Client(made.services["mcp_url"]) as client:
            await client.call_tool("search_documents", {"query": queries[0]})
            times = []
            for query in queries:
                began = time.perf_counter()
                answer = await client.call_tool("search_documents", {"query": query})
                times.append((time.perf_counter() - began) * 1000)
                if answer.is_error:
                    raise RuntimeError(str(answer.content))
            return times

    return anyio.run(ask)


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000
