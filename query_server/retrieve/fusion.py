"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009), then sense: an exact hit is not buried by arithmetic."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = 60
"""The constant of the paper; it damps the lead of the very first ranks."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList(Generic[Key]):
    """One leg's hits, best first. Two lists of one leg (a query and its hypothetical answer) share its name."""

    leg: str
    keys: Sequence[Key]
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused(Generic[Key]):
    """A hit after fusion. `ranks` are 1-based, the best one for each leg."""

    key: Key
    score: float
    ranks: Mapping[str, int]
    lifted: int = 0


def fuse(lists: Sequence[RankedList[Key]], *, lifted: Mapping[Key, int] | None = None, k: int = K) -> list[Fused[Key]]:
    """All hits of all lists, best first.

    `lifted` says in how many exact things of the query (identifiers, quoted phrases) a hit is found: more of them come first,
    whatever their score. Ties go to the earlier list, then to the better rank in it, so the order is always the same.
    """
    lifted = lifted or {}
    sums: dict[Key, float] = {}
    ranks: dict[Key, dict[str, int]] = {}
    places: dict[Key, list[tuple[int, int]]] = {}
    for position, ranked in enumerate(lists):
        for rank, key in enumerate(ranked.keys, start=1):
            sums[key] = sums.get(key, 0.0) + ranked.weight / (k + rank)
            best = ranks.setdefault(key, {})
            best[ranked.leg] = min(rank, best.get(ranked.leg, rank))
            places.setdefault(key, []).append((position, rank))
    order = sorted(sums, key=lambda key: (-lifted.get(key, 0), -round(sums[key], 12), places[key]))
    return [Fused(key=key, score=sums[key], ranks=ranks[key], lifted=lifted.get(key, 0)) for key in order]
