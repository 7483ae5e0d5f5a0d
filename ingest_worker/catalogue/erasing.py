"""The rows that an erasure takes away, of the document itself and of others that have the same bytes."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection, sql
from psycopg.rows import class_row

from ingest_worker.catalogue import named_events, usage
from ingest_worker.catalogue.erasures import ERASED, Place, erased_reason
from ingest_worker.catalogue.vectors import vector_table
from ingest_worker.jobs import control

Owner = tuple[int, uuid.UUID]
"""(audience_id, chunk_id)"""


_PLACES: LiteralString = """
    SELECT d.document_id, s.name AS source, n.name AS namespace, d.path
    FROM docwell.document d JOIN docwell.source s USING (source_id) JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE d.document_id = ANY (%s) ORDER BY s.name, n.name, d.path
"""


def places(connection: Connection[Any], documents: Collection[uuid.UUID]) -> list[Place]:
    """The names of these documents, in order."""
    with connection.cursor(row_factory=class_row(Place)) as cursor:
        return cursor.execute(_PLACES, (list(documents),)).fetchall()


_DIGESTS: LiteralString = """
    SELECT sha256 FROM docwell.version WHERE document_id = %(document)s
    UNION SELECT sha256 FROM docwell.document WHERE document_id = %(document)s AND sha256 IS NOT NULL
    UNION SELECT sha256 FROM docwell.pushed_content WHERE document_id = %(document)s
"""


def digests_of(connection: Connection[Any], document_id: uuid.UUID) -> set[bytes]:
    """The sha256 of all bytes of a document that are known: of its versions, of those that wait, of those that were pushed."""
    return {bytes(row[0]) for row in connection.execute(_DIGESTS, {"document": document_id}).fetchall()}


_SHARING: LiteralString = """
    SELECT document_id FROM docwell.version WHERE sha256 = ANY (%(digests)s)
    UNION SELECT document_id FROM docwell.document WHERE sha256 = ANY (%(digests)s)
    UNION SELECT document_id FROM docwell.pushed_content WHERE sha256 = ANY (%(digests)s)
"""


def documents_with(connection: Connection[Any], digests: Collection[bytes]) -> set[uuid.UUID]:
    """The documents that have, or had in a version that is kept, one of these bytes."""
    return {row[0] for row in connection.execute(_SHARING, {"digests": list(digests)}).fetchall()}


# Jobs before documents: the order in which every publisher holds them. Then the table: a publisher reads it when it has both.
_HOLD_JOBS: LiteralString = """
    SELECT job_id FROM docwell.job WHERE document_id = ANY (%s) AND state IN ('queued', 'running', 'retrying')
    ORDER BY job_id FOR UPDATE
"""
_HOLD_DOCUMENTS: LiteralString = """
    SELECT document_id FROM docwell.document WHERE document_id = ANY (%s) ORDER BY document_id FOR UPDATE
"""
_NO_PUBLISHER: LiteralString = "LOCK TABLE docwell.erased_content IN ACCESS EXCLUSIVE MODE"


def hold(connection: Connection[Any], documents: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Hold these documents and their live jobs, and let nothing be published until we commit; returns those that are there."""
    connection.execute(_HOLD_JOBS, (list(documents),))
    held = connection.execute(_HOLD_DOCUMENTS, (list(documents),)).fetchall()
    connection.execute(_NO_PUBLISHER)
    return {row[0] for row in held}


# One that another document's job is working on has no text yet: it stays, and tells the job that its bytes were erased.
_DOOMED: LiteralString = """
    SELECT version_id FROM docwell.version
    WHERE document_id = %(document)s OR (sha256 = ANY (%(digests)s) AND state <> 'indexing')
"""


def versions_with(connection: Connection[Any], document_id: uuid.UUID, digests: Collection[bytes]) -> list[int]:
    """All versions of the document, and those of others that have these bytes."""
    return [row[0] for row in connection.execute(_DOOMED, {"document": document_id, "digests": list(digests)}).fetchall()]


_UNSERVE: LiteralString = """
    UPDATE docwell.document d SET
        served_version_id = NULL, served_version = NULL, chunk_count = 0, changed_at = now(),
        title = (SELECT pushed.title FROM docwell.pushed_content pushed WHERE pushed.document_id = d.document_id)
    WHERE served_version_id = ANY (%s)
"""
_AUDIENCES: LiteralString = "SELECT DISTINCT audience_id FROM docwell.document WHERE document_id = ANY (%s)"


def unserve(connection: Connection[Any], versions: Sequence[int]) -> None:
    """Serve none of these versions any more."""
    connection.execute(_UNSERVE, (list(versions),))


def audiences_of(connection: Connection[Any], documents: Collection[uuid.UUID]) -> set[int]:
    """Who may see these documents."""
    return {row[0] for row in connection.execute(_AUDIENCES, (list(documents),)).fetchall()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows there are of some chunks: of their text, of the keyword leg, and vectors of all spaces."""

    chunks: int
    terms: int
    vectors: int

    def __sub__(self, other: Rows) -> Rows:
        return Rows(chunks=self.chunks - other.chunks, terms=self.terms - other.terms, vectors=self.vectors - other.vectors)


_COUNT = sql.SQL("""
    SELECT count(*) FROM {table}
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, {key}) USING (audience_id, {key})
""")
_INPUTS: LiteralString = """
    SELECT c.audience_id, c.input_id FROM docwell.chunk c
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id) USING (audience_id, chunk_id)
"""
_SPACES: LiteralString = "SELECT space_id FROM docwell.embedding_space WHERE NOT is_dropped ORDER BY space_id"


def inputs_of(connection: Connection[Any], chunks: Collection[Owner]) -> set[Owner]:
    """The keys (audience_id, input_id) of the vectors of these chunks."""
    return set(connection.execute(_INPUTS, _bound(chunks)).fetchall())


def count_rows(connection: Connection[Any], chunks: Collection[Owner], inputs: Collection[Owner]) -> Rows:
    """Count the rows of these chunks and of these vectors."""
    spaces = [row[0] for row in connection.execute(_SPACES).fetchall()]
    return Rows(
        chunks=_count(connection, sql.Identifier("docwell", "chunk"), "chunk_id", chunks),
        terms=_count(connection, sql.Identifier("docwell", "chunk_terms"), "chunk_id", chunks),
        vectors=sum(_count(connection, vector_table(space), "input_id", inputs) for space in spaces),
    )


def _count(connection: Connection[Any], table: sql.Composable, key: str, keys: Collection[Owner]) -> int:
    row = connection.execute(_COUNT.format(table=table, key=sql.Identifier(key)), _bound(keys)).fetchone()
    return int(row[0]) if row else 0


def _bound(keys: Collection[Owner]) -> dict[str, Any]:
    return {"audiences": [audience for audience, _ in keys], "ids": [key for _, key in keys]}


_HOLDERS: LiteralString = """
    SELECT DISTINCT v.document_id FROM docwell.version v JOIN docwell.version_chunk place USING (version_id)
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id)
        ON (wanted.audience_id, wanted.chunk_id) = (place.audience_id, place.chunk_id)
"""


def holders_of(connection: Connection[Any], chunks: Collection[Owner]) -> set[uuid.UUID]:
    """The documents of which a version holds one of these chunks."""
    return {row[0] for row in connection.execute(_HOLDERS, _bound(chunks)).fetchall()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What went with a document's own row."""

    jobs: int
    pushed_bytes: int
    usage_rows: int
    events: int


_OWN_ROWS: LiteralString = """
    SELECT (SELECT count(*) FROM docwell.job WHERE document_id = %(document)s) AS jobs,
           coalesce((SELECT size FROM docwell.pushed_content WHERE document_id = %(document)s), 0) AS pushed_bytes
"""


def drop_document(connection: Connection[Any], document_id: uuid.UUID) -> Gone:
    """Remove the document's row with all that hangs on it: jobs, whose errors may quote its text, pushed bytes, its place in the
    usage log, and what events of its source said of it."""
    usage_rows = usage.forget(connection, document_id)
    emptied = named_events.forget(connection, document_id)
    jobs, pushed_bytes = connection.execute(_OWN_ROWS, {"document": document_id}).fetchone() or (0, 0)
    connection.execute("DELETE FROM docwell.document WHERE document_id = %s", (document_id,))
    return Gone(jobs=jobs, pushed_bytes=pushed_bytes, usage_rows=usage_rows, events=emptied)


# What is left of another document that had the same bytes: an error may quote them, a title may stand in them.
_FORGET_ERRORS: LiteralString = "UPDATE docwell.job SET last_error = NULL WHERE document_id = ANY (%(documents)s)"
_FORGET_PUSHED: LiteralString = """
    DELETE FROM docwell.pushed_content WHERE document_id = ANY (%(documents)s) AND sha256 = ANY (%(digests)s)
    RETURNING document_id
"""
_LIVE_JOBS: LiteralString = """
    SELECT job_id FROM docwell.job WHERE document_id = ANY (%s) AND state IN ('queued', 'running', 'retrying')
"""
_OTHERS: LiteralString = """
    WITH others AS (
        SELECT d.document_id, served.state AS served_state,
               d.sha256 = ANY (%(digests)s) IS TRUE OR latest.version_id IS NULL
                   OR d.document_id = ANY (%(unpushed)s) AS is_blocked,
               EXISTS (SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id
                       AND j.state IN ('queued', 'running', 'retrying')) AS is_live
        FROM docwell.document d
        LEFT JOIN docwell.version served ON served.version_id = d.served_version_id
        LEFT JOIN docwell.version latest ON latest.document_id = d.document_id AND latest.number = d.latest_version
        WHERE d.document_id = ANY (%(documents)s) AND d.state NOT IN ('deleted', 'excluded')
    )
    UPDATE docwell.document d SET
        sha256 = CASE WHEN d.sha256 = ANY (%(digests)s) THEN NULL ELSE d.sha256 END,
        pinned_version = CASE WHEN d.searchable THEN d.pinned_version END,
        state = CASE WHEN is_live THEN d.state WHEN d.searchable AND is_blocked THEN served_state WHEN d.searchable THEN d.state
                     WHEN is_blocked THEN 'skipped' ELSE 'queued' END,
        reason_code = CASE WHEN is_blocked THEN %(code)s ELSE d.reason_code END,
        reason = CASE WHEN is_blocked THEN %(reason)s ELSE d.reason END,
        changed_at = now()
    FROM others WHERE d.document_id = others.document_id
    RETURNING d.document_id, d.searchable, is_blocked
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Another document after its versions with erased bytes went. `is_blocked`: these are the bytes that it has now."""

    document_id: uuid.UUID
    searchable: bool
    is_blocked: bool


def leave_others(
    connection: Connection[Any], documents: Collection[uuid.UUID], digests: Collection[bytes], erasure_id: uuid.UUID
) -> list[Left]:
    """Tell how other documents stand whose versions with these bytes went; those that are deleted or excluded stay so."""
    values: dict[str, Any] = {
        "documents": list(documents),
        "digests": list(digests),
        "code": ERASED,
        "reason": erased_reason(erasure_id),
    }
    connection.execute(_FORGET_ERRORS, values)
    values["unpushed"] = [row[0] for row in connection.execute(_FORGET_PUSHED, values).fetchall()]
    # There is nothing left for them to read.
    control.cancel(connection, [row[0] for row in connection.execute(_LIVE_JOBS, (values["unpushed"],)).fetchall()])
    with connection.cursor(row_factory=class_row(Left)) as cursor:
        return cursor.execute(_OTHERS, values).fetchall()


_VACUUM = sql.SQL("VACUUM (INDEX_CLEANUP ON) {tables}")
_TABLES = (
    *("chunk", "chunk_terms", "version", "version_chunk", "document", "job", "pushed_content"),
    *("usage_event", "usage_passage", "chunk_context", "caption", "thumbnail", "delivery", "vector_cache", "without_vector"),
)


def vacuum(connection: Connection[Any]) -> None:
    """Clear dead rows, which still hold what was deleted, out of the tables that hold documents and out of their indexes.

    `connection` has no transaction open.
    """
    spaces = [vector_table(row[0]) for row in connection.execute(_SPACES).fetchall()]
    tables = [*(sql.Identifier("docwell", name) for name in _TABLES), *spaces]
    connection.execute("SET statement_timeout = 0")
    try:
        connection.execute(_VACUUM.format(tables=sql.SQL(", ").join(tables)))
    finally:
        connection.execute("RESET statement_timeout")
