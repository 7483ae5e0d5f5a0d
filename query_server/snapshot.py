"""One snapshot of the index under one principal: everything that an answer says comes from it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg_pool import PoolTimeout, TooManyRequests

from query_server.access import Principal, scope
from query_server.admission import Busy
from shared.database import Pool, check_schema, reachable
from shared.errors import ServiceUnavailable


class Snapshots:
    """Opens snapshots. The pool is made at the first one, so that a server starts without a database. Safe for threads."""

    def __init__(self, open_pool: Callable[[], Pool], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._open_pool = open_pool
        self._clock = clock
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._checked = False
        self._held = 0
        self._begun_at = -math.inf

    @contextmanager
    def open(self, principal: Principal) -> Iterator[Connection[Any]]:
        """A repeatable-read, read-only transaction that sees what the principal may see.

        Raises:
            Busy: all connections are taken, and none came free in time.
            ServiceUnavailable: PostgreSQL is away, or the question took too long.
            ConfigurationError: the schema is not the one this code knows.
        """
        pool = self._opened()
        with reachable(), self._taken(pool, principal) as connection:
            try:
                yield connection
            except psycopg.errors.QueryCanceled:
                raise ServiceUnavailable(
                    "The question took the database too long. Narrow it by namespace, path or source.", code="too_slow"
                ) from None

    def _opened(self) -> Pool:
        with self._lock:
            if self._pool is None:
                self._pool = self._open_pool()
                self._begun_at = self._clock()  # until a first wait is over nobody knows that PostgreSQL is away
            return self._pool

    @contextmanager
    def _taken(self, pool: Pool, principal: Principal) -> Iterator[Connection[Any]]:
        """A begun transaction that is counted while it is held. A pool gives up in the same way when all connections are in use
        and when none can be opened; what is in use, and was begun of late, tells them apart."""
        try:
            with self._begun(pool, principal) as connection:
                with self._lock:
                    self._held += 1
                    self._begun_at = self._clock()
                try:
                    yield connection
                finally:
                    with self._lock:
                        self._held -= 1
        except (PoolTimeout, TooManyRequests) as error:
            with self._lock:
                served = self._held >= pool.max_size or self._clock() - self._begun_at < pool.timeout
            if served:
                raise Busy from error
            raise

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

    @property
    def pool(self) -> Pool | None:
        """The pool, once it was made."""
        return self._pool

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
