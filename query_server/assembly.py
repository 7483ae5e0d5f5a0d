"""The service as it runs: its connections and its model, looked up when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from query_server.retrieve.encode import Encoder
from query_server.retrieve.opening import StoredDirectory
from query_server.retrieve.rerank import OnDemand
from query_server.retrieve.rerank_open import open_reranking
from query_server.service import SearchService
from query_server.snapshot import Snapshots
from query_server.spending import QuerySpending
from shared.config import Settings
from shared.database import Pool, open_pool
from shared.embedding.protocol import Embedder
from shared.errors import ConfigurationError

POOL_SIZE = 8
STATEMENT_TIMEOUT_MS = 30_000
POOL_WAIT_SECONDS = 5.0
"""How long a call waits for a connection before it says that all are taken, or that PostgreSQL is away."""

POOL_WAITING = 40
"""Calls that wait for a connection; one more is sent away at once. All threads of the HTTP server can wait."""


def reader_url(settings: Settings) -> str:
    """Where the query side reads.

    Raises:
        ConfigurationError: no database is set.
    """
    url = settings.query_database_url or settings.database_url
    if url is None:
        raise ConfigurationError("No database is set. Start Docwell with `make run`, or set DOCWELL_QUERY_DATABASE_URL.")
    return url.get_secret_value()


def make_service(settings: Callable[[], Settings], *, patient: bool, spending: QuerySpending | None = None) -> SearchService:
    """A service that looks its settings up when it first needs them. `patient` waits for the model instead of warning; `spending`
    is told of what questions cost, by default one that tells nobody else."""

    def pool() -> Pool:
        return open_pool(
            reader_url(settings()),
            name="docwell-query",
            size=POOL_SIZE,
            as_reader=True,
            statement_timeout_ms=STATEMENT_TIMEOUT_MS,
            wait_seconds=POOL_WAIT_SECONDS,
            max_waiting=POOL_WAITING,
            check=False,  # the first statement of a snapshot shows whether the connection still lives
        )

    def embedder() -> Embedder:
        # ONNX Runtime is loaded when a model is.
        from shared.embedding.open import open_embedder

        return open_embedder(settings())

    snapshots = Snapshots(pool)
    return SearchService(
        snapshots,
        Encoder(
            embedder,
            patient=patient,
            directory=StoredDirectory(snapshots, settings),
            spending=spending or QuerySpending(settings),
        ),
        rescan_seconds=lambda: settings().watch_rescan_seconds,
        reranking=OnDemand(lambda: open_reranking(settings(), patient=patient)),
    )


@contextmanager
def open_service(settings: Settings) -> Iterator[SearchService]:
    """A service for a command: it waits for the model."""
    service = make_service(lambda: settings, patient=True)
    try:
        yield service
    finally:
        service.close()
