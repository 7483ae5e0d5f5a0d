"""One document followed through a search: by the search's own code, with more depth and with what it drops."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import dict_row

from query_server.access import Principal
from query_server.retrieve.citation import cite
from query_server.retrieve.collapse import Found
from query_server.retrieve.compose import compose
from query_server.retrieve.encode import Encoded
from query_server.retrieve.explain import CutOff, cut_off
from query_server.retrieve.filters import EVERYTHING, Filters
from query_server.retrieve.gather import gather
from query_server.retrieve.legs import DEPTH, Legs
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.request import SearchRequest
from query_server.retrieve.scope import measure
from query_server.retrieve.search import Search
from query_server.snapshot import Snapshots
from shared.documents import Span

DEEP = 1_000
"""Hits of each list that a document is looked for in; a search looks at the first DEPTH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A document's best chunk in one leg. `rank` is None beyond DEEP, and `value` (BM25, or the cosine) None where the leg cannot
    find it at all; `border` is the value of the last hit that the leg brings into the fusion."""

    leg: str
    rank: int | None
    hits: int
    depth: int
    value: float | None
    border: float | None
    passage: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """A document's first passage among those of the answer, 1-based. `role` is `best`, `merged` (it goes on the passage of
    `passage`), `collapsed` (that says the same) or `twin` (the same text stands in another document, which is shown
    first). `text_cut`: only a part of the passage is shown, for want of tokens."""

    place: int | None
    passages: int
    role: str | None
    passage: str | None
    shown: int
    limit: int
    dropped: int
    text_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What a query makes of a document. `fused_rank` counts chunks, and is None when none of its chunks is in the ranking."""

    standings: tuple[Standing, ...]
    fused_rank: int | None
    ranked: int
    cut_off: CutOff
    showing: Showing
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One document as one principal's searches see it. `fits` says of each filter that was given whether the document passes."""

    visible: bool
    fits: Mapping[str, bool]
    ranks: Ranks | None = None


_VISIBLE: LiteralString = "SELECT served_version_id IS NOT NULL FROM docwell.document WHERE document_id = %s"
_FITS: LiteralString = """
    SELECT 1 FROM docwell.document d JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE d.document_id = %(document)s AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s)
"""
_CHUNKS: LiteralString = """
    SELECT place.audience_id, place.chunk_id, d.path, s.name AS source, n.name AS namespace, c.section,
           place.page_start, place.page_end, place.page_label, place.line_start, place.line_end, place.slide, place.sheet,
           place.row_start, place.row_end, place.attachment
    FROM docwell.document d
    JOIN docwell.source s ON s.source_id = d.source_id
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
    JOIN docwell.chunk c ON c.audience_id = place.audience_id AND c.chunk_id = place.chunk_id
    WHERE d.document_id = %s ORDER BY place.ordinal
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunks:
    """The served chunks of a document, each with its citation, and filters that leave little but this document."""

    citations: Mapping[ChunkKey, str]
    alone: Filters


def trace_document(
    search: Search,
    snapshots: Snapshots,
    document_id: uuid.UUID,
    *,
    filters: Filters,
    request: SearchRequest | None,
    encoded: Encoded,
    principal: Principal,
    now: datetime,
    rescan_seconds: float,
) -> Traced:
    """Follow a document, with a `request` up to its place in the answer.

    Raises:
        ConfigurationError: `embedding_mismatch`, the index was made with another model.
    """
    with snapshots.open(principal) as connection:
        row = connection.execute(_VISIBLE, (document_id,)).fetchone()
        if row is None:
            return Traced(visible=False, fits={})
        fits = {name: _fits(connection, document_id, part) for name, part in _each(filters).items()}
        chunks = _chunks(connection, document_id)
        if request is None or not chunks.citations:
            return Traced(visible=True, fits=fits)
        scope = measure(connection, request.filters, now=now, rescan_seconds=rescan_seconds)
        ranked = search.rank(connection, request, encoded, scope, principal)
        deep = search.run_legs(connection, request, encoded, scope, ranked.space, principal, depth=DEEP)
        narrow = dataclasses.replace(request, filters=chunks.alone)
        alone = search.run_legs(
            connection,
            narrow,
            encoded,
            measure(connection, chunks.alone, now=now, rescan_seconds=rescan_seconds),
            ranked.space,
            principal,
            depth=DEEP,
        )
        gathered = gather(connection, scope, request.filters, ranked.ranking, DEEP)
    gathered, order, _ = search.reorder(request, search.reranking(request), ranked, gathered, None, scope.confined)
    answer = compose(request, encoded, scope, gathered, 0, order=order)
    ranks = [place for place, hit in enumerate(ranked.ranking.hits, start=1) if hit.key in chunks.citations]
    shown = len(answer.results)
    showing = _showing(gathered.found, document_id, chunks.citations, (shown, request.limit, answer.dropped))
    # Only the first passage is ever cut; others are left for the next page.
    is_cut = showing.place == 1 and any(warning.code == "text_cut" for warning in answer.warnings)
    return Traced(
        visible=True,
        fits=fits,
        ranks=Ranks(
            standings=tuple(_standings(request, deep, alone, chunks.citations)),
            fused_rank=ranks[0] if ranks else None,
            ranked=len(ranked.ranking.hits),
            cut_off=cut_off(deep, ranked.ranking, ranked.space, request.mode),
            showing=dataclasses.replace(showing, text_cut=is_cut),
            problem=encoded.problem if request.mode != "keyword" else None,
        ),
    )


def _each(filters: Filters) -> dict[str, Filters]:
    """Each filter that is set, alone."""
    return {
        field.name: dataclasses.replace(EVERYTHING, **{field.name: getattr(filters, field.name)})
        for field in fields(Filters)
        if getattr(filters, field.name) != getattr(EVERYTHING, field.name)
    }


def _fits(connection: Connection[Any], document_id: uuid.UUID, filters: Filters) -> bool:
    values = {"document": document_id, "namespace": filters.namespace or None, **filters.parameters}
    return connection.execute(_FITS + filters.on_documents, values).fetchone() is not None


def _chunks(connection: Connection[Any], document_id: uuid.UUID) -> _Chunks:
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_CHUNKS, (document_id,)).fetchall()
    citations: dict[ChunkKey, str] = {}
    for row in rows:
        span = Span(**{field.name: row[field.name] for field in fields(Span)})
        citations.setdefault((row["audience_id"], row["chunk_id"]), cite(row["path"], span, row["section"]))
    if not rows:
        return _Chunks(citations={}, alone=EVERYTHING)
    path = "".join(f"[{character}]" if character in "*?[" else character for character in rows[0]["path"])
    alone = Filters(namespace=rows[0]["namespace"], source=rows[0]["source"], path=path)
    return _Chunks(citations=citations, alone=alone)


def _standings(request: SearchRequest, deep: Legs, alone: Legs, citations: Mapping[ChunkKey, str]) -> list[Standing]:
    """One for the keyword leg, and one for each vector of the query."""
    found = []
    if request.mode != "semantic":
        hits = [(hit.key, hit.score) for hit in deep.keyword]
        found.append(_standing("keyword", hits, [(hit.key, hit.score) for hit in alone.keyword], citations))
    if request.mode != "keyword":
        for place, (list_, own) in enumerate(zip(deep.semantic, alone.semantic, strict=True)):
            name = "semantic" if place == 0 else "semantic (hypothetical answer)"
            near = [(hit.key, hit.similarity) for hit in list_]
            found.append(_standing(name, near, [(hit.key, hit.similarity) for hit in own], citations))
    return found


def _standing(
    leg: str,
    hits: Sequence[tuple[ChunkKey, float]],
    own: Sequence[tuple[ChunkKey, float]],
    citations: Mapping[ChunkKey, str],
) -> Standing:
    ranked = next(((place, key, value) for place, (key, value) in enumerate(hits, start=1) if key in citations), None)
    key, value = next(((key, value) for key, value in own if key in citations), (None, None))
    if ranked is not None:
        _, key, value = ranked
    border = hits[min(len(hits), DEPTH) - 1][1] if hits else None
    return Standing(
        leg=leg,
        rank=ranked[0] if ranked is not None else None,
        hits=len(hits),
        depth=DEPTH,
        value=None if value is None else round(value, 4),
        border=None if border is None else round(border, 4),
        passage=None if key is None else citations[key],
    )


def _showing(
    found: Sequence[Found], document_id: uuid.UUID, citations: Mapping[ChunkKey, str], page: tuple[int, int, int]
) -> Showing:
    shown, limit, dropped = page
    for place, one in enumerate(found, start=1):
        role = _role(one, document_id, citations)
        if role is not None:
            best = one.best.place
            passage = cite(best.path, one.span, best.section, best.kind)
            return Showing(
                place=place, passages=len(found), role=role, passage=passage, shown=shown, limit=limit, dropped=dropped
            )
    return Showing(place=None, passages=len(found), role=None, passage=None, shown=shown, limit=limit, dropped=dropped)


def _role(found: Found, document_id: uuid.UUID, citations: Mapping[ChunkKey, str]) -> str | None:
    if found.best.place.document_id == document_id:
        return "best"
    for role, members in (("merged", found.merged), ("collapsed", found.collapsed)):
        if any(member.place.document_id == document_id for member in members):
            return role
    return "twin" if any(found.best.hit.key[1] == key[1] for key in citations) else None
