"""Where chunks stand: the documents that serve them, with all that a citation needs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, LiteralString, TypeAlias

from psycopg import Connection
from psycopg.rows import dict_row

from query_server.retrieve.extraction import REMARKS
from query_server.retrieve.filters import Filters
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.scope import Scope
from shared.documents import Span

MOST_COPIES = 20
"""Documents that are shown for one text; a licence that stands in a thousand files is no thousand answers."""


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk in a document that serves it; of several places in one document the first, and `times` is how many there are.
    `remarks` are there where readers should know something of how the document was read (see `extraction`). Its fields come in
    the order of _PLACES."""

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
    times: int = 1
    remarks: list[str | None] | None = None

    @property
    def key(self) -> ChunkKey:
        """The chunk."""
        return self.audience_id, self.chunk_id

    @property
    def span(self) -> Span:
        """Where in the document the chunk stands."""
        return Span(
            page_start=self.page_start,
            page_end=self.page_end,
            page_label=self.page_label,
            line_start=self.line_start,
            line_end=self.line_end,
            slide=self.slide,
            sheet=self.sheet,
            row_start=self.row_start,
            row_end=self.row_end,
            attachment=self.attachment,
        )


# A lateral subquery with a LIMIT can only be done as it stands here: chunk by chunk, by index. Left to itself, the plan that
# PostgreSQL keeps for a prepared statement reads all documents (17 ms instead of 1). The text comes with the first place alone:
# a licence that stands in a thousand files is sent once.
_PLACES: LiteralString = """
    SELECT w.audience_id, w.chunk_id, s.document_id, s.ordinal, s.page_start, s.page_end, s.page_label, s.line_start,
           s.line_end, s.slide, s.sheet, s.row_start, s.row_end, s.attachment,
           s.path, s.source_id, s.namespace_id, s.title, s.url, s.tags, s.version, s.last_indexed, s.source_modified,
           c.kind, c.section, c.symbol, c.language, c.tokens, s.times, s.remarks, CASE WHEN s.copy = 1 THEN c.text END
    FROM unnest(%(wanted_audiences)s::integer[], %(wanted_chunks)s::uuid[]) AS w (audience_id, chunk_id)
    CROSS JOIN LATERAL (
        SELECT held.*, row_number() OVER (ORDER BY path, document_id) AS copy
        FROM (
            SELECT DISTINCT ON (d.document_id) place.*, d.document_id, d.path, d.title, d.url, d.tags,
                   d.served_version AS version, coalesce(d.last_indexed, now()) AS last_indexed, d.source_modified,
                   d.source_id, d.namespace_id, count(*) OVER (PARTITION BY d.document_id) AS times,
"""
_REMARKED: LiteralString = """ AS remarks
            FROM docwell.version_chunk place JOIN docwell.document d ON d.served_version_id = place.version_id
            JOIN docwell.version v ON v.version_id = place.version_id
            WHERE place.audience_id = w.audience_id AND place.chunk_id = w.chunk_id
              AND d.audience_id = ANY (%(audiences)s::integer[])
"""
_IN_ORDER: LiteralString = """
            ORDER BY d.document_id, place.ordinal
        ) AS held
        ORDER BY path, document_id LIMIT %(copies)s
    ) AS s
    JOIN docwell.chunk c ON c.audience_id = w.audience_id AND c.chunk_id = w.chunk_id
    ORDER BY w.audience_id, w.chunk_id, s.copy
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a chunk stands, by path, at most MOST_COPIES places; and its text."""

    places: list[Place]
    text: str


def find_places(
    connection: Connection[Any], scope: Scope, filters: Filters, keys: Sequence[ChunkKey]
) -> dict[ChunkKey, Standing]:
    """The documents in scope that serve each chunk; a chunk that none serves is not in the answer."""
    values = {
        "wanted_audiences": [audience for audience, _ in keys],
        "wanted_chunks": [chunk for _, chunk in keys],
        "audiences": list(scope.audiences),
        "copies": MOST_COPIES,
        **filters.parameters,
    }
    statement: LiteralString = _PLACES + REMARKS + _REMARKED + filters.on_passages + _IN_ORDER
    found: dict[ChunkKey, Standing] = {}
    with connection.cursor(binary=True) as cursor:
        for *columns, text in cursor.execute(statement, values):
            place = Place(*columns)
            standing = found.get(place.key)
            if standing is None:
                found[place.key] = Standing(places=[place], text=str(text))
            else:
                standing.places.append(place)
    return found


_FURTHER: LiteralString = """
    SELECT w.number, s.ordinal, s.page_start, s.page_end, s.page_label, s.line_start, s.line_end, s.slide, s.sheet, s.row_start,
           s.row_end, s.attachment
    FROM unnest(%(documents)s::uuid[], %(audiences)s::integer[], %(chunks)s::uuid[], %(ordinals)s::integer[])
         WITH ORDINALITY AS w (document_id, audience_id, chunk_id, ordinal, number)
    CROSS JOIN LATERAL (
        SELECT place.* FROM docwell.version_chunk place JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE place.audience_id = w.audience_id AND place.chunk_id = w.chunk_id AND d.document_id = w.document_id
          AND place.ordinal <> w.ordinal
        ORDER BY place.ordinal LIMIT %(most)s
    ) AS s
    ORDER BY w.number, s.ordinal
"""


PlaceKey: TypeAlias = tuple[uuid.UUID, ChunkKey]


def place_key(place: Place) -> PlaceKey:
    """The document and the chunk."""
    return place.document_id, place.key


def further_places(connection: Connection[Any], places: Sequence[Place], *, most: int) -> dict[PlaceKey, list[Place]]:
    """Where else in the same document each chunk stands, `most` places at most; those that stand once are not looked up."""
    wanted = [place for place in places if place.times > 1]
    if not wanted:
        return {}
    values = {
        "documents": [place.document_id for place in wanted],
        "audiences": [place.audience_id for place in wanted],
        "chunks": [place.chunk_id for place in wanted],
        "ordinals": [place.ordinal for place in wanted],
        "most": most,
    }
    names = ("ordinal", *(field.name for field in fields(Span)))
    found: dict[PlaceKey, list[Place]] = {}
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_FURTHER, values):
            place = wanted[row["number"] - 1]
            found.setdefault(place_key(place), []).append(replace(place, **{name: row[name] for name in names}))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of sources and namespaces by their number."""

    sources: Mapping[int, str]
    namespaces: Mapping[int, str]
