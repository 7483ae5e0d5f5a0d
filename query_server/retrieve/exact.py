"""What a query asks for exactly, and whether it is there: identifiers, numbers, quoted phrases, signs without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.keyword import FrequencyCache, KeywordHit
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.names import file_names
from query_server.retrieve.phrases import read_folded
from query_server.retrieve.scope import Scope
from shared.lexical import term_counts
from shared.query_terms import SHORTEST_FIGURE, QueryTerms, fold_phrase, query_terms

_WHOLE = 0.999
"""The coverage of a passage that holds every word of the query, and so each identifier whole, which is a word of its own."""

_MOST_SURE = 100
"""Exact hits from which on there may be others that the leg did not bring."""

_FREQUENCIES: LiteralString = "SELECT term FROM docwell.document_frequencies(%s, %s, 1) WHERE chunks > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Exact things of a query that no passage in sight holds, as they were written. `alone`: the query asks for nothing else.
    `spelled` are those that are there with other separators, each with the form in which it was found."""

    names: tuple[str, ...] = ()
    alone: bool = False
    spelled: tuple[tuple[str, str], ...] = ()


NONE_ABSENT = Absent()


def find_absent(
    connection: Connection[Any], scope: Scope, query: QueryTerms, hits: Sequence[KeywordHit], cache: FrequencyCache
) -> Absent:
    """What the query asks for exactly and the keyword leg, whose `hits` these are, did not find.

    Of a query with other words these are the identifiers and the longer numbers that stand in no chunk of the audiences in sight,
    and the phrases that no hit holds.
    """
    wanted = _wanted(query)
    if not wanted and not query.phrases:
        return NONE_ABSENT
    exact = any(hit.exact for hit in hits)
    if query.bare and not exact and (query.phrases or not any(hit.coverage >= _WHOLE for hit in hits)):
        return Absent(names=(*wanted, *query.phrase_names), alone=True)
    numbers = [number for readings in wanted.values() for number in readings]
    counted = cache.get((scope.audiences, scope.index_version), numbers)
    found = {number for number, chunks in counted.items() if chunks}
    unknown = [number for number in numbers if number not in counted]
    if unknown:
        found |= {row[0] for row in connection.execute(_FREQUENCIES, (unknown, list(scope.audiences))).fetchall()}
    found.update(*(hit.by_name for hit in hits))
    # A file that the query names need not be named in any text.
    files = set(file_names(query.text)) if exact else set()
    names = [name for name, readings in wanted.items() if found.isdisjoint(readings) and name not in files]
    return Absent(names=(*names, *_absent_phrases(connection, query, hits)))


def _absent_phrases(connection: Connection[Any], query: QueryTerms, hits: Sequence[KeywordHit]) -> Sequence[str]:
    """The phrases that no hit holds, as they were written. Exact hits come first: where others follow, all of them are here."""
    exact = [hit.key for hit in hits if hit.exact]
    if not query.phrases or not exact:
        return query.phrase_names
    if len(exact) == len(hits) >= _MOST_SURE:
        return ()
    texts = read_folded(connection, exact).values()
    named = zip(query.phrase_names, query.phrases, strict=True)
    return [name for name, phrase in named if not any(phrase in text for text in texts)]


def _wanted(query: QueryTerms) -> dict[str, set[int]]:
    """The identifiers and longer numbers as they were written, each with the terms of which one is enough."""
    wanted: dict[str, set[int]] = {}
    for term, name in zip(query.identifiers, query.identifier_names, strict=True):
        wanted.setdefault(name, set()).add(term.number)
    for name, readings in query.figures:
        if sum(map(str.isdigit, name)) >= SHORTEST_FIGURE:
            wanted.setdefault(name, set()).update(readings)
    return wanted


def gives_the_figures(query: str, *texts: str | None) -> bool:
    """Whether the texts together give each number that the query asks for, in whatever spelling."""
    figures = query_terms(query).figures
    if not figures:
        return True
    held = term_counts("\n".join(text for text in texts if text))
    return all(not readings.isdisjoint(held) for _, readings in figures)


def find_signs(connection: Connection[Any], text: str, near: Sequence[ChunkKey]) -> list[KeywordHit]:
    """Those of the chunks that hold the text as it stands: signs without a word have no terms, and are only found near by."""
    wanted = fold_phrase(text)
    texts = read_folded(connection, near)
    return [KeywordHit(key=key, score=0.0, coverage=1.0, exact=1) for key in near if wanted in texts.get(key, "")]
