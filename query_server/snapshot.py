"""One snapshot of the index under one principal: everything that an answer says comes from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel

from query_server.access import Principal, scope
from shared.database import Pool, check_schema, reachable
from shared.errors import ServiceUnavailable


class Snapshots:
    """Opens snapshots. The pool is made at the first one, so that a server starts without a database."""

    def __init__(self, open_pool: Callable[[], Pool]) -> None:
        self._open_pool = open_pool
        self._pool: Pool | None = None
        self._checked = False

    @contextmanager
    def open(self, principal: Principal) -> Iterator[Connection[Any]]:
        """A repeatable-read, read-only transaction that sees what the principal may see.

        Raises:
            ServiceUnavailable: PostgreSQL is away, or the question took too long.
            ConfigurationError: the schema is not the one this code knows.
        """
        if self._pool is None:
            self._pool = self._open_pool()
        with reachable(), self._begun(self._pool, principal) as connection:
            try:
                yield connection
            except psycopg.errors.QueryCanceled:
                raise ServiceUnavailable(
                    "The question took the database too long. Narrow it by namespace, path or source.", code="too_slow"
                ) from None

    @contextmanager
    def _begun(self, pool: Pool, principal: Principal) -> Iterator[Connection[Any]]:
        """A connection whose transaction has begun. The first statement shows whether it still lives, so nothing else asks; one
        that died while it was idle is replaced, and they can all have died."""
        for others in reversed(range(pool.max_size + 1)):
            with pool.connection() as connection:
                try:
                    self._begin(connection, principal)
                except psycopg.OperationalError:
                    if others and connection.broken:
                        continue
                    raise
                yield connection
                return

    def _begin(self, connection: Connection[Any], principal: Principal) -> None:
        if not self._checked:
            check_schema(connection)
            connection.rollback()
            self._checked = True
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.pipeline():  # BEGIN comes with the first statement, in one round trip
            scope(connection, principal)

    def close(self) -> None:
        """Give the connections back."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
