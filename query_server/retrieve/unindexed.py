"""Documents in scope that a search could not look into, named where it found nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import Connection

from query_server.answers import SearchAnswer, Unindexed
from query_server.retrieve.filters import Filters
from query_server.retrieve.scope import Scope

MOST_PATHS = 3

_WORDS = {
    "queued": "not indexed yet",
    "failed": "could not be indexed",
    "needs_ocr": "pictures without text",
    "partial": "searchable only in part",
}

# One that is being indexed waits too, as far as a search goes.
_COUNT: LiteralString = """
    SELECT wanted.name, counted.documents, named.paths
    FROM (VALUES (1, 'queued', ARRAY['queued', 'indexing']), (2, 'failed', ARRAY['failed']), (3, 'needs_ocr', ARRAY['needs_ocr']),
                 (4, 'partial', ARRAY['partial'])) AS wanted (place, name, states)
    CROSS JOIN LATERAL (
        SELECT count(*) AS documents FROM docwell.document d
        WHERE d.audience_id = ANY (%(audiences)s::integer[]) AND d.state = ANY (wanted.states)
"""
_NAME: LiteralString = """
    ) AS counted
    CROSS JOIN LATERAL (
        SELECT array_agg(few.path ORDER BY few.path) AS paths FROM (
            SELECT d.path FROM docwell.document d
            WHERE d.audience_id = ANY (%(audiences)s::integer[]) AND d.state = ANY (wanted.states)
"""
_IN_ORDER: LiteralString = """
            ORDER BY d.path LIMIT %(most)s
        ) AS few
    ) AS named
    WHERE counted.documents > 0
    ORDER BY wanted.place
"""


def find_unindexed(connection: Connection[Any], scope: Scope, filters: Filters) -> tuple[Unindexed, ...]:
    """How many documents that the filters leave could not be searched, or not whole, and the first paths of each state."""
    if not scope.pending and not scope.unread:
        return ()
    on: LiteralString = filters.on_documents
    statement: LiteralString = _COUNT + on + _NAME + on + _IN_ORDER
    values = {"audiences": list(scope.audiences), "most": MOST_PATHS, **filters.parameters}
    rows = connection.execute(statement, values).fetchall()
    return tuple(Unindexed(state=state, documents=count, paths=tuple(paths)) for state, count, paths in rows)


def with_unindexed(answer: SearchAnswer, unindexed: Sequence[Unindexed]) -> SearchAnswer:
    """The answer that found nothing, with what it could not look into."""
    if not unindexed or answer.results:
        return answer
    message = f"{answer.message or ''} {describe(unindexed)}".strip()
    return dataclasses.replace(answer, unindexed=tuple(unindexed), message=message)


def describe(unindexed: Sequence[Unindexed]) -> str:
    """The same as a sentence for a model."""
    parts = []
    for one in unindexed:
        more = ", …" if one.documents > len(one.paths) else ""
        parts.append(f"{_WORDS[one.state]}: {one.documents} ({', '.join(one.paths)}{more})")
    return f"But not all documents here could be searched: {'; '.join(parts)}. The answer may stand there; tell the user so."
