"""The front of a ranking with places and texts, collapsed: all that an answer needs of the snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection

from query_server.retrieve.collapse import Candidate, Found, collapse
from query_server.retrieve.filters import Filters
from query_server.retrieve.places import MOST_COPIES, Names, Place, find_places, further_places, place_key
from query_server.retrieve.ranking import Ranking
from query_server.retrieve.scope import Scope

BLOCK = 20
"""Hits that are collapsed together. Blocks begin at fixed places of the ranking, so that pages of any size cut the same list."""

MOST_ALSO = 5
"""Other places of a text that are named with it."""


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
    standing_at: dict[uuid.UUID, list[Place]] = {}
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
            known = standing_at.setdefault(hit.key[1], [])
            known += standing.places
            if len(known) == len(standing.places):
                candidates.append(held.pop(0))
            copies += held
        found += collapse(candidates)
    if start >= len(ranking.hits) and len(found) <= needed:
        found += [Found(best=copy, text=copy.text, span=copy.place.span, tokens=copy.place.tokens) for copy in copies]
    shown = found[:needed]
    further = further_places(connection, [one.best.place for one in shown], most=MOST_ALSO)
    return Gathered(
        found=tuple(_with_copies(one, further.get(place_key(one.best.place), ()), standing_at) for one in shown),
        names=Names(sources=scope.sources, namespaces=scope.namespaces),
        more=len(found) > needed,
        limited=limited,
    )


def _with_copies(found: Found, here: Sequence[Place], standing_at: Mapping[uuid.UUID, Sequence[Place]]) -> Found:
    """First the other places in its own document, then those in others."""
    place = found.best.place
    elsewhere = [other for other in standing_at[place.chunk_id] if other.document_id != place.document_id]
    copies = (*here, *elsewhere)[:MOST_ALSO]
    return replace(found, copies=copies) if copies else found
