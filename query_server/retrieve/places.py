"""Where chunks stand: the documents that serve them, with all that a citation needs."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from query_server.retrieve.filters import DOCUMENT_FILTER, Filters
from query_server.retrieve.keyword import ChunkKey
from query_server.retrieve.scope import Scope
from shared.documents import Span

MOST_COPIES = 20
"""Documents that are shown for one text; a licence that stands in a thousand files is no thousand answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A chunk in a document that serves it; of several places in one document the first."""

    audience_id: int
    chunk_id: uuid.UUID
    document_id: uuid.UUID
    ordinal: int
    page_start: int | None
    page_end: int | None
    page_label: str | None
    line_start: int | None
    line_end: int | None
    slide: int | None
    sheet: str | None
    row_start: int | None
    row_end: int | None
    attachment: str | None
    path: str
    source_id: int
    namespace_id: int
    title: str | None
    url: str | None
    tags: list[str]
    version: int
    last_indexed: datetime
    source_modified: datetime | None
    kind: str
    section: str | None
    symbol: str | None
    language: str | None
    tokens: int

    @property
    def key(self) -> ChunkKey:
        """The chunk."""
        return self.audience_id, self.chunk_id

    @property
    def span(self) -> Span:
        """Where in the document the chunk stands."""
        return Span(**{field.name: getattr(self, field.name) for field in fields(Span)})


_PLACES: LiteralString = f"""
    WITH wanted AS (
        SELECT * FROM unnest(%(wanted_audiences)s::integer[], %(wanted_chunks)s::uuid[]) AS w (audience_id, chunk_id)
    ), standing AS (
        SELECT DISTINCT ON (place.audience_id, place.chunk_id, d.document_id) place.*, d.document_id, d.path, d.title, d.url,
               d.tags, d.served_version, d.last_indexed, d.source_modified, d.source_id, d.namespace_id
        FROM wanted
        JOIN docwell.version_chunk place USING (audience_id, chunk_id)
        JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
        ORDER BY place.audience_id, place.chunk_id, d.document_id, place.ordinal
    ), ranked AS (
        SELECT standing.*, row_number() OVER (PARTITION BY audience_id, chunk_id ORDER BY path, document_id) AS copy
        FROM standing
    )
    SELECT r.audience_id, r.chunk_id, r.document_id, r.ordinal, r.page_start, r.page_end, r.page_label, r.line_start,
           r.line_end, r.slide, r.sheet, r.row_start, r.row_end, r.attachment,
           r.path, r.source_id, r.namespace_id, r.title, r.url, r.tags, r.served_version AS version,
           coalesce(r.last_indexed, now()) AS last_indexed, r.source_modified,
           c.kind, c.section, c.symbol, c.language, c.tokens
    FROM ranked r
    JOIN docwell.chunk c USING (audience_id, chunk_id)
    WHERE r.copy <= %(copies)s
    ORDER BY r.audience_id, r.chunk_id, r.copy
"""
_TEXTS: LiteralString = """
    SELECT c.audience_id, c.chunk_id, c.text
    FROM unnest(%s::integer[], %s::uuid[]) AS w (audience_id, chunk_id) JOIN docwell.chunk c USING (audience_id, chunk_id)
"""


def find_places(
    connection: Connection[Any], scope: Scope, filters: Filters, keys: Sequence[ChunkKey]
) -> dict[ChunkKey, list[Place]]:
    """The documents in scope that serve each chunk, by path; a chunk that none serves is not in the answer."""
    values = {
        "wanted_audiences": [audience for audience, _ in keys],
        "wanted_chunks": [chunk for _, chunk in keys],
        "audiences": list(scope.audiences),
        "copies": MOST_COPIES,
        **filters.parameters,
    }
    found: dict[ChunkKey, list[Place]] = {}
    with connection.cursor(row_factory=class_row(Place)) as cursor:
        for place in cursor.execute(_PLACES, values):
            found.setdefault(place.key, []).append(place)
    return found


# Names come apart: the policies of these two tables would double the time that planning the places takes.
_NAMES: LiteralString = """
    SELECT 'source', s.source_id, s.name FROM docwell.source s WHERE s.source_id = ANY (%s)
    UNION ALL
    SELECT 'namespace', n.namespace_id, n.name FROM docwell.namespace n WHERE n.namespace_id = ANY (%s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of sources and namespaces by their number."""

    sources: dict[int, str]
    namespaces: dict[int, str]


def find_names(connection: Connection[Any], places: Sequence[Place]) -> Names:
    """The names that these places need."""
    sources = sorted({place.source_id for place in places})
    namespaces = sorted({place.namespace_id for place in places})
    rows = connection.execute(_NAMES, (sources, namespaces)).fetchall() if places else []
    return Names(
        sources={row[1]: row[2] for row in rows if row[0] == "source"},
        namespaces={row[1]: row[2] for row in rows if row[0] == "namespace"},
    )


def find_texts(connection: Connection[Any], keys: Iterable[ChunkKey]) -> dict[ChunkKey, str]:
    """The chunks' texts."""
    wanted = list(dict.fromkeys(keys))
    rows = connection.execute(_TEXTS, ([audience for audience, _ in wanted], [chunk for _, chunk in wanted])).fetchall()
    return {(row[0], row[1]): str(row[2]) for row in rows}
