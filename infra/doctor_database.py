"""The doctor's look into the database: schema, roles, row-level security, vectors, and documents that nobody works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql

from infra.doctor_models import changed_on_purpose, look_at_upkeep
from infra.findings import Finding, failed, fine, skipped, warning
from ingest_worker.catalogue import remote_items
from ingest_worker.catalogue.overview import active_embedding, list_sources
from ingest_worker.catalogue.sources import MANUAL, PUSH, get_source
from ingest_worker.sources.report import remote_report
from shared.config import Settings
from shared.database import READER_ROLE, SCHEMA_VERSION, check_schema, first_line
from shared.errors import ConfigurationError, DocwellError

_AGAIN = "`docwell documents exclude` and then `include` reads a document again from its source."


def look_into_database(
    connection: Connection[Any], fingerprint: Callable[[], str], settings: Settings | None = None
) -> Iterator[Finding]:
    """Every check of the database; `fingerprint` gives the key of the embedding model that is configured. Without settings the
    checks that go by them are left out."""
    try:
        check_schema(connection)
    except ConfigurationError as error:
        yield failed("schema", str(error), "Run `docwell migrate`.")
        return
    row = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    yield fine("schema", f"Version {SCHEMA_VERSION}.")
    yield fine("pgvector", f"Version {row[0] if row else 'unknown'}.")
    for check in (
        _look_at_role,
        _look_at_row_security,
        _look_at_searchability,
        _look_at_statistics,
        _look_at_stuck,
        _look_at_dead,
        _look_at_sources,
    ):
        try:
            yield check(connection)
        except psycopg.errors.QueryCanceled as error:
            yield skipped(check.__name__.removeprefix("_look_at_"), f"It took too long: {first_line(error)}.")
    changed = changed_on_purpose(connection, settings) if settings is not None else None
    yield changed or _look_at_fingerprint(connection, fingerprint)
    if settings is not None:
        yield from look_at_upkeep(connection, settings)


_ROLE: LiteralString = """
    SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = %(role)s
"""
_WRITABLE: LiteralString = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'docwell' AND c.relkind IN ('r', 'p', 'v', 'm')
      AND has_table_privilege(%(role)s, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
    ORDER BY 1
"""


def _look_at_role(connection: Connection[Any]) -> Finding:
    row = connection.execute(_ROLE, {"role": READER_ROLE}).fetchone()
    if row is None:
        return failed("reader role", f"The role {READER_ROLE} is missing.", "Run `docwell migrate`.")
    if row[0]:
        cure = f"ALTER ROLE {READER_ROLE} NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB"
        return failed("reader role", f"The role {READER_ROLE} may do more than read.", cure)
    writable = [name for (name,) in connection.execute(_WRITABLE, {"role": READER_ROLE}).fetchall()]
    if writable:
        cure = (
            f"REVOKE ALL ON ALL TABLES IN SCHEMA docwell FROM {READER_ROLE}, PUBLIC; then grant SELECT again: `docwell migrate`."
        )
        return failed("reader role", f"The role {READER_ROLE} may write to {', '.join(writable)}.", cure)
    return fine("reader role", f"{READER_ROLE} can only SELECT.")


# What the reader may read without a policy holds no document: the embedding spaces and the record of migrations.
_UNPROTECTED: LiteralString = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'docwell' AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
      AND (EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'audience_id' AND NOT a.attisdropped)
           OR (has_table_privilege(%(role)s, c.oid, 'SELECT') AND c.relname NOT IN ('embedding_space', 'migration')))
    ORDER BY 1
"""


def _look_at_row_security(connection: Connection[Any]) -> Finding:
    open_tables = [name for (name,) in connection.execute(_UNPROTECTED, {"role": READER_ROLE}).fetchall()]
    if open_tables:
        cure = "; ".join(f"SELECT docwell.protect('{name}')" for name in open_tables)
        return failed("row-level security", f"Rows of every reader can be seen in {', '.join(open_tables)}.", cure)
    return fine("row-level security", "Forced on every table that holds documents or parts of them.")


# Of those that stay without a vector on purpose a finding of their own tells.
_UNSEARCHABLE = sql.SQL("""
    WITH served AS (
        SELECT DISTINCT ON (place.audience_id, place.chunk_id) place.audience_id, place.chunk_id, d.path
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
    ), looked AS (
        SELECT s.path,
               EXISTS (SELECT 1 FROM docwell.chunk_terms t
                       WHERE t.audience_id = s.audience_id AND t.chunk_id = s.chunk_id) AS has_terms,
               EXISTS (SELECT 1 FROM {vectors} v WHERE v.audience_id = s.audience_id AND v.input_id = c.input_id) AS has_vector,
               EXISTS (SELECT 1 FROM docwell.without_vector w WHERE w.space_id = %(space)s AND w.audience_id = s.audience_id
                         AND w.input_id = c.input_id) AS is_apart
        FROM served s JOIN docwell.chunk c USING (audience_id, chunk_id)
    )
    SELECT count(*) FILTER (WHERE NOT has_terms), count(*) FILTER (WHERE NOT has_vector AND NOT is_apart), count(*),
           min(path) FILTER (WHERE NOT has_vector AND NOT is_apart), count(*) FILTER (WHERE NOT has_vector AND is_apart)
    FROM looked
""")


def _look_at_searchability(connection: Connection[Any]) -> Finding:
    space = connection.execute("SELECT space_id FROM docwell.embedding_space WHERE state = 'active'").fetchone()
    if space is None:
        return skipped("searchable chunks", "Nothing was indexed yet.")
    query = _UNSEARCHABLE.format(vectors=sql.Identifier("docwell", f"vector_{space[0]}"))
    row = connection.execute(query, {"space": space[0]}).fetchone() or (0, 0, 0, None, 0)
    without_terms, without_vector, served, example, apart = row
    if without_terms or without_vector:
        said = f"Of {served} served chunks {without_vector} have no vector and {without_terms} no terms"
        return failed("searchable chunks", f"{said}{f', those of {example} among them' if example else ''}.", _AGAIN)
    if apart:
        return fine("searchable chunks", f"All {served} served chunks have their terms, and all but {apart} their vector.")
    return fine("searchable chunks", f"All {served} served chunks have their vector and their terms.")


_DRIFT: LiteralString = """
    SELECT count(*) FROM docwell.audience a
    LEFT JOIN (SELECT audience_id, count(*) AS chunks, sum(length) AS terms FROM docwell.chunk_terms GROUP BY audience_id) t
        USING (audience_id)
    WHERE (a.chunk_count, a.term_total) IS DISTINCT FROM (coalesce(t.chunks, 0), coalesce(t.terms, 0))
"""
_MEND = (
    "UPDATE docwell.audience a SET chunk_count = (SELECT count(*) FROM docwell.chunk_terms t WHERE t.audience_id ="
    " a.audience_id), term_total = (SELECT coalesce(sum(length), 0) FROM docwell.chunk_terms t WHERE t.audience_id ="
    " a.audience_id)"
)


def _look_at_statistics(connection: Connection[Any]) -> Finding:
    row = connection.execute(_DRIFT).fetchone()
    if row is not None and row[0]:
        return failed("keyword statistics", f"The averages of {row[0]} audiences differ from what is stored.", f"{_MEND};")
    return fine("keyword statistics", "The averages fit what is stored.")


_STUCK: LiteralString = """
    SELECT count(*), min(path) FROM docwell.document d
    WHERE state IN ('queued', 'indexing')
      AND NOT EXISTS (SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id
                      AND j.state IN ('queued', 'running', 'retrying'))
"""


def _look_at_stuck(connection: Connection[Any]) -> Finding:
    count, example = connection.execute(_STUCK).fetchone() or (0, None)
    if count:
        return failed("stuck documents", f"{count} documents wait without a job, {example} among them.", _AGAIN)
    return fine("stuck documents", "Every document that waits has a job.")


def _look_at_dead(connection: Connection[Any]) -> Finding:
    row = connection.execute("SELECT count(*) FROM docwell.job WHERE state = 'dead'").fetchone()
    if row is not None and row[0]:
        cure = "`docwell jobs list --state dead` shows why; `docwell jobs retry` and `docwell jobs purge` end them."
        return warning("dead letters", f"{row[0]} jobs failed for good.", cure)
    return fine("dead letters", "None.")


def _look_at_sources(connection: Connection[Any]) -> Finding:
    """How folders and sources over the network are followed, and what their newest sweeps met."""
    rows = [row for row in list_sources(connection) if row.type not in {MANUAL, PUSH} and row.removed_at is None]
    if not rows:
        return skipped("sources", "No folder is a source yet.")
    troubles = [
        *(f"{row.name} is watched by nobody: start `docwell up`, or `docwell watch`." for row in rows if not row.watched),
        *(f"{row.name}: {row.sweep_error}" for row in rows if row.sweep_error is not None),
        *(f"{row.name}: {row.watch_notice}" for row in rows if row.watched and row.watch_notice is not None),
        *(f"{row.name} is paused: `docwell sources resume {row.name}`." for row in rows if row.paused),
        *(trouble for row in rows for trouble in _remote_troubles(connection, row.name)),
    ]
    if troubles:
        return warning(
            "sources", " ".join(troubles), "`docwell sources show NAME` tells more of each; the sentences name their cures."
        )
    return fine("sources", f"{len(rows)} sources are watched, and their newest sweeps were complete.")


def _remote_troubles(connection: Connection[Any], name: str) -> Iterator[str]:
    """What keeps a source over the network from being as its other side is."""
    source = get_source(connection, name)
    found = None if source is None else remote_report(connection, source.source_id, datetime.now(UTC))
    if source is None or found is None:
        return
    if found.paused_until is not None and found.failures == 0:
        yield f"{name} is left alone until {found.paused_until:%Y-%m-%d %H:%M:%S} UTC: {found.pause_reason}"
    # What is left out for good, such as notebooks, is no trouble.
    failing = [one for one in remote_items.failures(connection, source.source_id) if one.retry_at is not None]
    if failing:
        yield f"{len(failing)} of the things of {name} could not be taken: `docwell sources show {name} --failed`."
    if found.events_dead:
        yield f"{found.events_dead} events of {name} were given up: `docwell sources sync {name}` makes up for them."
    if found.subscription_error is not None:
        yield f"{name} is not told of changes, it asks for them: {found.subscription_error}"


def _look_at_fingerprint(connection: Connection[Any], fingerprint: Callable[[], str]) -> Finding:
    active = active_embedding(connection)
    if active is None:
        return skipped("embedding model", "Nothing was embedded yet; any model fits.")
    try:
        configured = fingerprint()
    except DocwellError as error:
        return failed("embedding model", str(error), "Start the embedder, or correct the DOCWELL_EMBEDDING_ settings.")
    if configured != active.fingerprint:
        return failed(
            "embedding model",
            f"The index holds vectors of {active.model} ({active.fingerprint}), the settings name another model ({configured}).",
            "Set DOCWELL_EMBEDDING_PROVIDER and DOCWELL_EMBEDDING_MODEL back. `docwell reindex` changes the model while"
            " everything runs; `docwell reindex adopt` takes over a mere new name.",
        )
    return fine("embedding model", f"{active.model}, {active.dimension} dimensions: the one of the index.")
