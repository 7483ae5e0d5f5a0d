"""Measures of one ranking. Means over questions are taken elsewhere.

A ranking is its gains: for each item, best first, the grade of what it is right for, 0.0 when it is right for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

METRICS = ("hit@5", "hit@10", "mrr", "ndcg@10", "recall@10")


def measure(gains: Sequence[float], grades: Sequence[float]) -> dict[str, float]:
    """All of `METRICS` for a ranking; `grades` are those of everything that is right, found or not."""
    return {
        "hit@5": hit_at(gains, 5),
        "hit@10": hit_at(gains, 10),
        "mrr": reciprocal_rank(gains),
        "ndcg@10": ndcg_at(gains, grades, 10),
        "recall@10": recall_at(gains, len(grades), 10),
    }


def first_right(gains: Sequence[float]) -> int | None:
    """The 1-based rank of the first item that is right, None when there is none."""
    return next((rank for rank, gain in enumerate(gains, start=1) if gain > 0), None)


def hit_at(gains: Sequence[float], depth: int) -> float:
    """1.0 when something right is among the first `depth` items, else 0.0 (also called success@k)."""
    return float(any(gain > 0 for gain in gains[:depth]))


def reciprocal_rank(gains: Sequence[float]) -> float:
    """1 / rank of the first item that is right, 0.0 when there is none (Voorhees, TREC-8 question answering track, 1999)."""
    rank = first_right(gains)
    return 1.0 / rank if rank is not None else 0.0


def dcg(gains: Sequence[float]) -> float:
    """Discounted cumulative gain: the sum of gain / log2(rank + 1).

    Gains are linear and the discount begins at rank 1, as in trec_eval's `ndcg_cut` (after Järvelin and Kekäläinen, Cumulated
    gain-based evaluation of IR techniques, ACM TOIS 20(4), 2002, who leave ranks below the logarithm's base undiscounted).
    """
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def ndcg_at(gains: Sequence[float], grades: Sequence[float], depth: int) -> float:
    """`dcg` of the first `depth` items, as a share of that of the best possible ranking; 0.0 when nothing is right."""
    ideal = dcg(sorted(grades, reverse=True)[:depth])
    return dcg(gains[:depth]) / ideal if ideal > 0 else 0.0


def recall_at(gains: Sequence[float], relevant: int, depth: int) -> float:
    """The share of the `relevant` ones that are among the first `depth` items; 0.0 when nothing is right."""
    return sum(gain > 0 for gain in gains[:depth]) / relevant if relevant else 0.0


def mean(measured: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    """The mean of each metric over questions, None over none."""
    if not measured:
        return None
    return {name: sum(one[name] for one in measured) / len(measured) for name in METRICS}
