"""Whether the words of a brief query stand together: `61` and `EUR` in one amount, or at both ends of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection

from query_server.retrieve.keyword import TOGETHER, WHOLE, KeywordHit, in_order
from query_server.retrieve.phrases import read_texts
from shared.lexical import term_places
from shared.query_terms import QueryTerms

MOST_READ = 20
"""Passages with all words that are looked into, the best ones."""

_REACH = 8
"""Characters for each word: so close, with a word or two between them, they speak of one thing."""


def by_closeness(connection: Connection[Any], query: QueryTerms, hits: Sequence[KeywordHit]) -> Sequence[KeywordHit]:
    """The hits, those first in which all words of a brief query stand together; unchanged where there is nothing to choose."""
    whole = [hit.key for hit in hits if hit.held == WHOLE][:MOST_READ]
    if len(whole) < 2:
        return hits
    texts = read_texts(connection, whole)
    close = {key for key in whole if stand_together(texts.get(key, ""), query.needs)}
    return in_order(replace(hit, held=TOGETHER) if hit.key in close else hit for hit in hits)


def stand_together(text: str, needs: Sequence[frozenset[int]]) -> bool:
    """Whether a form of each word begins within a short stretch of one line."""
    reach = _REACH * len(needs)
    last: dict[int, int] = {}
    for start, term in term_places(text, frozenset().union(*needs)):
        last |= {place: start for place, forms in enumerate(needs) if term in forms}
        first = min(last.values())
        if len(last) == len(needs) and start - first <= reach and "\n" not in text[first:start]:
            return True
    return False
