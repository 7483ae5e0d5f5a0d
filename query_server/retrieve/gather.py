"""The front of a ranking with places and texts, collapsed: all that an answer needs of the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from query_server.retrieve.collapse import Candidate, Found, collapse
from query_server.retrieve.filters import Filters
from query_server.retrieve.places import MOST_COPIES, Names, find_places
from query_server.retrieve.ranking import Ranking
from query_server.retrieve.scope import Scope

BLOCK = 20
"""Hits that are collapsed together. Blocks begin at fixed places of the ranking, so that pages of any size cut the same list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Passages in their order, as many as were needed at least unless there are fewer; `more` says that there are others.

    `limited`: behind the last of them there may be passages that were not ranked, or further copies of a text.
    """

    found: tuple[Found, ...]
    names: Names
    more: bool
    limited: bool = False


def gather(connection: Connection[Any], scope: Scope, filters: Filters, ranking: Ranking, needed: int) -> Gathered:
    """Each text in its first document, with what collapses into it; further documents with the same text come at the end.

    Places are looked up in this snapshot, under this principal: a hit that nothing in sight serves any more is not shown.
    """
    found: list[Found] = []
    copies: list[Candidate] = []
    texts_seen: set[object] = set()
    start = 0
    limited = ranking.limited
    while start < len(ranking.hits) and len(found) <= needed:
        block = ranking.hits[start : start + BLOCK]
        start += BLOCK
        places = find_places(connection, scope, filters, [hit.key for hit in block])
        candidates = []
        for hit in block:
            standing = places.get(hit.key)
            if standing is None:
                continue
            limited |= len(standing.places) == MOST_COPIES
            held = [Candidate(hit=hit, place=place, text=standing.text) for place in standing.places]
            # The same chunk can be there for several audiences.
            if hit.key[1] not in texts_seen:
                texts_seen.add(hit.key[1])
                candidates.append(held.pop(0))
            copies += held
        found += collapse(candidates)
    if start >= len(ranking.hits) and len(found) <= needed:
        found += [Found(best=copy, text=copy.text, span=copy.place.span, tokens=copy.place.tokens) for copy in copies]
    return Gathered(
        found=tuple(found[:needed]),
        names=Names(sources=scope.sources, namespaces=scope.namespaces),
        more=len(found) > needed,
        limited=limited,
    )
