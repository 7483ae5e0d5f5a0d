"""A namespace that goes with all that is in it, leaving no row."""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import Connection, sql

from ingest_worker.catalogue.vectors import vector_table

# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOBS: LiteralString = """
    SELECT j.job_id FROM docwell.job j JOIN docwell.document d USING (document_id)
    WHERE d.namespace_id = %s AND j.state IN ('queued', 'running', 'retrying') ORDER BY j.job_id FOR UPDATE OF j
"""
_HOLD_DOCUMENTS: LiteralString = """
    SELECT document_id FROM docwell.document WHERE namespace_id = %s ORDER BY document_id FOR UPDATE
"""
_AUDIENCES: LiteralString = "SELECT audience_id FROM docwell.audience WHERE namespace_id = %s"
_SPACES: LiteralString = "SELECT space_id FROM docwell.embedding_space WHERE NOT is_dropped ORDER BY space_id"
_UNSERVE: LiteralString = "UPDATE docwell.document SET served_version_id = NULL WHERE namespace_id = %s"
_VECTORS = sql.SQL("DELETE FROM {table} WHERE audience_id = ANY (%s)")


def drop_namespace(connection: Connection[Any], namespace_id: int) -> int:
    """Remove a namespace with its documents, passages, vectors and jobs, in one transaction; returns how many documents.

    A worker that has one of its documents in hand finds its job gone and publishes nothing. No source may name the namespace.
    """
    with connection.transaction():
        connection.execute(_HOLD_JOBS, (namespace_id,))
        documents = len(connection.execute(_HOLD_DOCUMENTS, (namespace_id,)).fetchall())
        audiences = [row[0] for row in connection.execute(_AUDIENCES, (namespace_id,)).fetchall()]
        connection.execute(_UNSERVE, (namespace_id,))
        connection.execute("DELETE FROM docwell.document WHERE namespace_id = %s", (namespace_id,))
        for (space_id,) in connection.execute(_SPACES).fetchall():
            connection.execute(_VECTORS.format(table=vector_table(space_id)), (audiences,))
        connection.execute("DELETE FROM docwell.chunk WHERE audience_id = ANY (%s)", (audiences,))
        connection.execute("DELETE FROM docwell.audience WHERE audience_id = ANY (%s)", (audiences,))
        connection.execute("DELETE FROM docwell.namespace WHERE namespace_id = %s", (namespace_id,))
        return documents
