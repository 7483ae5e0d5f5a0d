"""A search, from the query to cited passages. This file reads as the story; each step has a module of its own."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from query_server.access import Principal
from query_server.answers import Explanation, Leg, Notice, Passage, SearchAnswer
from query_server.cursor import Cursor, CursorExpired, decode_cursor, question_hash
from query_server.retrieve.budget import cost, cut_text, take
from query_server.retrieve.citation import cite
from query_server.retrieve.confidence import Calibration, calibration_of
from query_server.retrieve.encode import Encoded
from query_server.retrieve.filters import EVERYTHING, Filters
from query_server.retrieve.fusion import Fused, RankedList, fuse
from query_server.retrieve.keyword import ChunkKey, FrequencyCache, KeywordHit, keyword_leg
from query_server.retrieve.places import Names, Place, find_names, find_places, find_texts
from query_server.retrieve.scope import Scope, measure
from query_server.retrieve.semantic import SemanticHit, Space, active_space, semantic_leg
from shared.errors import ConfigurationError
from shared.lexical import query_terms

LEGS: tuple[Leg, ...] = ("keyword", "semantic")

Mode = Literal["hybrid", "semantic", "keyword"]

DEPTH = 100
"""Hits that each list brings into the fusion, and so how far paging reaches."""

MEANINGFUL_COVERAGE = 0.2
"""A hybrid answer rests on keyword hits alone only when one of them holds this share of what was asked for, by weight: the
word `world` alone is no hit for `who won the 1998 world cup`."""

NO_MATCH = (
    "Nothing in the indexed documents answers this. Tell the user that the documents do not cover it; do not answer from memory."
)
EMPTY = "No searchable document is in this scope. Tell the user that nothing is indexed here; do not answer from memory."


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A search as it was asked for. `hypothetical_answer` is text in the words of a document that would answer (HyDE)."""

    query: str
    filters: Filters = EVERYTHING
    limit: int = 5
    mode: Mode = "hybrid"
    hypothetical_answer: str = ""
    max_tokens: int = 4000
    cursor: str = ""
    explain: bool = False

    @property
    def question(self) -> str:
        """What a cursor is bound to: all that decides the ranking."""
        return question_hash(self.query, self.filters, self.mode, self.hypothetical_answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Legs:
    """What the legs found."""

    keyword: Sequence[KeywordHit] = ()
    semantic: Sequence[Sequence[SemanticHit]] = ()
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A hit in one document, ready to be shown."""

    fused: Fused[ChunkKey]
    place: Place


def search(
    connection: Connection[Any],
    request: SearchRequest,
    encoded: Encoded,
    *,
    principal: Principal,
    cache: FrequencyCache,
    now: datetime,
    rescan_seconds: float,
) -> SearchAnswer:
    """Answer from the connection's snapshot. `encoded` holds the query's vectors, made before the snapshot was opened.

    Raises:
        ConfigurationError: `embedding_mismatch`, the index was made with another model.
        CursorExpired: the index changed since the cursor was made.
    """
    scope = measure(connection, request.filters, now=now, rescan_seconds=rescan_seconds)
    cursor = decode_cursor(request.cursor, request.question)
    if cursor is not None and cursor.index_version != scope.index_version:
        raise CursorExpired
    legs = _run_legs(connection, request, encoded, scope, principal, cache)
    offset = cursor.offset if cursor is not None else 0
    ranking, more = _rank(connection, scope, request, legs, offset + request.limit)
    return _page(connection, request, encoded, scope, legs, ranking, offset, more=more)


def _run_legs(
    connection: Connection[Any],
    request: SearchRequest,
    encoded: Encoded,
    scope: Scope,
    principal: Principal,
    cache: FrequencyCache,
) -> Legs:
    space = active_space(connection) if request.mode != "keyword" else None
    _refuse_mismatch(space, encoded)
    keyword: Sequence[KeywordHit] = ()
    if request.mode != "semantic":
        keyword = keyword_leg(connection, scope, request.filters, query_terms(request.query), limit=DEPTH, cache=cache)
    semantic: list[Sequence[SemanticHit]] = []
    if space is not None:
        semantic.extend(_near(connection, request, scope, space, vector, principal) for vector in encoded.vectors)
    return Legs(keyword=keyword, semantic=semantic, calibration=calibration_of(space.model) if space is not None else None)


def _near(
    connection: Connection[Any],
    request: SearchRequest,
    scope: Scope,
    space: Space,
    vector: npt.NDArray[np.float32],
    principal: Principal,
) -> list[SemanticHit]:
    return semantic_leg(connection, scope, request.filters, space, vector, limit=DEPTH, sees_everything=principal.sees_everything)


def _refuse_mismatch(space: Space | None, encoded: Encoded) -> None:
    if space is not None and encoded.fingerprint is not None and encoded.fingerprint != space.fingerprint:
        raise ConfigurationError(
            f"The index holds vectors of {space.model} ({space.provider}, {space.dimension} dimensions), but this process is set"
            f" to {encoded.model}: their distances mean nothing. Set DOCWELL_EMBEDDING_PROVIDER and DOCWELL_EMBEDDING_MODEL as"
            " they were, or begin with an empty database.",
            code="embedding_mismatch",
        )


def _rank(
    connection: Connection[Any], scope: Scope, request: SearchRequest, legs: Legs, needed: int
) -> tuple[list[Ranked], bool]:
    """The legs fused, each hit in its first document; further documents with the same text come at the end.

    Returns `needed` of them at least, unless there are fewer, and whether there are more than were returned.
    """
    lists = [RankedList(leg="keyword", keys=[hit.key for hit in legs.keyword])]
    lists += [RankedList(leg="semantic", keys=[hit.key for hit in hits]) for hits in legs.semantic]
    fused = fuse(lists, lifted={hit.key: hit.exact for hit in legs.keyword if hit.exact})
    if not _supported(legs, request.mode):
        return [], False
    if needed < len(fused):
        places = find_places(connection, scope, request.filters, [hit.key for hit in fused[:needed]])
        first = [Ranked(fused=hit, place=places[hit.key][0]) for hit in fused[:needed] if hit.key in places]
        if len(first) >= needed:
            return first, True
    places = find_places(connection, scope, request.filters, [hit.key for hit in fused])
    first = [Ranked(fused=hit, place=places[hit.key][0]) for hit in fused if hit.key in places]
    copies = [Ranked(fused=hit, place=place) for hit in fused for place in places.get(hit.key, ())[1:]]
    return first + copies, False


def _supported(legs: Legs, mode: Mode) -> bool:
    """Whether anything found is about the question. Of a model that nobody measured the nearest passage is taken for it."""
    similarities = [hit.similarity for hits in legs.semantic for hit in hits[:1]]
    if similarities and (legs.calibration is None or max(similarities) >= legs.calibration.relevant):
        return True
    if mode == "keyword":
        return bool(legs.keyword)
    return any(hit.exact or hit.coverage >= MEANINGFUL_COVERAGE for hit in legs.keyword)


def _page(
    connection: Connection[Any],
    request: SearchRequest,
    encoded: Encoded,
    scope: Scope,
    legs: Legs,
    ranking: Sequence[Ranked],
    offset: int,
    *,
    more: bool,
) -> SearchAnswer:
    wanted = ranking[offset : offset + request.limit]
    places = [hit.place for hit in wanted]
    costs = [cost(place.tokens, place.path, place.path, place.section, place.title) for place in places]
    taken = take(costs, [place.tokens for place in places], request.max_tokens)
    shown = wanted[: taken.count]
    texts = find_texts(connection, [hit.place.key for hit in shown])
    if taken.cut is not None:
        first = shown[0].place
        texts[first.key] = cut_text(texts[first.key], first.tokens, taken.cut)
    reached = offset + taken.count
    names = find_names(connection, [hit.place for hit in shown])
    return SearchAnswer(
        search_id=uuid.uuid4().hex,
        query=request.query,
        outcome="ok" if shown else "index_empty" if scope.empty else "no_match",
        message=None if shown else EMPTY if scope.empty else NO_MATCH if offset == 0 else "There are no further passages.",
        results=tuple(_passage(hit, texts[hit.place.key], names, legs, explain=request.explain) for hit in shown),
        tokens_used=taken.tokens,
        dropped=taken.dropped,
        next_cursor=(
            Cursor(question=request.question, index_version=scope.index_version, offset=reached).encode()
            if more or reached < len(ranking)
            else None
        ),
        index_version=scope.index_version,
        pending_in_scope=scope.pending,
        newest_sweep=scope.newest_sweep,
        stale=scope.stale,
        warming=encoded.warming,
        warnings=tuple(_warnings(request, encoded, scope, cut=taken.cut is not None)),
    )


def _passage(hit: Ranked, text: str, names: Names, legs: Legs, *, explain: bool) -> Passage:
    place = hit.place
    keyword = next((found for found in legs.keyword if found.key == place.key), None)
    similarity = max((found.similarity for hits in legs.semantic for found in hits if found.key == place.key), default=None)
    certain = similarity is not None and legs.calibration is not None and similarity >= legs.calibration.certain
    explanation = None
    if explain:
        explanation = Explanation(
            keyword_rank=hit.fused.ranks.get("keyword"),
            keyword_score=None if keyword is None else round(keyword.score, 4),
            semantic_rank=hit.fused.ranks.get("semantic"),
            similarity=None if similarity is None else round(similarity, 4),
            exact_hits=hit.fused.lifted,
        )
    return Passage(
        chunk_id=place.chunk_id,
        document_id=place.document_id,
        path=place.path,
        source=names.sources.get(place.source_id, ""),
        namespace=names.namespaces.get(place.namespace_id, ""),
        url=place.url,
        title=place.title,
        text=text,
        citation=cite(place.path, place.span, place.section),
        section=place.section,
        **dataclasses.asdict(place.span),
        language=place.language,
        symbol=place.symbol,
        kind=cast('Literal["text", "table", "code", "caption"]', place.kind),
        score=round(hit.fused.score, 6),
        score_kind="rrf",
        matched_by=tuple(leg for leg in LEGS if leg in hit.fused.ranks),
        high_confidence=certain or hit.fused.lifted > 0,
        version=place.version,
        last_indexed=place.last_indexed,
        source_modified=place.source_modified,
        tags=tuple(place.tags) or None,
        explanation=explanation,
    )


def _warnings(request: SearchRequest, encoded: Encoded, scope: Scope, *, cut: bool) -> list[Notice]:
    found = []
    if request.mode != "keyword" and encoded.problem is not None:
        found.append(Notice(code="keyword_only", message=f"Only the keyword leg answered: {encoded.problem}"))
    if cut:
        found.append(
            Notice(code="text_cut", message="The passage is longer than max_tokens and was cut. Ask with a larger max_tokens.")
        )
    if scope.pending:
        found.append(
            Notice(code="pending", message=f"{scope.pending} documents in this scope wait to be indexed and may be missing here.")
        )
    if scope.unread:
        found.append(
            Notice(
                code="unread",
                message=f"Of {scope.unread} documents in this scope no text, or not all of it, could be read; index_status and"
                " list_documents say which.",
            )
        )
    if scope.stale:
        since = f"since {scope.newest_sweep:%Y-%m-%d %H:%M} UTC" if scope.newest_sweep is not None else "yet"
        found.append(
            Notice(
                code="stale", message=f"The folders in this scope were not completely looked through {since}: this may be old."
            )
        )
    return found
