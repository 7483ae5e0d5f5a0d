"""Connections to PostgreSQL: pools, the reader's role, and the check that the schema is the one this code knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from pgvector.psycopg import register_vector
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from shared.errors import ConfigurationError, ServiceUnavailable
from shared.loading import register_times

SCHEMA_VERSION = 16
"""The newest migration that this code was written for."""

MINIMUM_PGVECTOR = (0, 8, 4)
"""Before 0.8.4 a deleted row could break the HNSW graph for good (pgvector issue 993)."""

READER_ROLE = "docwell_reader"

_UNREACHABLE = (
    "PostgreSQL cannot be reached: {error}. Start Docwell with `make run` (or `docwell up`), or check DOCWELL_DATABASE_URL."
)
_FULL = "PostgreSQL's disk is full: {error}. Free some space there: nothing that was stored is lost, and work goes on by itself."

Pool = ConnectionPool[Connection[TupleRow]]


def connection_options(*, as_reader: bool, statement_timeout_ms: int) -> str:
    """libpq's `options`: the search path, a time limit for statements and, for the query side, the reader's role."""
    options = f"-c search_path=docwell,public -c statement_timeout={statement_timeout_ms} -c timezone=UTC"
    if as_reader:
        options += f" -c role={READER_ROLE} -c default_transaction_read_only=on"
    return options


def _configure(connection: Connection[Any]) -> None:
    register_vector(connection)
    register_times(connection)
    if not connection.autocommit:
        connection.commit()


_LIFE_SIGNS: dict[str, Any] = {
    "connect_timeout": 5,
    # A server that vanished without a word (its machine, or the network between) is noticed within a minute, not after the two
    # hours of the system's own keepalive. On a Unix socket these say nothing.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 50_000,
}
"""Seconds, and milliseconds for the last: libpq's parameters of these names."""


def open_pool(
    url: str,
    *,
    name: str,
    size: int = 4,
    as_reader: bool = False,
    statement_timeout_ms: int = 60_000,
    wait_seconds: float = 10.0,
    check: bool = True,
    autocommit: bool = False,
    max_waiting: int = 0,
) -> Pool:
    """A pool that opens connections when they are first wanted and mends itself when PostgreSQL was away.

    `as_reader` makes every connection read-only under the role `docwell_reader`, whoever logs in.
    `wait_seconds` is how long `connection()` waits for a free one before it gives up; when `max_waiting` (0 for no limit) wait
    already, it gives up at once. `check` asks PostgreSQL at each
    `connection()` whether it is still there, so that nobody is handed a connection that died while it was idle. With
    `autocommit` a statement outside of `transaction()` is a transaction of its own, in one round trip.
    """
    return ConnectionPool(
        url,
        kwargs={
            "options": connection_options(as_reader=as_reader, statement_timeout_ms=statement_timeout_ms),
            "application_name": name,
            **_LIFE_SIGNS,
            "autocommit": autocommit,
        },
        min_size=0,
        max_size=size,
        max_waiting=max_waiting,
        timeout=wait_seconds,
        max_idle=300,
        reconnect_timeout=wait_seconds,
        configure=_configure,
        check=ConnectionPool.check_connection if check else None,
        name=name,
        open=True,
    )


def connect(url: str, *, name: str = "docwell", as_reader: bool = False, autocommit: bool = False) -> Connection[TupleRow]:
    """One connection, for a command that needs no pool.

    Raises:
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    try:
        connection = psycopg.connect(
            url,
            options=connection_options(as_reader=as_reader, statement_timeout_ms=60_000),
            application_name=name,
            autocommit=autocommit,
            **_LIFE_SIGNS,
        )
    except psycopg.OperationalError as error:
        raise ServiceUnavailable(why_away(error), code="database_unavailable") from error
    register_times(connection)
    return connection


# SQLSTATE classes of a server that is away or in need: connection, resources, operator intervention, system error.
_AWAY = ("08", "53", "57P", "58")


def is_away(error: BaseException) -> bool:
    """Whether this error of psycopg means that PostgreSQL cannot be reached or cannot work, and not that a statement is wrong."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_AWAY)


@contextmanager
def reachable() -> Iterator[None]:
    """Turns the loss of PostgreSQL into ServiceUnavailable, which names it and says how to start it."""
    try:
        yield
    except (PoolTimeout, psycopg.OperationalError) as error:
        if not is_away(error):
            raise
        raise ServiceUnavailable(why_away(error), code="database_unavailable") from error


def is_full(error: BaseException | None) -> bool:
    """Whether PostgreSQL has no room on its disk. A server that refuses a connection for it has only words to say so."""
    return isinstance(error, psycopg.errors.DiskFull) or (
        isinstance(error, psycopg.OperationalError) and error.sqlstate is None and "No space left on device" in str(error)
    )


def why_away(error: BaseException) -> str:
    """What is wrong with PostgreSQL, and what to do."""
    return (_FULL if is_full(error) else _UNREACHABLE).format(error=first_line(error))


def first_line(error: BaseException) -> str:
    """An error's first line: libpq repeats itself over many."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


_VERSIONS: LiteralString = """
    SELECT (SELECT max(version) FROM docwell.migration),
           (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""


def check_schema(connection: Connection[Any]) -> None:
    """Refuses a schema that this code was not written for.

    Raises:
        ConfigurationError: not migrated, migrated by a newer Docwell, or pgvector is too old; the message has the cure.
    """
    try:
        row = connection.execute(_VERSIONS).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        connection.rollback()
        raise ConfigurationError("This database holds no Docwell schema. Run `docwell migrate`.", code="schema_missing") from None
    version, extension = row if row is not None else (None, None)
    if version is None or version < SCHEMA_VERSION:
        raise ConfigurationError(
            f"The database schema has version {version or 0}, this Docwell needs {SCHEMA_VERSION}. Run `docwell migrate`.",
            code="schema_old",
        )
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"The database schema has version {version}, this Docwell knows {SCHEMA_VERSION}: it was migrated by a newer"
            " Docwell. Update this installation.",
            code="schema_new",
        )
    if extension is None or tuple(int(part) for part in extension.split(".")[:3]) < MINIMUM_PGVECTOR:
        needed = ".".join(map(str, MINIMUM_PGVECTOR))
        raise ConfigurationError(
            f"pgvector {needed} or newer is needed, the database has {extension or 'none'}."
            " Install it and run `ALTER EXTENSION vector UPDATE`.",
            code="pgvector_old",
        )
