"""The front of a ranking with places and texts, collapsed: all that an answer needs of the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from query_server.retrieve.collapse import Candidate, Found, collapse
from query_server.retrieve.filters import Filters
from query_server.retrieve.places import Names, Place, find_names, find_places, find_texts
from query_server.retrieve.ranking import Hit, Ranking
from query_server.retrieve.scope import Scope

BLOCK = 30
"""Hits that are collapsed together. Blocks begin at fixed places of the ranking, so that pages of any size cut the same list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Passages in their order, as many as were needed at least unless there are fewer; `more` says that there are others."""

    found: tuple[Found, ...]
    names: Names
    more: bool


def gather(connection: Connection[Any], scope: Scope, filters: Filters, ranking: Ranking, needed: int) -> Gathered:
    """Each text in its first document, with what collapses into it; further documents with the same text come at the end.

    Places are looked up in this snapshot, under this principal: a hit that nothing in sight serves any more is not shown.
    """
    found: list[Found] = []
    copies: list[tuple[Hit, Place]] = []
    texts_seen: set[object] = set()
    start = 0
    while start < len(ranking.hits) and len(found) <= needed:
        block = ranking.hits[start : start + BLOCK]
        start += BLOCK
        places = find_places(connection, scope, filters, [hit.key for hit in block])
        texts = find_texts(connection, [hit.key for hit in block if hit.key in places])
        candidates = []
        for hit in block:
            standing = places.get(hit.key, [])
            if hit.key[1] not in texts_seen and standing:
                # The same chunk can be there for several audiences.
                texts_seen.add(hit.key[1])
                candidates.append(Candidate(hit=hit, place=standing[0], text=texts[hit.key]))
                standing = standing[1:]
            copies += [(hit, place) for place in standing]
        found += collapse(candidates)
    if start >= len(ranking.hits) and len(found) <= needed:
        found += _copies(connection, copies)
    return Gathered(
        found=tuple(found[:needed]),
        names=find_names(connection, [one.best.place for one in found[:needed]]),
        more=len(found) > needed,
    )


def _copies(connection: Connection[Any], copies: Sequence[tuple[Hit, Place]]) -> list[Found]:
    texts = find_texts(connection, [hit.key for hit, _ in copies]) if copies else {}
    return [
        Found(
            best=Candidate(hit=hit, place=place, text=texts[hit.key]), text=texts[hit.key], span=place.span, tokens=place.tokens
        )
        for hit, place in copies
    ]
