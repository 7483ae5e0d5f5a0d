"""Where an answer comes from: collected only when it is asked for, in the words of `docwell search --explain`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve import bm25
from query_server.retrieve.citation import cite
from query_server.retrieve.collapse import Candidate, Found
from query_server.retrieve.confidence import calibration_of
from query_server.retrieve.filters import Filters
from query_server.retrieve.keyword import COUNT_UP_TO, WHOLE
from query_server.retrieve.legs import DEPTH, Legs
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.names import named_chunks
from query_server.retrieve.ranking import MEANINGFUL_COVERAGE, Hit, Ranking
from query_server.retrieve.request import Mode, SearchRequest
from query_server.retrieve.rerank import BY_FUSION, Order
from query_server.retrieve.scope import Scope
from query_server.retrieve.semantic import Space
from shared.lexical import counting_vectors
from shared.query_terms import OTHER_FORMS, QueryTerms, fold_phrase, query_terms
from shared.tracing import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTerm:
    """A term of the query. `chunks` is how many of the visible chunks hold it, `idf` what that makes it worth."""

    term: str
    kind: str
    chunks: int
    idf: float
    identifier: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTerm:
    """A term of the query that a passage's best chunk holds, `count` times."""

    term: str
    idf: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A chunk that a passage stands for besides its best one."""

    chunk_id: uuid.UUID
    citation: str
    keyword_rank: int | None = None
    semantic_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageExplanation:
    """Where a passage's place comes from. Ranks are 1-based; all but `merged` and `collapsed` are of its best chunk.

    `exact_hits` counts the identifiers and quoted phrases that put it in front of others, and its document's name (`named`: the
    query names it); an identifier that stands in many chunks is held and does not count. `by_name` are words of the query that
    stand in the name of its document and count as held. `holds_all`: it holds every word of a
    brief query with a number or an identifier, which put it in front of those that hold less.
    """

    fused_rank: int | None
    fused_score: float
    exact_hits: int
    terms: tuple[HeldTerm, ...]
    identifiers: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    named: bool | None = None
    by_name: tuple[str, ...] = ()
    holds_all: bool | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    semantic_rank: int | None = None
    similarity: float | None = None
    distance: float | None = None
    rerank_score: float | None = None
    merged: tuple[Part, ...] = ()
    collapsed: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegExplanation:
    """One leg. `candidates` are the hits that it brought into the fusion, `depth` at most; `best` is its best score (BM25), or
    its best cosine."""

    candidates: int
    depth: int
    best: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """Whether what was found is about the question. Thresholds are those of the model, None when nobody measured it.

    An exact hit is enough. Else `evidence`, which is `best_similarity` and `coverage_weight` times `best_coverage`, has to reach
    `relevant_from`; where no vector was compared `best_coverage` has to reach `needed_coverage`. Of a question for exact things
    alone `absent` are those that nothing holds, and both have to be reached.
    """

    supported: bool
    best_coverage: float
    needed_coverage: float
    exact_hits: int
    best_similarity: float | None = None
    coverage_weight: float | None = None
    evidence: float | None = None
    relevant_from: float | None = None
    certain_from: float | None = None
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerExplanation:
    """How an answer came about. `milliseconds` tells each stage's, in their order, `explain` being what this took."""

    mode: str
    filters: dict[str, Any]
    namespaces: tuple[str, ...]
    documents: int
    chunks: int
    terms: tuple[AskedTerm, ...]
    phrases: tuple[str, ...]
    legs: dict[str, LegExplanation]
    cut_off: CutOff
    ranked: int
    cache: str
    index_version: int
    milliseconds: dict[str, float]
    model: str | None = None
    reranked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An answer's explanation and those of its passages, in their order."""

    answer: AnswerExplanation
    passages: tuple[PassageExplanation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the snapshot says for an explanation. `counts` are those of the query's terms, in their order, by chunk; `named` are
    the chunks of documents that the query names."""

    query: QueryTerms
    idf: Sequence[float]
    frequencies: Mapping[int, int]
    counts: Mapping[ChunkKey, Sequence[int]]
    namespaces: tuple[str, ...]
    named: Set[ChunkKey] = frozenset()


class Trace:
    """Watches one search: how long each stage took, and when it is `on` also what explains the answer."""

    def __init__(self, *, on: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self.on = on
        self.explained: Explained | None = None
        self.stages: list[Stage] = []
        self._clock = clock
        self._since = clock()

    def lap(self, stage: str) -> None:
        """A stage ended."""
        now = self._clock()
        self.stages.append(Stage(name=stage, began=self._since, ended=now))
        self._since = now

    @property
    def milliseconds(self) -> dict[str, float]:
        """What each stage took so far."""
        found: dict[str, float] = {}
        for stage in self.stages:
            found[stage.name] = round(found.get(stage.name, 0.0) + stage.seconds * 1000, 3)
        return found


class _Untraced(Trace):
    def lap(self, stage: str) -> None:
        """Nobody asks."""


UNTRACED = _Untraced(on=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that one search went by."""

    request: SearchRequest
    scope: Scope
    space: Space | None
    legs: Legs
    ranking: Ranking
    evidence: Evidence
    cache: str
    order: Order = field(default=BY_FUSION)


def explain(facts: Facts, shown: Sequence[Found], milliseconds: Mapping[str, float]) -> Explained:
    """The explanation of an answer that shows these passages."""
    places = {hit.key: rank for rank, hit in enumerate(facts.ranking.hits, start=1)}
    evidence = facts.evidence
    return Explained(
        answer=AnswerExplanation(
            mode=facts.request.mode,
            filters=_filters(facts.request.filters),
            namespaces=evidence.namespaces,
            documents=facts.scope.documents,
            chunks=facts.scope.searched,
            terms=_asked(evidence),
            phrases=evidence.query.phrases,
            legs=_legs(facts.legs, facts.request.mode),
            cut_off=cut_off(facts.legs, facts.ranking, facts.space, facts.request.mode),
            ranked=len(facts.ranking.hits),
            cache=facts.cache,
            index_version=facts.scope.index_version,
            milliseconds=dict(milliseconds),
            model=None if facts.space is None else facts.space.model,
            reranked=bool(facts.order.sign),
        ),
        passages=tuple(_passage(one, places.get(one.best.hit.key), facts) for one in shown),
    )


def cut_off(legs: Legs, ranking: Ranking, space: Space | None, mode: Mode) -> CutOff:
    """What decided whether there is an answer at all."""
    calibration = calibration_of(space.model) if space is not None else None
    alone = mode == "semantic"
    weight = None if calibration is None else 0.0 if alone else calibration.coverage
    nearest = max((hits[0].similarity for hits in legs.semantic if hits), default=None)
    coverage = max((hit.coverage for hit in legs.keyword), default=0.0)
    return CutOff(
        supported=bool(ranking.hits),
        best_coverage=round(coverage, 4),
        needed_coverage=MEANINGFUL_COVERAGE,
        exact_hits=max((hit.exact for hit in legs.keyword), default=0),
        absent=legs.absent.names if legs.absent.alone else (),
        best_similarity=None if nearest is None else round(nearest, 4),
        coverage_weight=weight,
        evidence=None if nearest is None or weight is None else round(nearest + weight * coverage, 4),
        relevant_from=None if calibration is None else calibration.relevant_alone if alone else calibration.relevant,
        certain_from=None if calibration is None else calibration.certain_alone if alone else calibration.certain,
    )


_COUNTS: LiteralString = """
    SELECT t.audience_id, t.chunk_id, ARRAY(
        SELECT -(t.frequencies <#> u.vector::sparsevec) FROM unnest(%s::text[]) WITH ORDINALITY AS u (vector, place)
        ORDER BY u.place)
    FROM unnest(%s::integer[], %s::uuid[]) AS w (audience_id, chunk_id) JOIN docwell.chunk_terms t USING (audience_id, chunk_id)
"""
_FREQUENCIES: LiteralString = "SELECT term, chunks FROM docwell.document_frequencies(%s, %s, %s)"
_NAMESPACES: LiteralString = """
    SELECT DISTINCT n.name FROM docwell.audience a JOIN docwell.namespace n USING (namespace_id)
    WHERE a.audience_id = ANY (%s) ORDER BY n.name
"""


def gather_evidence(connection: Connection[Any], request: SearchRequest, scope: Scope, keys: Sequence[ChunkKey]) -> Evidence:
    """What an explanation needs of the snapshot, for these chunks."""
    query = query_terms(request.query)
    numbers = query.numbers
    audiences = list(scope.audiences)
    frequencies = dict(connection.execute(_FREQUENCIES, (numbers, audiences, COUNT_UP_TO)).fetchall())
    vectors = [counting_vectors([number])[0] for number in numbers]
    rows = connection.execute(_COUNTS, (vectors, [key[0] for key in keys], [key[1] for key in keys])).fetchall()
    return Evidence(
        query=query,
        idf=[bm25.idf(min(frequencies.get(number, 0), scope.chunks), scope.chunks) for number in numbers],
        frequencies=frequencies,
        counts={(row[0], row[1]): [int(count) for count in row[2]] for row in rows},
        namespaces=tuple(row[0] for row in connection.execute(_NAMESPACES, (audiences,)).fetchall()),
        named={key for chunks in named_chunks(connection, scope, request.filters, query.text) for key in chunks},
    )


def _filters(filters: Filters) -> dict[str, Any]:
    names = ("namespace", "path", "source", "tags", "modified_after", "modified_before", "kinds")
    return {name: getattr(filters, name) for name in names if getattr(filters, name)}


def _asked(evidence: Evidence) -> tuple[AskedTerm, ...]:
    return tuple(
        AskedTerm(
            term=term.surface,
            kind=term.kind.value,
            chunks=evidence.frequencies.get(term.number, 0),
            idf=round(idf, 4),
            identifier=term in evidence.query.identifiers,
        )
        for term, idf in zip(evidence.query.terms, evidence.idf, strict=True)
        # Stems and beginnings of a word are how it is found, not what was asked for.
        if term.kind not in OTHER_FORMS
    )


def _legs(legs: Legs, mode: str) -> dict[str, LegExplanation]:
    found: dict[str, LegExplanation] = {}
    if mode != "semantic":
        best = max((hit.score for hit in legs.keyword), default=None)
        found["keyword"] = LegExplanation(
            candidates=len(legs.keyword), depth=DEPTH, best=None if best is None else round(best, 4)
        )
    if mode != "keyword":
        keys = {hit.key for hits in legs.semantic for hit in hits}
        nearest = max((hits[0].similarity for hits in legs.semantic if hits), default=None)
        found["semantic"] = LegExplanation(candidates=len(keys), depth=DEPTH, best=None if nearest is None else round(nearest, 4))
    return found


def _passage(found: Found, fused_rank: int | None, facts: Facts) -> PassageExplanation:
    hit, query = found.best.hit, facts.evidence.query
    counts = facts.evidence.counts.get(hit.key, [0] * len(query.terms))
    held = [
        (term, HeldTerm(term=term.surface, idf=round(idf, 4), count=count))
        for term, idf, count in zip(query.terms, facts.evidence.idf, counts, strict=True)
        if count
    ]
    words = {term.word for term, _ in held if term.kind not in OTHER_FORMS}
    in_name = next((one.by_name for one in facts.legs.keyword if one.key == hit.key), frozenset())
    return PassageExplanation(
        fused_rank=fused_rank,
        fused_score=round(hit.score, 6),
        exact_hits=hit.exact,
        # Another form of a word that is held as it was asked for says nothing of its own.
        terms=tuple(one for term, one in held if term.kind not in OTHER_FORMS or term.word not in words),
        identifiers=tuple(term.surface for term, _ in held if term in query.identifiers),
        phrases=tuple(phrase for phrase in query.phrases if phrase in _searched_text(found.best)),
        named=True if hit.key in facts.evidence.named else None,
        by_name=tuple(term.surface for term in query.terms if term.number in in_name and term.kind not in OTHER_FORMS),
        holds_all=hit.held >= WHOLE or None,
        keyword_rank=hit.ranks.get("keyword"),
        keyword_score=None if hit.keyword_score is None else round(hit.keyword_score, 4),
        semantic_rank=hit.ranks.get("semantic"),
        similarity=None if hit.similarity is None else round(hit.similarity, 4),
        distance=None if hit.similarity is None else round(1.0 - hit.similarity, 4),
        rerank_score=None if hit.key not in facts.order.scores else round(facts.order.scores[hit.key], 6),
        merged=tuple(_part(one) for one in found.merged if one is not found.best),
        collapsed=tuple(_part(one) for one in found.collapsed),
    )


def _searched_text(candidate: Candidate) -> str:
    parts = (candidate.place.symbol, candidate.place.section, candidate.text)
    return fold_phrase("\n".join(part for part in parts if part))


def _part(candidate: Candidate) -> Part:
    hit: Hit = candidate.hit
    return Part(
        chunk_id=candidate.place.chunk_id,
        citation=cite(candidate.place.path, candidate.place.span, candidate.place.section, candidate.place.kind),
        keyword_rank=hit.ranks.get("keyword"),
        semantic_rank=hit.ranks.get("semantic"),
    )
