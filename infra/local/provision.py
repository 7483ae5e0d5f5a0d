"""Roles and databases of the embedded PostgreSQL, made by its superuser, whom nothing else uses."""

from __future__ import annotations

from typing import Any, Literal

import psycopg
from psycopg import Connection, sql

from infra.local.placement import MAJOR_VERSION

OWNER = "docwell"
READER = "docwell_query"
SUPERUSER = "postgres"

_ROLES = {
    OWNER: sql.SQL("CREATE ROLE {} LOGIN CREATEROLE").format(sql.Identifier(OWNER)),
    READER: sql.SQL("CREATE ROLE {} LOGIN NOINHERIT").format(sql.Identifier(READER)),
}


def provision(conninfo: str, database: str) -> None:
    """Makes what is missing of the roles, `database` and its extension; what exists stays. Safe to repeat.

    `conninfo` reaches the server as the superuser, and names no database.
    """
    with psycopg.connect(conninfo, dbname="postgres", autocommit=True) as connection:
        for role, statement in _ROLES.items():
            if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
                connection.execute(statement)
        connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone() is None:
            create_database(connection, database)
    with psycopg.connect(conninfo, dbname=database, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        old = connection.execute(
            "SELECT FROM pg_extension e JOIN pg_available_extensions a ON a.name = e.extname"
            " WHERE e.extname = 'vector' AND e.extversion <> a.default_version"
        ).fetchone()
        if old is not None:
            connection.execute("ALTER EXTENSION vector UPDATE")


def create_database(
    connection: Connection[Any], name: str, *, template: str = "template1", strategy: Literal["WAL_LOG", "FILE_COPY"] = "WAL_LOG"
) -> None:
    """A database of the owner, in which PUBLIC may do nothing and the reader may only connect.

    `strategy` is how the template is copied: page by page through the log, or its files after a checkpoint.
    """
    connection.execute(
        sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {} STRATEGY {}").format(
            sql.Identifier(name), sql.Identifier(OWNER), sql.Identifier(template), sql.SQL(strategy)
        )
    )
    connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(name), sql.Identifier(READER)))


SERVER_SETTINGS: dict[str, str] = {
    # Nothing listens on the network: whoever may enter the socket's folder, which is ours alone, is trusted.
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "work_mem": "16MB",
    "maintenance_work_mem": "256MB",  # too little of it doubles the time of an HNSW build
    "random_page_cost": "1.1",
    "jit": "off",  # it costs more than it gives on statements of milliseconds
    "max_wal_size": "1GB",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%u@%d %a ",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "cluster_name": f"docwell-{MAJOR_VERSION}",
}
"""For a small machine that does other work too. `synchronous_commit` and `fsync` stay on: a 2xx means stored."""
