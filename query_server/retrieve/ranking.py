"""The legs' hits as one ranking: ids and numbers only, so that it can be remembered and is checked anew when it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from query_server.retrieve.confidence import Calibration
from query_server.retrieve.exact import NONE_ABSENT, Absent
from query_server.retrieve.fusion import RankedList, fuse
from query_server.retrieve.legs import Legs
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.request import Mode

MEANINGFUL_COVERAGE = 0.2
"""Where cosines say nothing (a model that is away, a question for an exact thing that stands nowhere), a hybrid answer rests on
keyword hits only when one of them holds this share of what was asked for, by weight: the word `world` alone is no hit for `who
won the 1998 world cup`, nor `42` for `frobnicate_xyz_42`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk in the ranking. `ranks` are 1-based, by leg; `exact` counts the identifiers and quoted phrases of the query that
    it holds, `held` says how much it holds of a brief one.

    `certain` means that what speaks for it speaks, by measurement, for right passages only. Of several exact hits only the first
    is: an identifier stands in many passages that say nothing of it.
    """

    key: ChunkKey
    score: float
    ranks: Mapping[str, int]
    exact: int = 0
    held: int = 0
    keyword_score: float | None = None
    similarity: float | None = None
    certain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All hits, best first; empty when nothing found is about the question. `limited`: a leg had more than it may bring; `absent`
    and `wordless` are those of the legs."""

    hits: tuple[Hit, ...] = ()
    limited: bool = False
    absent: Absent = NONE_ABSENT
    wordless: bool = False


def rank(legs: Legs, mode: Mode, calibration: Calibration | None) -> Ranking:
    """The legs fused. Of a model without `calibration` the nearest passage is taken for one about the question."""
    if not _supported(legs, mode, calibration):
        return Ranking(absent=legs.absent, wordless=legs.wordless)
    keyword, semantic, keys = _numbered(legs)
    lists = [RankedList(leg="keyword", keys=keyword), *(RankedList(leg="semantic", keys=numbers) for numbers in semantic)]
    of_keyword = dict(zip(keyword, legs.keyword, strict=True))
    similarities: dict[int, float] = {}
    for numbers, hits in zip(semantic, legs.semantic, strict=True):
        for number, near in zip(numbers, hits, strict=True):
            similarities[number] = max(near.similarity, similarities.get(number, -1.0))
    exact = {number: hit.exact for number, hit in of_keyword.items() if hit.exact}
    holding = {number: hit.held for number, hit in of_keyword.items() if hit.held}
    ranked = []
    for place, one in enumerate(fuse(lists, lifted=exact, held=holding)):
        held, similarity = of_keyword.get(one.key), similarities.get(one.key)
        coverage = held.coverage if held is not None else 0.0
        if mode == "hybrid" and (legs.absent.alone or legs.wordless) and coverage < MEANINGFUL_COVERAGE:
            # Whoever asks for one exact thing may mean what resembles it, but not what only speaks of the like.
            continue
        ranked.append(
            Hit(
                key=keys[one.key],
                score=one.score,
                ranks=one.ranks,
                exact=one.lifted,
                held=holding.get(one.key, 0),
                keyword_score=held.score if held is not None else None,
                similarity=similarity,
                certain=(place == 0 and one.lifted > 0)
                # What resembles an exact thing that was asked for is not that thing: `QueueFullError` is no `QueueError`.
                or (not legs.exactly and _certain(one.ranks, similarity, coverage, mode, calibration)),
            )
        )
    return Ranking(hits=tuple(ranked), limited=legs.limited, absent=legs.absent)


def _numbered(legs: Legs) -> tuple[list[int], list[list[int]], list[ChunkKey]]:
    """The hits of each list by number, and the key of each number: hashes of UUIDs are made in Python, so each is made once."""
    numbers: dict[ChunkKey, int] = {}
    keyword = [numbers.setdefault(hit.key, len(numbers)) for hit in legs.keyword]
    semantic = [[numbers.setdefault(hit.key, len(numbers)) for hit in hits] for hits in legs.semantic]
    return keyword, semantic, list(numbers)


def _certain(
    ranks: Mapping[str, int], similarity: float | None, coverage: float, mode: Mode, calibration: Calibration | None
) -> bool:
    if similarity is None or calibration is None:
        return False
    if mode == "semantic":
        return similarity >= calibration.certain_alone
    both_first = ranks.get("keyword") == 1 == ranks.get("semantic")
    return both_first and similarity + calibration.coverage * coverage >= calibration.certain


def _supported(legs: Legs, mode: Mode, calibration: Calibration | None) -> bool:
    """Whether anything found is about the question."""
    nearest = max((hit.similarity for hits in legs.semantic for hit in hits[:1]), default=None)
    if mode == "keyword":
        return bool(legs.keyword)
    if any(hit.exact for hit in legs.keyword):
        return True
    coverage = max((hit.coverage for hit in legs.keyword), default=0.0)
    if (nearest is None or legs.absent.alone) and coverage < MEANINGFUL_COVERAGE:
        return False
    if legs.wordless and mode == "hybrid":
        return False
    if nearest is None:
        return True
    if calibration is None:
        return True
    if mode == "semantic":
        return nearest >= calibration.relevant_alone
    return nearest + calibration.coverage * coverage >= calibration.relevant
