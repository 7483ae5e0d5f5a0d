"""Queries over many chunks, as the reader under row-level security: time, processor time, and recall beside exact search.

`SCALING_CHUNKS="10000 100000"` says how many; `SCALING_VECTORS` names a `.npy` file of real vectors of 384 dimensions, around
which vectors are drawn.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from infra.local.postgres import EmbeddedPostgres
from infra.local.provision import OWNER, READER, create_database
from infra.migrate import migrate
from query_server.access import LOCAL, Principal
from query_server.retrieve.encode import Encoder
from query_server.retrieve.filters import EVERYTHING, Filters
from query_server.retrieve.keyword import FrequencyCache, keyword_leg
from query_server.retrieve.scope import measure
from query_server.retrieve.semantic import active_space, semantic_leg
from query_server.service import SearchService, utc_now
from query_server.snapshot import Snapshots
from shared.collector import leave_alone_what_is_loaded
from shared.database import open_pool
from shared.embedding.protocol import Role, Vectors
from shared.query_terms import query_terms
from tests.bench.figures import spread
from tests.bench.filling import CHUNKS_OF_A_DOCUMENT, DIMENSION, MODEL, NAMESPACES, Filled, fill

QUERIES = 100
CLIENTS = 16
DEPTH = 100
"""Hits of a leg, as a search takes them."""

SMALL = Principal(name="small", namespaces=frozenset({"small"}), names=frozenset())
TINY = Principal(name="tiny", namespaces=frozenset({"tiny"}), names=frozenset())


def scaling() -> list[dict[str, Any]]:
    """A row for each size and measure."""
    sizes = [int(size) for size in os.environ.get("SCALING_CHUNKS", "10000 100000").split()]
    real = os.environ.get("SCALING_VECTORS")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="docwell-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        # Not being safe from a power cut makes filling faster, and reading no different.
        server = EmbeddedPostgres(folder / "home", settings={"fsync": "off", "max_wal_size": "8GB"})
        server.start()
        try:
            for size in sizes:
                database = f"scaling_{size}"
                with psycopg.connect(server.superuser_conninfo, dbname="postgres", autocommit=True) as connection:
                    create_database(connection, database, template="docwell")
                migrate(server.url(OWNER, database), server.url(READER, database))
                filled = fill(f"{server.superuser_conninfo} dbname={database}", size, real=Path(real) if real else None)
                rows += measure_queries(server.url(READER, database), filled)
        finally:
            server.stop()
    return rows


def measure_queries(reader_url: str, filled: Filled) -> list[dict[str, Any]]:
    """What a filled database answers, and how fast."""
    questions = Questions(filled)
    size = len(filled.vectors)
    rows: list[dict[str, Any]] = []
    with _serving(reader_url, questions) as (service, snapshots, pids):
        rows += _recall(snapshots, filled, questions)
        rows += _legs(snapshots, questions, pids)
        for principal, what in ((LOCAL, "all"), (SMALL, "of 1 %"), (TINY, "of 0.01 %")):
            asked = functools.partial(service.search, principal=principal)
            rows.append({"measure": f"hybrid, {what}, 1 client", **_in_turn(asked, questions.next(QUERIES), pids)})
        rows.append({"measure": f"hybrid, all, {CLIENTS} clients", **_at_once(service, questions.next(4 * QUERIES))})
    return [{"chunks": size, **row} for row in rows]


class Questions:
    """Questions of four words as they are distributed in the texts, each with a vector near to a chunk's. None comes twice."""

    fingerprint = MODEL

    def __init__(self, filled: Filled) -> None:
        self._filled = filled
        self._rng = np.random.default_rng(8)
        weights = 1.0 / np.arange(30, 30 + len(filled.words))
        self._weights = weights / weights.sum()
        self.vectors: dict[str, npt.NDArray[np.float32]] = {}

    def next(self, number: int) -> list[str]:
        """So many questions."""
        found = []
        for _ in range(number):
            picked = self._rng.choice(len(self._filled.words), size=4, p=self._weights)
            question = " ".join(self._filled.words[index] for index in picked)
            vector = self._filled.vectors[self._rng.integers(len(self._filled.vectors))].astype(np.float32)
            vector = vector + np.float32(0.4 / DIMENSION**0.5) * self._rng.standard_normal(DIMENSION, dtype=np.float32)
            self.vectors[question] = vector / np.linalg.norm(vector)
            found.append(question)
        return found

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """As an embedder that takes no time."""
        return np.stack([self.vectors[text] for text in texts])


@contextmanager
def _serving(reader_url: str, questions: Questions) -> Iterator[tuple[SearchService, Snapshots, list[int]]]:
    """The service as it runs, snapshots of the same kind, and the processes of PostgreSQL that answer the first of them."""
    snapshots = Snapshots(lambda: open_pool(reader_url, name="scaling", size=1, as_reader=True, check=False))
    for_clients = Snapshots(lambda: open_pool(reader_url, name="docwell-query", size=8, as_reader=True, check=False))
    service = SearchService(for_clients, Encoder(lambda: questions, patient=True), rescan_seconds=lambda: 300.0)
    pids: list[int] = []
    try:
        for question in questions.next(20):
            service.search(question)
        for opened in (snapshots, for_clients):
            with opened.open(LOCAL) as connection:
                pids.append(connection.info.backend_pid)
        leave_alone_what_is_loaded()  # as a server does when it is about to serve
        yield service, snapshots, pids
    finally:
        service.close()
        snapshots.close()


def _recall(snapshots: Snapshots, filled: Filled, questions: Questions) -> list[dict[str, Any]]:
    """The share of the truly nearest ten that the semantic leg finds, and whether all come that there are."""
    size = len(filled.vectors)
    asked = questions.next(50)
    rows = []
    for what, principal, filters, belongs in (
        ("all", LOCAL, EVERYTHING, np.ones(size, dtype=bool)),
        ("of 1 %", SMALL, EVERYTHING, _in_namespace("small", size)),
        ("of 0.01 %", TINY, EVERYTHING, _in_namespace("tiny", size)),
        ("tag of every second document", LOCAL, Filters(tags=("half",)), _documents(size) % 2 == 1),
        ("tag of every 200th document", LOCAL, Filters(tags=("rare",)), _documents(size) % 200 == 7),
    ):
        numbers = np.flatnonzero(belongs)
        stored = filled.vectors[numbers].astype(np.float16).astype(np.float32)
        stored /= np.linalg.norm(stored, axis=1, keepdims=True)
        shares, short = [], 0
        with snapshots.open(principal) as connection:
            scope = measure(connection, filters, now=utc_now(), rescan_seconds=300)
            space = active_space(connection)
            assert space is not None
            for question in asked:
                vector = questions.vectors[question]
                asked_for = vector.astype(np.float16).astype(np.float32)
                cosines = stored @ (asked_for / np.linalg.norm(asked_for))
                near = -np.sort(-cosines)[:10]
                hits = semantic_leg(
                    connection, scope, filters, space, vector, limit=DEPTH, sees_everything=principal.sees_everything
                )
                # Where distances are equal, what counts is being as near, not being the same.
                shares.append(sum(hit.similarity >= near[-1] - 1e-5 for hit in hits[:10]) / len(near))
                short += len(hits) < min(DEPTH, len(numbers))
        rows.append({"measure": f"semantic leg, {what}", "recall@10": float(np.mean(shares)), "short": short})
    return rows


def _documents(size: int) -> npt.NDArray[np.int64]:
    return np.arange(size) // CHUNKS_OF_A_DOCUMENT


def _in_namespace(name: str, size: int) -> npt.NDArray[np.bool_]:
    begins = 0.0
    for other, ends in NAMESPACES:
        if other == name:
            share = _documents(size) * CHUNKS_OF_A_DOCUMENT / size
            return (share >= begins) & (share < ends)
        begins = ends
    raise KeyError(name)


def _legs(snapshots: Snapshots, questions: Questions, pids: Sequence[int]) -> list[dict[str, Any]]:
    """Each leg alone, in an open snapshot of a measured scope."""
    rows = []
    with snapshots.open(LOCAL) as connection:
        scope = measure(connection, EVERYTHING, now=utc_now(), rescan_seconds=300)
        space = active_space(connection)
        assert space is not None
        frequencies = FrequencyCache()

        def keyword(question: str) -> object:
            return keyword_leg(
                connection, scope, EVERYTHING, query_terms(question), limit=DEPTH, cache=frequencies, everything=space.indexed
            )

        def semantic(question: str) -> object:
            vector = questions.vectors[question]
            return semantic_leg(connection, scope, EVERYTHING, space, vector, limit=DEPTH, sees_everything=True)

        rows.append({"measure": "keyword leg alone", **_in_turn(keyword, questions.next(QUERIES), pids)})
        rows.append({"measure": "semantic leg alone", **_in_turn(semantic, questions.next(QUERIES), pids)})
    return rows


def _in_turn(ask: Callable[[str], object], questions: Sequence[str], pids: Sequence[int]) -> dict[str, Any]:
    """Milliseconds of one after the other; `client` and `server` are processor time, the medians."""
    times, client, server = [], [], []
    for question in questions:
        before, thread, began = _processor(pids), time.thread_time(), time.perf_counter()
        ask(question)
        times.append((time.perf_counter() - began) * 1000)
        client.append((time.thread_time() - thread) * 1000)
        server.append(_processor(pids) - before)
    return _figures(times) | {"client": float(np.median(client)), "server": float(np.median(server))}


def _processor(pids: Sequence[int]) -> float:
    """Milliseconds that these processes ran so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e6


def _at_once(service: SearchService, questions: Sequence[str]) -> dict[str, Any]:
    def ask(question: str) -> float:
        began = time.perf_counter()
        service.search(question)
        return (time.perf_counter() - began) * 1000

    with ThreadPoolExecutor(CLIENTS) as clients:
        return _figures(list(clients.map(ask, questions)))


def _figures(times: Sequence[float]) -> dict[str, Any]:
    found = spread(times)
    return {"p50": found["p50"], "p95": found["p95"], "p99": float(np.quantile(times, 0.99)), "n": found["n"]}
