"""Where one long run of text is cut: borders that come from the content around them, never from a count from the top.

A boundary (the place before a unit) has a rank (what ends there: a section, a paragraph, a sentence; lower is stronger) and a
key (a hash of what follows). It becomes a border when no stronger boundary lies within its rank's window on either side. So a
border depends on at most a window of text to its left and right, and an edit cannot move a border that is further away; the
window is also the smallest distance between two borders. See docs/decisions/0004-chunk-borders.md for the argument
and for the figures. The rule is that of "local maximum" chunking: Bjørner, Blass, Gurevich, Content-dependent chunking for
differential compression, the local maximum approach, J. Comput. Syst. Sci. 76 (2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

CUT_ONLY: Final = 99
"""Rank, from which on a boundary is used only to cut a piece that would be too large otherwise; the strongest is cut first."""
GLUE: Final = 200
"""Rank of a boundary that is cut only when nothing else is left: after a heading, inside a word."""

_KEY_CHARS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a run is cut; all sizes in tokens.

    `limit` is the largest piece. Boundaries with a rank below `firm` are borders wherever their window allows it; the
    others only in a stretch that is larger than `limit`. `windows` gives the window of a rank, `window` that of all others.
    """

    limit: int
    window: int
    firm: int = 0
    windows: dict[int, int] = field(default_factory=dict)


def boundary_key(text: str) -> int:
    """A number that depends only on the first characters after the boundary, the same on every machine."""
    head = text.lstrip()[:_KEY_CHARS].encode("utf-8", "replace")
    return int.from_bytes(blake2b(head, digest_size=8).digest(), "big")


def find_borders(sizes: Sequence[int], ranks: Sequence[int], keys: Sequence[int], rules: Rules) -> list[int]:
    """The indexes of the units that begin a new piece, ascending, without 0.

    `sizes[i]`, `ranks[i]` and `keys[i]` belong to unit i and to the boundary before it; rank and key of unit 0 are not used.
    Every piece holds at most `rules.limit` tokens, unless a single unit is larger.
    """
    positions = [0, *accumulate(sizes)]
    firm = _local_minima(0, len(sizes), positions, ranks, keys, rules, below=rules.firm)
    borders: list[int] = []
    for start, end in pairwise([0, *firm, len(sizes)]):
        if start:
            borders.append(start)
        if positions[end] - positions[start] <= rules.limit:
            continue
        soft = _local_minima(start, end, positions, ranks, keys, rules, below=CUT_ONLY)
        for left, right in pairwise([start, *soft, end]):
            if left != start:
                borders.append(left)
            borders.extend(_cuts(left, right, positions, ranks, keys, rules))
    return borders


def _local_minima(
    start: int,
    end: int,
    positions: Sequence[int],
    ranks: Sequence[int],
    keys: Sequence[int],
    rules: Rules,
    *,
    below: int,
) -> list[int]:
    """Boundaries strictly between `start` and `end` with no stronger one within their window; the ends are strongest of all."""
    candidates = [i for i in range(start + 1, end) if ranks[i] < below]
    reach = _reach([start, *candidates, end], positions, ranks, keys)
    return [i for i, far in zip(candidates, reach, strict=True) if far >= rules.windows.get(ranks[i], rules.window)]


def _cuts(start: int, end: int, positions: Sequence[int], ranks: Sequence[int], keys: Sequence[int], rules: Rules) -> list[int]:
    """Cuts a stretch in which no border was found until each piece fits, at its strongest boundaries."""
    cuts: list[int] = []
    open_stretches = [(start, end)]
    while open_stretches:
        left, right = open_stretches.pop()
        size = positions[right] - positions[left]
        if size <= rules.limit or right - left < 2:
            continue
        cut = _best_cut(left, right, positions, ranks, keys, rules)
        cuts.append(cut)
        open_stretches += [(left, cut), (cut, right)]
    return sorted(cuts)


def _best_cut(left: int, right: int, positions: Sequence[int], ranks: Sequence[int], keys: Sequence[int], rules: Rules) -> int:
    """The boundary of the best rank that is furthest from any stronger one; among equals a second hash decides.

    Both orders are local: a cut stays where it is when the stretch becomes longer or shorter elsewhere. (A cut near the
    middle, or one that makes two pieces of the right size, moves with every such change: four times as many chunks change
    too much.)
    """
    inner = range(left + 1, right)
    reach = _reach(range(left, right + 1), positions, ranks, keys)
    low, high = positions[left], positions[right]
    middle = (low + high) / 2

    def roomy(i: int) -> bool:
        margin = rules.windows.get(ranks[i], rules.window) / 2
        return positions[i] - low >= margin and high - positions[i] >= margin

    candidates = [i for i in inner if roomy(i)] or inner
    # Where all is alike (the same line a thousand times) the middle keeps the number of rounds small.
    return min(candidates, key=lambda i: (ranks[i], -reach[i - left - 1], _second_key(keys[i]), abs(positions[i] - middle)))


def _second_key(key: int) -> int:
    # An order that has nothing to do with the first: multiplication by 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4).
    return (key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) ^ (key >> 29)


def _reach(places: Sequence[int], positions: Sequence[int], ranks: Sequence[int], keys: Sequence[int]) -> list[int]:
    """For each inner one of `places`, the tokens to the nearest stronger one; the first and the last are strongest of all."""
    first, *inner, last = places
    reach = dict.fromkeys(inner, 0)
    stack: list[int] = []
    for i in inner:
        # Of equals the left one is the stronger, so that the order is total.
        while stack and (ranks[i], keys[i]) < (ranks[stack[-1]], keys[stack[-1]]):
            weaker = stack.pop()
            reach[weaker] = min(reach[weaker], positions[i] - positions[weaker])
        reach[i] = positions[i] - positions[stack[-1] if stack else first]
        stack.append(i)
    for i in stack:
        reach[i] = min(reach[i], positions[last] - positions[i])
    return list(reach.values())
