"""At the end: the index is the folder, exactly. Nothing missing, nothing extra, nothing twice, nothing stale, nothing stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from psycopg import Connection, sql

from tests.faults.ledger import Entry, Ledger
from tests.faults.texts import expected_chunks

_DOCUMENTS = """
    SELECT path, state, searchable, served_version = latest_version, chunk_count, reason, served_version_id, document_id
    FROM docwell.document WHERE state <> 'deleted'
"""
_CHUNKS = """
    SELECT c.text, place.page_start, place.page_end, place.line_start, place.line_end
    FROM docwell.version_chunk place JOIN docwell.chunk c USING (audience_id, chunk_id)
    WHERE place.version_id = %s ORDER BY place.ordinal
"""
_JOBS = """
    SELECT d.path, j.state, j.attempts, j.last_error FROM docwell.job j JOIN docwell.document d USING (document_id)
    WHERE j.state IN ('queued', 'running', 'retrying')
"""
# A dead letter that a later job of the same document made good is history.
_DEAD = """
    SELECT d.path, j.last_error FROM docwell.job j JOIN docwell.document d USING (document_id)
    WHERE j.state = 'dead' AND d.state NOT IN ('indexed', 'deleted')
"""
_SERVED = """
    SELECT DISTINCT place.audience_id, place.chunk_id FROM docwell.document d
    JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
"""
# What the search structures hold against what is served: each must be empty.
_STRUCTURES = {
    "served chunks without terms": f"SELECT * FROM ({_SERVED}) s EXCEPT SELECT audience_id, chunk_id FROM docwell.chunk_terms",
    "terms of chunks that are not served": f"SELECT audience_id, chunk_id FROM docwell.chunk_terms EXCEPT ({_SERVED})",
    "chunks of no version": """
        SELECT audience_id, chunk_id FROM docwell.chunk EXCEPT SELECT audience_id, chunk_id FROM docwell.version_chunk
    """,
    "audiences whose statistics are wrong": """
        SELECT a.audience_id, a.chunk_count, count(t.*), a.term_total, coalesce(sum(t.length), 0)
        FROM docwell.audience a LEFT JOIN docwell.chunk_terms t USING (audience_id)
        GROUP BY a.audience_id HAVING (a.chunk_count, a.term_total) <> (count(t.*), coalesce(sum(t.length), 0))
    """,
    "documents whose chunk count is wrong": """
        SELECT d.path FROM docwell.document d
        WHERE d.chunk_count <> (SELECT count(*) FROM docwell.version_chunk p WHERE p.version_id = d.served_version_id)
    """,
    "documents with several live jobs": """
        SELECT document_id FROM docwell.job WHERE state IN ('queued', 'running', 'retrying')
        GROUP BY document_id HAVING count(*) > 1
    """,
}
_SERVED_INPUTS = (
    f"SELECT DISTINCT c.input_id, c.audience_id FROM ({_SERVED}) s JOIN docwell.chunk c USING (audience_id, chunk_id)"
)
_VECTORS = {
    "served chunks without a vector": f"{_SERVED_INPUTS} EXCEPT SELECT input_id, audience_id FROM {{table}}",
    "vectors of chunks that are not served": f"SELECT input_id, audience_id FROM {{table}} EXCEPT ({_SERVED_INPUTS})",
    "vectors that are there twice": "SELECT input_id FROM {table} GROUP BY input_id, audience_id HAVING count(*) > 1",
}


def pending(connection: Connection[Any]) -> list[str]:
    """The live jobs."""
    return [f"{path}: {state}, attempt {attempts}, {error}" for path, state, attempts, error in connection.execute(_JOBS)]


def compare(connection: Connection[Any], ledger: Ledger) -> Iterator[str]:
    """All differences between what was written last and what the index holds, as sentences."""
    documents = {row[0]: row for row in connection.execute(_DOCUMENTS).fetchall()}
    wanted = {entry.path: entry for entry in ledger.all() if not entry.leaving}
    yield from (f"{path} is missing" for path in wanted.keys() - documents.keys())
    yield from (f"{path} is in the index, and not in the folder" for path in documents.keys() - wanted.keys())
    for path in sorted(wanted.keys() & documents.keys()):
        yield from _compare_document(connection, wanted[path], documents[path])
    yield from (f"a job is left: {job}" for job in pending(connection))
    yield from (f"a dead letter is left: {row}" for row in connection.execute(_DEAD).fetchall())
    for name, query in _STRUCTURES.items():
        yield from _count(name, connection.execute(query).fetchall())
    for (space,) in connection.execute("SELECT space_id FROM docwell.embedding_space").fetchall():
        table = sql.Identifier("docwell", f"vector_{space}")
        for name, query in _VECTORS.items():
            yield from _count(name, connection.execute(sql.SQL(query).format(table=table)).fetchall())


def _count(name: str, rows: list[tuple[Any, ...]]) -> Iterator[str]:
    if rows:
        yield f"{len(rows)} {name}, the first is {rows[0]}"


def _compare_document(connection: Connection[Any], entry: Entry, row: tuple[Any, ...]) -> Iterator[str]:
    path, state, searchable, served_is_latest, chunks, reason, version, _ = row
    if (state, searchable, served_is_latest) != ("indexed", True, True):
        yield f"{path} is {state}, searchable: {searchable}, served is latest: {served_is_latest}, {reason}"
        return
    found = [tuple(one) for one in connection.execute(_CHUNKS, (version,)).fetchall()]
    expected = [
        (chunk.text, chunk.span.page_start, chunk.span.page_end, chunk.span.line_start, chunk.span.line_end)
        for chunk in expected_chunks(entry.number, entry.written, entry.ending)
    ]
    if found != expected:
        twice = [text for (text, *_), times in Counter(found).items() if times > 1]
        yield f"{path} serves other chunks than revision {entry.written} has: {len(found)} of {len(expected)}, twice: {twice}"
    if chunks != len(expected):
        yield f"{path} counts {chunks} chunks and has {len(expected)}"
