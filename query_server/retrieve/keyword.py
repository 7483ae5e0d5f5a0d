"""The keyword leg: true BM25 over statistics of what the principal may see, bounded in time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from query_server.retrieve import bm25
from query_server.retrieve.candidates import choose_candidates
from query_server.retrieve.filters import Filters
from query_server.retrieve.matches import (
    CANDIDATES,
    CANDIDATES_IN_SCOPE,
    MOST_TERMS,
    OF_DOCUMENTS,
    WHOLE_AUDIENCES,
    WHOLE_SCOPE,
    ChunkKey,
    Matches,
    find_matches,
    nothing,
)
from query_server.retrieve.name_words import NameWords, name_words
from query_server.retrieve.names import named_chunks
from query_server.retrieve.phrases import holds_phrases
from query_server.retrieve.scope import Scope
from shared.query_terms import OTHER_FORMS, QueryTerm, QueryTerms

MOST_CANDIDATES = 1_000
"""Chunks that are scored for the rarest terms of a query, when more hold any of its terms; as many again for several of the
common ones together. Each costs some 5 microseconds, and twice as many found no better ten among 100,000."""

MOST_FOR_PHRASES = 4_000
"""Chunks that are taken at most where a phrase is quoted: those that hold all its words have to be among them."""

WHOLE_UP_TO = 2_000
"""A scope of no more chunks is always scored whole."""

WHOLE_UP_TO_HIDDEN = 20_000
HIDDEN_SHARE = 0.02
"""Nor is one of this share of all chunks: the index of terms finds those of all others too before it leaves them out. Of 10,000
chunks among a million candidates took 180 ms and up to 600, all of them 55."""

COUNT_UP_TO = 50_000
"""Document frequencies are counted up to here; above, the idf of a term is small whatever the rest."""

COMMON_SHARE = 0.05
COMMON_COUNT = 20
"""An identifier that stands in more chunks than both says little: then it ranks by BM25 like any other word."""

WHOLE, TOGETHER = 5, 6
"""All words of a brief query, and all of them within a few words. What holds less is told apart by quarters, 0 to 4."""

NAMED_PASSAGES = 3
"""Passages of a document that the query names which come first: its best ones, or its first one when none holds a term."""

_FREQUENCIES: LiteralString = "SELECT term, chunks FROM docwell.document_frequencies(%s, %s, %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordHit:
    """A chunk that holds terms of the query.

    `coverage` is the share of the query's weight that the chunk's terms make up, 0.0-1.0; another form of a word counts half.
    `exact` counts the identifiers and quoted phrases of the query that stand in it, and the names of its document. `held` says
    how much it holds of a brief query with a number or an identifier in it: quarters of its weight, or WHOLE, or TOGETHER.
    `by_name` are terms that count as held, once each, since they stand in the name of its document.
    """

    key: ChunkKey
    score: float
    coverage: float
    exact: int = 0
    held: int = 0
    by_name: frozenset[int] = frozenset()


class FrequencyCache:
    """Document frequencies of one state of one set of audiences: common words are counted once, not with every query.

    Safe for threads. The key holds the audiences that the principal sees and their versions, so nothing leaks or grows stale.
    """

    def __init__(self, scopes: int = 16, terms: int = 20_000) -> None:
        self._scopes = scopes
        self._terms = terms
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[tuple[int, ...], int], dict[int, int]] = OrderedDict()

    def get(self, key: tuple[tuple[int, ...], int], numbers: Sequence[int]) -> dict[int, int]:
        """What is known of these terms."""
        with self._lock:
            known = self._known.get(key, {})
            return {number: known[number] for number in numbers if number in known}

    def put(self, key: tuple[tuple[int, ...], int], frequencies: Mapping[int, int]) -> None:
        """Remember, at the cost of the state that was longest not asked for."""
        with self._lock:
            known = self._known.setdefault(key, {})
            if len(known) < self._terms:
                known.update(frequencies)
            self._known.move_to_end(key)
            while len(self._known) > self._scopes:
                self._known.popitem(last=False)


def keyword_leg(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    query: QueryTerms,
    *,
    limit: int,
    cache: FrequencyCache,
    everything: int = 0,
) -> list[KeywordHit]:
    """The best chunks of the scope by BM25, at most `limit`; exact hits first, then what holds more of a brief query, then by
    score, then by id. `everything` is about how many chunks there are, of all principals; 0 when that is not known."""
    if not query.terms or scope.empty:
        return []
    hidden = scope.chunks <= HIDDEN_SHARE * everything
    if not scope.narrowed and scope.chunks <= (WHOLE_UP_TO_HIDDEN if hidden else WHOLE_UP_TO):
        terms = _heaviest(query, None, scope.chunks)
        matches = _find(connection, WHOLE_AUDIENCES, scope, filters, terms)
        frequencies = _count(matches, terms)
    else:
        frequencies = _frequencies(connection, scope, query.numbers, cache)
        terms = _heaviest(query, frequencies, scope.chunks)
        matches = _matches(connection, scope, filters, query, terms, frequencies, limit)
    matches, by_name = _with_name_words(
        connection, scope, filters, terms, matches, name_words(connection, scope, filters, query.text)
    )
    scored = _score(matches, scope, query, terms, frequencies, by_name)
    if query.phrases:
        numbers = [term.number for term in terms]
        holding = holds_phrases(connection, query, matches.keys, matches.counts, scored.scores, numbers, most=limit)
        scored = replace(scored, exact=scored.exact + holding)
    hits = _with_named(scored, named_chunks(connection, scope, filters, query.text), limit)
    return [replace(hit, by_name=by_name[hit.key]) if hit.key in by_name else hit for hit in hits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Chunks with what speaks for each, all of shape (chunks,)."""

    matches: Matches
    scores: npt.NDArray[np.float64]
    coverage: npt.NDArray[np.float64]
    exact: npt.NDArray[np.int64]
    held: npt.NDArray[np.int64]


def in_order(hits: Iterable[KeywordHit]) -> list[KeywordHit]:
    """The hits as the leg brings them, best first."""
    return sorted(hits, key=lambda hit: (-hit.exact, -hit.held, -round(hit.score, 9), hit.key))


def _frequencies(connection: Connection[Any], scope: Scope, numbers: Sequence[int], cache: FrequencyCache) -> dict[int, int]:
    key = (scope.audiences, scope.index_version)
    known = cache.get(key, numbers)
    missing = [number for number in numbers if number not in known]
    if missing:
        rows = connection.execute(_FREQUENCIES, (missing, list(scope.audiences), COUNT_UP_TO)).fetchall()
        counted = {int(term): int(chunks) for term, chunks in rows}
        cache.put(key, counted)
        known |= counted
    return known


def _heaviest(query: QueryTerms, frequencies: Mapping[int, int] | None, chunks: int) -> Sequence[QueryTerm]:
    """As many terms as can be scored: those of phrases first, those that are nowhere last."""
    if len(query.terms) <= MOST_TERMS:
        return query.terms
    quoted = {number for numbers in query.phrase_terms for number in numbers}

    def rank(term: QueryTerm) -> tuple[bool, bool, float]:
        frequency = frequencies.get(term.number, 0) if frequencies is not None else 1
        idf = bm25.idf(frequency, chunks) if frequencies is not None else 1.0
        return term.number not in quoted, frequency == 0, -term.weight * idf

    return sorted(query.terms, key=rank)[:MOST_TERMS]


def _matches(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    query: QueryTerms,
    terms: Sequence[QueryTerm],
    frequencies: Mapping[int, int],
    limit: int,
) -> Matches:
    chosen = choose_candidates(terms, frequencies, most=MOST_CANDIDATES, chunks=scope.chunks, certain=query.phrase_terms)
    if scope.narrowed and scope.searched <= WHOLE_UP_TO:
        return _find(connection, WHOLE_SCOPE, scope, filters, terms)
    statement = CANDIDATES_IN_SCOPE if scope.narrowed else CANDIDATES
    found = nothing(len(terms))
    if chosen.wanted or chosen.together:
        most = MOST_FOR_PHRASES if query.phrases else None
        found = _find(connection, statement, scope, filters, terms, most=most, wanted=chosen.wanted, together=chosen.together)
    if len(found) < limit and scope.narrowed and sum(frequencies.get(term.number, 0) for term in terms) > MOST_CANDIDATES:
        # The filters left too few of the candidates, and there were more.
        return _find(connection, WHOLE_SCOPE, scope, filters, terms)
    if len(found) < limit and chosen.instead is not None:
        found = found.with_more(_find(connection, statement, scope, filters, terms, wanted=[chosen.instead]))
    return found


def _find(
    connection: Connection[Any],
    statement: LiteralString,
    scope: Scope,
    filters: Filters,
    terms: Sequence[QueryTerm],
    *,
    most: int | None = None,
    wanted: Sequence[int] = (),
    together: Sequence[Sequence[int]] = (),
) -> Matches:
    most = 2 * MOST_CANDIDATES if most is None else most
    return find_matches(connection, statement, scope, filters, terms, most=most, wanted=wanted, together=together)


def _with_name_words(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    terms: Sequence[QueryTerm],
    matches: Matches,
    named: Sequence[NameWords],
) -> tuple[Matches, dict[ChunkKey, frozenset[int]]]:
    """The matches with those of the documents whose names stand in the query, and the terms that their names add to them."""
    numbers = frozenset(term.number for term in terms)
    by_name: dict[ChunkKey, frozenset[int]] = {}
    for one in named:
        found = find_matches(connection, OF_DOCUMENTS, scope, filters, terms, most=WHOLE_UP_TO, documents=one.documents)
        matches = matches.with_more(found)
        by_name |= {key: by_name.get(key, frozenset()) | (one.terms & numbers) for key in found.keys}
    return matches, by_name


def _score(
    matches: Matches,
    scope: Scope,
    query: QueryTerms,
    terms: Sequence[QueryTerm],
    frequencies: Mapping[int, int],
    by_name: Mapping[ChunkKey, frozenset[int]],
) -> Scored:
    numbers = [term.number for term in terms]
    counts = matches.counts
    if by_name:
        places = {number: place for place, number in enumerate(numbers)}
        counts = counts.copy()
        for row, key in enumerate(matches.keys):
            columns = [places[number] for number in by_name.get(key, ())]
            counts[row, columns] = np.maximum(counts[row, columns], 1)
    idf = bm25.inverse_frequencies(numbers, frequencies, scope.chunks)
    weights = idf * np.array([term.weight for term in terms])
    rare = max(COMMON_COUNT, int(COMMON_SHARE * scope.chunks))
    identifiers = [
        numbers.index(term.number)
        for term in query.identifiers
        if term.number in numbers and frequencies.get(term.number, 0) <= rare
    ]
    coverage = _coverage(counts, terms, weights)
    return Scored(
        matches=matches,
        scores=bm25.scores(counts, matches.lengths.astype(np.float64), weights, scope.average_length),
        coverage=coverage,
        # A name is told apart in _with_named: not every passage of a document named `ERR-0042.md` speaks of it.
        exact=(matches.counts[:, identifiers] > 0).sum(axis=1),
        held=_held(counts, coverage, numbers, query.needs),
    )


def _held(
    counts: npt.NDArray[np.int64],
    coverage: npt.NDArray[np.float64],
    numbers: Sequence[int],
    needs: Sequence[frozenset[int]],
) -> npt.NDArray[np.int64]:
    """How much of a brief query each chunk holds; zeros for others."""
    if not needs:
        return np.zeros(len(counts), dtype=np.int64)
    whole = np.full(len(counts), True)
    for forms in needs:
        columns = [place for place, number in enumerate(numbers) if number in forms]
        whole &= (counts[:, columns] > 0).any(axis=1)
    return np.where(whole, WHOLE, np.floor(coverage * 4 + 1e-9).astype(np.int64))


def _coverage(
    counts: npt.NDArray[np.int64], terms: Sequence[QueryTerm], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The share of what was asked for that each chunk holds. The forms of a word are one thing that is asked for."""
    held = np.zeros(len(counts))
    asked = 0.0
    for place, term in enumerate(terms):
        if term.kind in OTHER_FORMS:
            continue
        others = [other for other, form in enumerate(terms) if form.word == term.word and form.kind in OTHER_FORMS]
        share = np.where(counts[:, place] > 0, 1.0, 0.5 * (counts[:, others] > 0).any(axis=1))
        held += weights[place] * share
        asked += float(weights[place])
    return held / max(asked, 1e-9)


def _with_named(scored: Scored, named: Sequence[Sequence[ChunkKey]], limit: int) -> list[KeywordHit]:
    exact = scored.exact.copy()
    places = {key: place for place, key in enumerate(scored.matches.keys) if scored.scores[place] > 0} if named else {}
    first: list[KeywordHit] = []
    for chunks in named:
        holding = sorted((places[key] for key in chunks if key in places), key=lambda place: (-scored.scores[place], place))
        exact[holding[:NAMED_PASSAGES]] += 1
        if not holding:
            first.append(KeywordHit(key=chunks[0], score=0.0, coverage=1.0, exact=1))
    hits = _best(replace(scored, exact=exact), limit)
    return in_order([*hits, *first])[:limit]


def _best(scored: Scored, limit: int) -> list[KeywordHit]:
    if not len(scored.matches):
        return []
    order = np.lexsort((-np.round(scored.scores, 9), -scored.held, -scored.exact))
    # A few more than wanted, so that the ids decide between equal scores at the border too.
    edge = scored.scores[order[min(limit, len(order)) - 1]] - 1e-9
    further = order[limit : 2 * limit]
    best = np.concatenate([order[:limit], further[scored.scores[further] >= edge]])
    best = best[scored.scores[best] > 0]
    return [
        KeywordHit(key=key, score=score, coverage=coverage, exact=exact, held=held)
        for key, score, coverage, exact, held in zip(
            scored.matches.keys_of(best),
            scored.scores[best].tolist(),
            scored.coverage[best].tolist(),
            scored.exact[best].tolist(),
            scored.held[best].tolist(),
            strict=True,
        )
    ]


def _count(matches: Matches, terms: Sequence[QueryTerm]) -> dict[int, int]:
    """Document frequencies, of chunks that are all there are."""
    found = (matches.counts > 0).sum(axis=0)
    return {term.number: int(count) for term, count in zip(terms, found, strict=True)}
