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
        with reachable(), self._pool.connection() as connection:
            if not self._checked:
                check_schema(connection)
                connection.rollback()
                self._checked = True
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            try:
                with connection.transaction():
                    scope(connection, principal)
                    yield connection
            except psycopg.errors.QueryCanceled:
                raise ServiceUnavailable(
                    "The question took the database too long. Narrow it by namespace, path or source.", code="too_slow"
                ) from None

    def close(self) -> None:
        """Give the connections back."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
