"""The legs' hits as one ranking: ids and numbers only, so that it can be remembered and is checked anew when it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from query_server.retrieve.confidence import Calibration
from query_server.retrieve.fusion import RankedList, fuse
from query_server.retrieve.keyword import ChunkKey
from query_server.retrieve.legs import Legs
from query_server.retrieve.request import Mode

MEANINGFUL_COVERAGE = 0.2
"""A hybrid answer rests on keyword hits alone only when one of them holds this share of what was asked for, by weight: the
word `world` alone is no hit for `who won the 1998 world cup`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk in the ranking. `ranks` are 1-based, by leg; `exact` counts the identifiers and quoted phrases of the query that
    it holds; `certain` means that its cosine is one that only right passages have."""

    key: ChunkKey
    score: float
    ranks: Mapping[str, int]
    exact: int = 0
    keyword_score: float | None = None
    similarity: float | None = None
    certain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All hits, best first; empty when nothing found is about the question."""

    hits: tuple[Hit, ...] = ()


def rank(legs: Legs, mode: Mode, calibration: Calibration | None) -> Ranking:
    """The legs fused. Of a model without `calibration` the nearest passage is taken for one about the question."""
    if not _supported(legs, mode, calibration):
        return Ranking()
    lists = [RankedList(leg="keyword", keys=[hit.key for hit in legs.keyword])]
    lists += [RankedList(leg="semantic", keys=[hit.key for hit in hits]) for hits in legs.semantic]
    scores = {hit.key: hit.score for hit in legs.keyword}
    similarities: dict[ChunkKey, float] = {}
    for hits in legs.semantic:
        for hit in hits:
            similarities[hit.key] = max(hit.similarity, similarities.get(hit.key, -1.0))
    certain = calibration.certain if calibration is not None else 2.0
    ranked = []
    for one in fuse(lists, lifted={hit.key: hit.exact for hit in legs.keyword if hit.exact}):
        similarity = similarities.get(one.key) if "semantic" in one.ranks else None
        ranked.append(
            Hit(
                key=one.key,
                score=one.score,
                ranks=one.ranks,
                exact=one.lifted,
                keyword_score=scores.get(one.key) if "keyword" in one.ranks else None,
                similarity=similarity,
                certain=similarity is not None and similarity >= certain,
            )
        )
    return Ranking(hits=tuple(ranked))


def _supported(legs: Legs, mode: Mode, calibration: Calibration | None) -> bool:
    """Whether anything found is about the question."""
    similarities = [hit.similarity for hits in legs.semantic for hit in hits[:1]]
    if similarities and (calibration is None or max(similarities) >= calibration.relevant):
        return True
    if mode == "keyword":
        return bool(legs.keyword)
    return any(hit.exact or hit.coverage >= MEANINGFUL_COVERAGE for hit in legs.keyword)
