"""Migrations: what they apply, what they refuse, and what the reader's role is left with."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from infra.local.postgres import EmbeddedPostgres
from infra.migrate import Migration, known_migrations, migrate, pending
from shared.database import READER_ROLE, SCHEMA_VERSION, check_schema, connect
from shared.errors import ConfigurationError, ServiceUnavailable
from tests.conftest import Database


def _migration(version: int, statements: str) -> Migration:
    return Migration(version=version, name=f"{version:04}_test", statements=statements.encode(), sha256=str(hash(statements)))


def _count(url: str, query: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_a_fresh_database_gets_every_migration_once(empty_database: Database) -> None:
    names = [migration.name for migration in known_migrations()]
    assert pending(empty_database.url) == names
    assert migrate(empty_database.url, empty_database.reader_url) == names
    assert pending(empty_database.url) == []
    assert migrate(empty_database.url, empty_database.reader_url) == []
    assert known_migrations()[-1].version == SCHEMA_VERSION
    with connect(empty_database.url) as connection:
        check_schema(connection)


def test_two_processes_that_migrate_at_once_apply_each_migration_once(empty_database: Database) -> None:
    program = "import sys; from infra.migrate import migrate; print(len(migrate(sys.argv[1], sys.argv[2])))"
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_database.url, empty_database.reader_url],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for _ in range(3)
    ]
    applied = [int(process.communicate(timeout=60)[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(applied) == [0, 0, len(known_migrations())]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE public.invoice (id int)",
        "CREATE SCHEMA shop",
        "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA docwell CREATE TABLE docwell.other (id int)",
    ],
)
def test_a_database_with_something_else_in_it_is_refused_untouched(
    postgres: EmbeddedPostgres, empty_database: Database, statement: str
) -> None:
    with psycopg.connect(postgres.superuser_conninfo, dbname=empty_database.name) as connection:
        connection.execute(statement.encode())
    for refuses in (migrate, pending):
        with pytest.raises(ConfigurationError, match="neither empty nor Docwell's") as caught:
            refuses(empty_database.url)
        assert caught.value.code == "foreign_database"
    assert _count(empty_database.url, "SELECT count(*) FROM pg_class WHERE relname = 'migration'") == 0


def test_what_extensions_own_is_not_foreign(empty_database: Database) -> None:
    assert _count(empty_database.url, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 1
    assert migrate(empty_database.url) != []


def test_a_changed_migration_is_refused(database: Database) -> None:
    changed = [dataclasses.replace(migration, sha256="0" * 64) for migration in known_migrations()]
    with pytest.raises(ConfigurationError, match="0001_initial differs") as caught:
        migrate(database.url, migrations=changed)
    assert caught.value.code == "migration_changed"


def test_a_database_of_a_newer_docwell_is_refused(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("INSERT INTO docwell.migration (version, name, sha256) VALUES (9999, '9999_future', 'x')")
    with pytest.raises(ConfigurationError, match="9999_future, which this installation does not know") as caught:
        migrate(database.url)
    assert caught.value.code == "schema_new"


def test_a_migration_that_comes_too_late_is_refused(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="only go forward") as caught:
        migrate(database.url, migrations=[_migration(0, "SELECT 1"), *known_migrations()])
    assert caught.value.code == "migration_late"


def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    new = _migration(9000, "CREATE TABLE docwell.half (id int); SELECT 1 / 0;")
    with pytest.raises(ConfigurationError, match="9000_test failed and was undone: division by zero"):
        migrate(database.url, migrations=[*known_migrations(), new])
    assert _count(database.url, "SELECT count(*) FROM pg_class WHERE relname = 'half'") == 0
    assert pending(database.url) == []


def test_a_role_without_the_privileges_is_told_what_a_superuser_has_to_run(
    postgres: EmbeddedPostgres, empty_database: Database
) -> None:
    with psycopg.connect(postgres.superuser_conninfo, dbname="postgres", autocommit=True) as connection:
        connection.execute('CREATE ROLE "we ak" LOGIN')
        connection.execute(f'ALTER DATABASE {empty_database.name} OWNER TO "we ak"'.encode())
    with pytest.raises(ConfigurationError) as caught:
        migrate(postgres.url("we%20ak", empty_database.name))
    assert caught.value.code == "privilege_missing"
    assert 'ALTER ROLE "we ak" CREATEROLE;' in str(caught.value)
    assert f'GRANT {READER_ROLE} TO "we ak" WITH ADMIN OPTION;' in str(caught.value)


def test_a_query_login_that_does_not_exist_is_named(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="'nobody_here', a role that PostgreSQL does not know"):
        migrate(database.url, database.reader_url.replace("docwell_query@", "nobody_here@"))


def test_a_server_that_is_away_is_a_service_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="docwell up"):
        migrate(f"postgresql:///docwell?host={tmp_path}")


# --- what the reader's role can do

FREE_TABLES = {"migration", "embedding_space"}
"""Tables without row-level security that the reader may read: they say nothing about documents."""


def test_every_table_has_forced_row_level_security_or_no_grant_to_the_reader(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("SELECT docwell.create_embedding_space('f', 'local', 'm', 8, 'active')")
        rows = connection.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity,"
            " (SELECT count(*) > 0 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
            "  AND has_column_privilege('docwell_reader', c.oid, a.attnum, 'SELECT'))"
            " FROM pg_class c WHERE relnamespace = 'docwell'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"
        ).fetchall()
    assert len(rows) > 10
    open_tables = {name for name, is_protected, is_readable in rows if is_readable and not is_protected}
    assert open_tables <= FREE_TABLES
    assert {"document", "chunk", "version", "version_chunk"} <= {name for name, _, is_readable in rows if is_readable}


def test_the_reader_holds_no_privilege_to_write(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        writable = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace IN ('docwell'::regnamespace, 'public'::regnamespace)"
            " AND relkind IN ('r', 'p', 'v', 'm', 'f') AND (has_table_privilege('docwell_reader', oid, 'INSERT')"
            " OR has_table_privilege('docwell_reader', oid, 'UPDATE') OR has_table_privilege('docwell_reader', oid, 'DELETE')"
            " OR has_table_privilege('docwell_reader', oid, 'TRUNCATE'))"
        ).fetchall()
        functions = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'docwell'::regnamespace AND provolatile = 'v'"
            " AND has_function_privilege('docwell_reader', oid, 'EXECUTE')"
        ).fetchall()
    assert writable == []
    assert functions == []


@pytest.mark.parametrize("as_reader", [True, False], ids=["as docwell_reader", "as the login itself"])
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO docwell.namespace (name) VALUES ('mine')",
        "DELETE FROM docwell.document",
        "CREATE TABLE docwell.mine (id int)",
        "CREATE TABLE public.mine (id int)",
        "CREATE TEMPORARY TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "SELECT content FROM docwell.pushed_content",
    ],
)
def test_the_reader_can_change_nothing_even_in_a_session_that_is_not_read_only(
    database: Database, statement: str, as_reader: bool
) -> None:
    with connect(database.reader_url, as_reader=as_reader, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


def test_the_reader_sees_nothing_without_a_scope_and_its_namespaces_with_one(database: Database) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(
            "WITH n AS (INSERT INTO docwell.namespace (name) VALUES ('default') RETURNING namespace_id),"
            " a AS (INSERT INTO docwell.audience (namespace_id) SELECT namespace_id FROM n RETURNING audience_id, namespace_id),"
            " s AS (INSERT INTO docwell.source (name, type) VALUES ('push', 'push') RETURNING source_id)"
            " INSERT INTO docwell.document (source_id, namespace_id, audience_id, path)"
            " SELECT source_id, namespace_id, audience_id, 'a.md' FROM a, s"
        )
    counted = "SELECT count(*) FROM docwell.document"
    with connect(database.reader_url, as_reader=True) as connection:
        assert connection.execute(counted).fetchone() == (0,)
        connection.execute("SELECT set_config('docwell.namespaces', '{default}', true)")
        assert connection.execute(counted).fetchone() == (1,)
        connection.execute("SELECT set_config('docwell.namespaces', '{other}', true)")
        assert connection.execute(counted).fetchone() == (0,)
        connection.rollback()
        assert connection.execute(counted).fetchone() == (0,)


def test_the_owner_can_put_on_the_readers_role_for_its_own_searches(database: Database) -> None:
    with connect(database.url, as_reader=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (READER_ROLE,)
