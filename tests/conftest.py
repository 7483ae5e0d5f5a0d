"""Real embedded services for the tests: one PostgreSQL and one Redis a session, one fresh database a test."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, settings
from psycopg import sql

from infra.local.postgres import EmbeddedPostgres
from infra.local.provision import OWNER, READER, create_database
from infra.local.redis import EmbeddedRedis
from infra.migrate import migrate
from tests.scratch import passable_folder

EMPTY = "docwell_empty"
TEMPLATE = "docwell_template"

# A crash of the machine may cost the tests their data, which nobody misses; a kill of the server costs nothing.
FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """One database: `url` as the owner, `reader_url` as the login of the query server."""

    name: str
    url: str
    reader_url: str


STEADY = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
"""The same examples each time, whatever the machine has to do besides."""


def pytest_configure() -> None:
    """Compiled modules are kept, whatever the environment says: hundreds of processes would compile them anew.

    Property tests draw other examples only where `--hypothesis-profile=explore` asks for them.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    settings.register_profile("steady", STEADY)
    settings.register_profile("explore", STEADY, derandomize=False)
    settings.load_profile("steady")


@pytest.fixture(autouse=True)
def logs_as_at_the_start() -> Iterator[None]:
    """A command that a test runs in this process sends all logs elsewhere; the next test does not inherit that."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def home() -> Iterator[Path]:
    """A fresh home for a Docwell of its own, removed afterwards."""
    with passable_folder() as folder:
        yield folder / "home"


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The session's PostgreSQL, with a migrated template database."""
    with passable_folder() as folder:
        server = EmbeddedPostgres(folder / "home", settings=FAST)
        server.start()
        try:
            with _administration(server) as connection:
                create_database(connection, EMPTY, template="docwell")
            migrate(server.url_owner, server.url_reader)
            with _administration(server) as connection:
                create_database(connection, TEMPLATE, template="docwell")
            # What the first connection gathers of the catalogue is kept in a file, which copies take along.
            psycopg.connect(server.url(OWNER, TEMPLATE)).close()
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def _administration(server: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.superuser_conninfo, dbname="postgres", autocommit=True) as connection:
        yield connection


@contextlib.contextmanager
def fresh_database(server: EmbeddedPostgres, *, template: str = TEMPLATE) -> Iterator[Database]:
    """A new database, cloned from `template` and dropped afterwards, whoever is connected."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with _administration(server) as connection:
        # A copy of the files: without fsync it takes half of what a copy through the log does.
        create_database(connection, name, template=template, strategy="FILE_COPY")
    try:
        yield Database(name=name, url=server.url(OWNER, name), reader_url=server.url(READER, name))
    finally:
        with _administration(server) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A migrated database for this test alone."""
    with fresh_database(postgres) as found:
        yield found


@pytest.fixture(scope="module")
def module_database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A migrated database that the tests of one module share."""
    with fresh_database(postgres) as found:
        yield found


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The session's Redis, as redis-py takes it (`unix://PATH?db=0`)."""
    with passable_folder() as folder:
        server = EmbeddedRedis(folder / "home")
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


@pytest.fixture
def empty_database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A database without Docwell's schema, with pgvector, as the embedded PostgreSQL makes it."""
    with fresh_database(postgres, template=EMPTY) as found:
        yield found
