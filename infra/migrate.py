"""Forward-only migrations: `infra/migrations/NNNN_name.sql`, each in one transaction, recorded with its hash."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from shared.database import READER_ROLE, connect, first_line
from shared.errors import ConfigurationError

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")

_LOCK_KEY = 0x646F6377656C6C  # "docwell"
"""The advisory lock that whoever migrates holds for its whole session."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """One file: its number, its name without the ending, its statements and their sha256 in hexadecimal."""

    version: int
    name: str
    statements: bytes
    sha256: str


def known_migrations() -> list[Migration]:
    """The migrations that come with this installation, in order."""
    found = []
    for entry in importlib.resources.files("infra").joinpath("migrations").iterdir():
        matched = _FILE.match(entry.name)
        if matched is not None:
            statements = entry.read_bytes()
            found.append(
                Migration(
                    version=int(matched[1]),
                    name=entry.name.removesuffix(".sql"),
                    statements=statements,
                    sha256=hashlib.sha256(statements).hexdigest(),
                )
            )
    return sorted(found, key=lambda migration: migration.version)


def migrate(url: str, query_url: str | None = None, *, migrations: Sequence[Migration] | None = None) -> list[str]:
    """Brings the database to the newest schema and answers the names of the migrations that it applied.

    Several processes may do this at once: one works, the others wait. `query_url` names the login of the query server,
    which is made a member of the reader's role. `migrations` are those that come with the installation when None.

    Raises:
        ConfigurationError: the database is neither empty nor ours, a migration was changed after it was applied or is
            newer than this installation, or a privilege is missing; nothing was changed, and the message has the cure.
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    known = known_migrations() if migrations is None else migrations
    with connect(url, name="docwell migrate", autocommit=True) as connection, _alone(connection):
        applied = _applied(connection)
        if applied is None:
            _refuse_foreign(connection)
        wanted = _still_to_do(known, applied or {})
        try:
            _make_reader_role(connection)
            if applied is None:
                _make_record(connection)
            for migration in wanted:
                _apply(connection, migration)
            _close_to_the_public(connection)
            if query_url is not None:
                _admit_reader(connection, _user_of(query_url))
        except psycopg.errors.InsufficientPrivilege as error:
            raise _privilege_missing(connection, error) from error
    return [migration.name for migration in wanted]


def pending(url: str, *, migrations: Sequence[Migration] | None = None) -> list[str]:
    """The names of the migrations that `migrate` would apply; it refuses what `migrate` refuses, and changes nothing."""
    with connect(url, name="docwell migrate", autocommit=True) as connection:
        applied = _applied(connection)
        if applied is None:
            _refuse_foreign(connection)
        return [m.name for m in _still_to_do(known_migrations() if migrations is None else migrations, applied or {})]


@contextlib.contextmanager
def _alone(connection: Connection[Any]) -> Iterator[None]:
    connection.execute("SET statement_timeout = 0")  # another process may build indexes for a while
    connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK_KEY])
    yield  # the lock ends with the session


def _applied(connection: Connection[Any]) -> dict[int, tuple[str, str]] | None:
    """Version to (name, sha256) of what was applied; None when this database knows no migrations."""
    found = connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'docwell' AND relname = 'migration'"
    ).fetchone()
    if found is None:
        return None
    try:
        rows = connection.execute("SELECT version, name, sha256 FROM docwell.migration").fetchall()
    except psycopg.errors.InsufficientPrivilege as error:
        raise _privilege_missing(connection, error) from error
    return {version: (name, digest) for version, name, digest in rows}


_FOREIGN = """
    SELECT format('%s %I.%I', kind, nspname, name) FROM (
        SELECT 'table' AS kind, relnamespace AS namespace, relname AS name, oid, 'pg_class'::regclass AS class
        FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        UNION ALL
        SELECT 'function', pronamespace, proname, oid, 'pg_proc'::regclass FROM pg_proc
    ) AS thing
    JOIN pg_namespace n ON n.oid = thing.namespace
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = thing.class AND d.objid = thing.oid AND d.deptype = 'e')
    UNION ALL
    SELECT format('schema %I', nspname) FROM pg_namespace n
    WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public', 'docwell')
      AND NOT EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_namespace'::regclass AND d.objid = n.oid AND d.deptype = 'e')
    ORDER BY 1 LIMIT 3
"""


def _refuse_foreign(connection: Connection[Any]) -> None:
    foreign = [row[0] for row in connection.execute(_FOREIGN).fetchall()]
    if foreign:
        raise ConfigurationError(
            f"The database {connection.info.dbname!r} is neither empty nor Docwell's: it holds {', '.join(foreign)}."
            " Nothing was changed. Give Docwell a database of its own in DOCWELL_DATABASE_URL.",
            code="foreign_database",
        )


def _still_to_do(known: Sequence[Migration], applied: dict[int, tuple[str, str]]) -> list[Migration]:
    newest = max(applied, default=0)
    by_version = {migration.version: migration for migration in known}
    unknown = sorted(applied.keys() - by_version.keys())
    if unknown:
        raise ConfigurationError(
            f"The database has migration {applied[unknown[-1]][0]}, which this installation does not know: it was migrated by a"
            " newer Docwell. Update this installation; nothing was changed.",
            code="schema_new",
        )
    for version, (name, digest) in sorted(applied.items()):
        if by_version[version].sha256 != digest:
            raise ConfigurationError(
                f"Migration {name} differs from the one that was applied to this database. Install the Docwell release that"
                " made the database, then update; nothing was changed.",
                code="migration_changed",
            )
    wanted = [migration for migration in known if migration.version not in applied]
    late = [migration.name for migration in wanted if migration.version < newest]
    if late:
        raise ConfigurationError(
            f"Migration {late[0]} comes before migration {newest}, which was applied already. Migrations only go forward;"
            " nothing was changed.",
            code="migration_late",
        )
    return wanted


def _make_reader_role(connection: Connection[Any]) -> None:
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [READER_ROLE]).fetchone() is None:
        # Roles belong to the whole server: another database's migration may be faster.
        with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(READER_ROLE)))
    # Its maker may hand the role on but, since PostgreSQL 16, not put it on; the owner's tools read as the reader too.
    able = "SELECT pg_has_role(current_user, %s, %s)"
    privilege, options = ("SET", " WITH INHERIT FALSE, SET TRUE") if connection.info.server_version >= 160000 else ("MEMBER", "")
    row = connection.execute(able, [READER_ROLE, privilege]).fetchone()
    if row is None or not row[0]:
        grant = sql.SQL("GRANT {} TO CURRENT_USER" + options)  # options are the constants above
        connection.execute(grant.format(sql.Identifier(READER_ROLE)))


def _make_record(connection: Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute("CREATE SCHEMA IF NOT EXISTS docwell")
        connection.execute(
            "CREATE TABLE docwell.migration ("
            " version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL,"
            " applied_at timestamptz NOT NULL DEFAULT now())"
        )


def _apply(connection: Connection[Any], migration: Migration) -> None:
    try:
        with connection.transaction():
            connection.execute("SET LOCAL client_min_messages = warning")
            connection.execute(migration.statements)
            connection.execute(
                "INSERT INTO docwell.migration (version, name, sha256) VALUES (%s, %s, %s)",
                [migration.version, migration.name, migration.sha256],
            )
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.DatabaseError as error:
        if isinstance(error, psycopg.OperationalError):
            raise
        raise ConfigurationError(
            f"Migration {migration.name} failed and was undone: {first_line(error)}.", code="migration_failed"
        ) from error


def _close_to_the_public(connection: Connection[Any]) -> None:
    """Nobody makes temporary tables, or anything in `public`, merely because he can log in."""
    row = connection.execute(
        "SELECT pg_has_role(current_user, datdba, 'USAGE') FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    if row is not None and row[0]:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("REVOKE TEMPORARY, CREATE ON DATABASE {} FROM PUBLIC").format(name))


def _user_of(url: str) -> str:
    named = conninfo_to_dict(url).get("user")
    if named is not None:
        return str(named)
    defaults = {option.keyword: option.val for option in Conninfo.get_defaults()}
    return (defaults.get(b"user") or b"").decode()


def _admit_reader(connection: Connection[Any], user: str) -> None:
    row = connection.execute(
        "SELECT rolname = current_user, pg_has_role(oid, %s, 'MEMBER') FROM pg_roles WHERE rolname = %s", [READER_ROLE, user]
    ).fetchone()
    if row is None:
        raise ConfigurationError(
            f"DOCWELL_QUERY_DATABASE_URL logs in as {user!r}, a role that PostgreSQL does not know."
            f" As a superuser, run: {_quoted('CREATE ROLE {} LOGIN', user, connection)} and set its password.",
            code="query_role_missing",
        )
    is_owner, is_member = row
    if not is_owner and not is_member:
        connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(READER_ROLE), sql.Identifier(user)))


def _quoted(statement: str, name: str, connection: Connection[Any]) -> str:
    return statement.format(sql.Identifier(name).as_string(connection)) + ";"


def _privilege_missing(connection: Connection[Any], error: psycopg.Error) -> ConfigurationError:
    owner = connection.info.user
    return ConfigurationError(
        f"The role {owner!r} may not do what a migration needs: {first_line(error)}. As a superuser, run in the database"
        f" {connection.info.dbname!r}: CREATE EXTENSION IF NOT EXISTS vector; "
        + _quoted("ALTER ROLE {} CREATEROLE", owner, connection)
        + f" (if the role {READER_ROLE} exists already, also "
        + _quoted(f"GRANT {READER_ROLE} TO {{}} WITH ADMIN OPTION", owner, connection)
        + ") Then run `docwell migrate` again.",
        code="privilege_missing",
    )
