"""Which chunks of a large index are worth scoring: those with the rare terms of a query, and those with several common ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from query_server.retrieve import bm25
from shared.lexical import TermKind
from shared.query_terms import OTHER_FORMS, QueryTerm

MOST_GROUPS = 8
"""Groups of terms that `keyword_matches` takes."""

_MOST_PAIRED = 8
"""Common terms that groups are made of, the rarest first: 28 pairs, 56 threes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """A chunk is a candidate when it holds any term of `wanted`, or all terms of one of `together`.

    `instead` is the rarest term, where it is too frequent to be wanted: for when too few chunks hold common ones together.
    """

    wanted: tuple[int, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    instead: int | None = None


def choose_candidates(
    terms: Sequence[QueryTerm],
    frequencies: Mapping[int, int],
    *,
    most: int,
    chunks: int,
    certain: Sequence[tuple[int, ...]] = (),
) -> Candidates:
    """The rarest terms while their frequencies add up to no more than `most`; then what the others hold together.

    Chunks that hold several common terms outrank most that hold one: groups of them are taken, the heaviest first, while the
    number of chunks to be expected of all groups stays under `most`, as if the terms came independently. A group that brought
    more would push the rare ones out of what is scored in the end. `certain` are groups that are taken in any case, those of
    quoted phrases.
    """
    there = sorted(
        (term for term in terms if frequencies.get(term.number)), key=lambda term: (frequencies[term.number], term.number)
    )
    main = [term for term in there if term.kind not in OTHER_FORMS]
    wanted: list[QueryTerm] = []
    total = 0
    # The exact form stands in no chunk without its stem, and the beginning widens what the stem finds: they come last.
    for term in (*main, *(term for term in there if term.kind in OTHER_FORMS)):
        covered = term.kind is TermKind.EXACT and any(other.word == term.word for other in wanted)
        if not covered and total + frequencies[term.number] <= most:
            wanted.append(term)
            total += frequencies[term.number]
    rest = [term for term in main if term not in wanted]
    together = list(dict.fromkeys(group for group in certain if group))
    if len(rest) > 1:
        together += _groups(rest, frequencies, most=most, chunks=chunks) or (
            [] if wanted else [tuple(term.number for term in rest)]
        )
    return Candidates(
        wanted=tuple(term.number for term in wanted),
        together=tuple(dict.fromkeys(together))[:MOST_GROUPS],
        instead=rest[0].number if rest and not wanted else None,
    )


def _groups(rest: Sequence[QueryTerm], frequencies: Mapping[int, int], *, most: int, chunks: int) -> list[tuple[int, ...]]:
    weights = {term.number: term.weight * bm25.idf(min(frequencies[term.number], chunks), chunks) for term in rest}
    paired = [term.number for term in rest[:_MOST_PAIRED]]
    whole = tuple(term.number for term in rest)
    sized = [
        group
        for size in (2, 3, 4)
        for group in sorted(combinations(paired, size), key=lambda group: (-sum(weights[number] for number in group), group))
    ]
    groups: list[tuple[int, ...]] = []
    total = 0.0
    for group in (*sized, whole):
        if len(groups) == MOST_GROUPS - 1 or any(set(taken) <= set(group) for taken in groups):
            continue
        expected = float(chunks)
        for number in group:
            expected *= frequencies[number] / max(chunks, 1)
        if total + expected <= most:
            groups.append(group)
            total += expected
    return groups
