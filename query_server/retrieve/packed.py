"""A ranking as one block of bytes: of two hundred hits it takes 12 KiB instead of some six hundred Python objects, each of which
the collector of cycles would look at again and again."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from query_server.retrieve.ranking import Hit, Ranking

_LEGS = ("keyword", "semantic")
_NO_RANK = 0
_ROW = np.dtype(
    [
        ("audience", "<i4"),
        ("chunk", "V16"),
        ("score", "<f8"),
        ("ranks", "<i4", (len(_LEGS),)),
        ("exact", "<i4"),
        ("held", "<i4"),
        ("keyword_score", "<f8"),
        ("similarity", "<f8"),
        ("certain", "?"),
    ]
)
"""A number that is not there is NaN, a rank that is not there 0."""


@dataclass(frozen=True, slots=True)
class PackedRanking:
    """The hits as an array of `_ROW`, and what else is said of the ranking."""

    hits: npt.NDArray[np.void]
    rest: Ranking


def pack(ranking: Ranking) -> PackedRanking:
    """To be kept."""
    rows = [
        (
            hit.key[0],
            hit.key[1].bytes,
            hit.score,
            tuple(hit.ranks.get(leg, _NO_RANK) for leg in _LEGS),
            hit.exact,
            hit.held,
            np.nan if hit.keyword_score is None else hit.keyword_score,
            np.nan if hit.similarity is None else hit.similarity,
            hit.certain,
        )
        for hit in ranking.hits
    ]
    return PackedRanking(np.array(rows, dtype=_ROW), replace(ranking, hits=()))


def unpack(packed: PackedRanking) -> Ranking:
    """As it was."""
    hits = tuple(
        Hit(
            key=(audience, uuid.UUID(bytes=chunk)),
            score=score,
            ranks={leg: int(rank) for leg, rank in zip(_LEGS, ranks, strict=True) if rank != _NO_RANK},
            exact=exact,
            held=held,
            keyword_score=_number(keyword_score),
            similarity=_number(similarity),
            certain=certain,
        )
        for audience, chunk, score, ranks, exact, held, keyword_score, similarity, certain in packed.hits.tolist()
    )
    return replace(packed.rest, hits=hits)


def _number(value: float) -> float | None:
    return value if value == value else None  # NaN is the one number that is not itself
