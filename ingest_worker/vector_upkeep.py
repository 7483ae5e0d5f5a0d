"""What the scheduler does for vectors: those that are remembered stay within bounds, and what may leave by now is embedded."""

from __future__ import annotations

import time
from collections.abc import Callable

from ingest_worker.catalogue import vector_cache, without_vector
from shared.config import Settings
from shared.database import Pool
from shared.embedding.endpoint import endpoint_of
from shared.embedding.spaces import model_in, read_models

EVERY_SECONDS = 60.0
REFUSED_SECONDS = 86_400.0
"""What a model has refused it is asked again after a day: filters change, and a server may have had a bad one."""


class VectorKeeper:
    """Looks once a minute. For one thread."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._next = clock()

    def tick(self, pool: Pool) -> None:
        """Do what is due.

        Raises:
            psycopg.Error: the database is away.
        """
        if self._clock() < self._next:
            return
        self._next = self._clock() + EVERY_SECONDS
        days, rows = self._settings.vector_cache_days, self._settings.vector_cache_rows
        with pool.connection() as connection:
            vector_cache.set_remembering(connection, on=days > 0 and rows > 0)
            vector_cache.prune(connection, days=days, rows=rows)
            active = model_in(read_models(connection), "active")
            if active is None:
                return
            without_vector.retry_old(connection, active.space_id, seconds=REFUSED_SECONDS)
            if not active.is_paid(endpoint_of(self._settings), self._settings.prices):
                without_vector.space_freed(connection, active.space_id)
