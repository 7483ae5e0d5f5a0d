"""What every command begins with: the settings, and a connection as the owner of the corpus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from psycopg import Connection

from shared.config import Settings, load_settings
from shared.database import check_schema, connect, reachable
from shared.errors import ConfigurationError


def settings() -> Settings:
    """The settings in force, with what the running Docwell knows: databases, broker, embedder.

    Raises:
        ConfigurationError: a setting is wrong.
        ServiceUnavailable: no database is set and none runs here; the message says how to start one.
    """
    from infra.local.runtime import attach

    _keep_stdout_free()
    loaded, _ = load_settings()
    return attach(loaded)


def _keep_stdout_free() -> None:
    """Logs go to stderr also where no process has set up its own: structlog's default is the place of answers."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


@contextmanager
def owner_connection(*, checked: bool = True) -> Iterator[Connection[Any]]:
    """A connection as the owner, each statement a transaction of its own, until the block ends.

    Raises:
        ConfigurationError: the schema is not the one that this code knows (not looked at when not `checked`).
        ServiceUnavailable: PostgreSQL cannot be reached, or went away within the block.
    """
    url = settings().database_url
    if url is None:
        raise ConfigurationError("No database is set. Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
    with reachable(), connect(url.get_secret_value(), name="docwell-cli", autocommit=True) as connection:
        if checked:
            check_schema(connection)
        yield connection
