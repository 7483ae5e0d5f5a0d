"""The keyword leg: true BM25 over live statistics of what the principal may see, bounded in time."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from query_server.retrieve import bm25
from query_server.retrieve.filters import DOCUMENT_FILTER, Filters
from query_server.retrieve.scope import Scope
from shared.lexical import COUNTED_AT_ONCE, MOST_COUNTED, QueryTerm, QueryTerms, TermKind, counting_vectors, fold_phrase

ChunkKey: TypeAlias = tuple[int, uuid.UUID]

MOST_CANDIDATES = 2_000
"""Chunks that are scored for the rarest terms of a query, when more hold any of its terms; as many again for all of the common
ones together. Each costs some 6 microseconds. A scope of no more chunks than this is always scored whole."""

MOST_TERMS = 32
"""Terms of a query that are scored, by falling weight; only a pasted page has more."""

COUNT_UP_TO = 50_000
"""Document frequencies are counted up to here; above, the idf of a term is small whatever the rest."""

COMMON_SHARE = 0.05
COMMON_COUNT = 20
"""An identifier that stands in more chunks than both says little: then it ranks by BM25 like any other word."""

CHECKED_FOR_PHRASES = 200

_VECTORS = MOST_TERMS // COUNTED_AT_ONCE

# A NULL vector costs nothing: the operator is strict.
_COUNTS: LiteralString = """
    t.audience_id, t.chunk_id, t.length,
    -(t.frequencies <#> %(vector_0)s::sparsevec) AS product_0, -(t.frequencies <#> %(vector_1)s::sparsevec) AS product_1,
    -(t.frequencies <#> %(vector_2)s::sparsevec) AS product_2, -(t.frequencies <#> %(vector_3)s::sparsevec) AS product_3,
    -(t.frequencies <#> %(vector_4)s::sparsevec) AS product_4, -(t.frequencies <#> %(vector_5)s::sparsevec) AS product_5,
    -(t.frequencies <#> %(vector_6)s::sparsevec) AS product_6, -(t.frequencies <#> %(vector_7)s::sparsevec) AS product_7
"""
# Whether any term is there is asked of the products: `&&` compares every term with every other, 30 microseconds a row.
_ANY: LiteralString = """
    greatest(product_0, product_1, product_2, product_3, product_4, product_5, product_6, product_7) > 0
"""
_CANDIDATES: LiteralString = """
    SELECT * FROM docwell.keyword_candidates(%(wanted)s, %(together)s, %(audiences)s, %(most)s, %(vectors)s::text[]::sparsevec[])
"""
_CANDIDATES_IN_SCOPE: LiteralString = f"""
    WITH found AS MATERIALIZED ({_CANDIDATES}), standing AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM found JOIN docwell.version_chunk place USING (audience_id, chunk_id)
        JOIN docwell.document d ON d.served_version_id = place.version_id
        WHERE {DOCUMENT_FILTER}
    )
    SELECT found.* FROM found JOIN standing USING (audience_id, chunk_id)
"""
_WHOLE_AUDIENCES: LiteralString = f"""
    SELECT * FROM (
        SELECT {_COUNTS} FROM docwell.chunk_terms t WHERE t.audience_id = ANY (%(audiences)s) OFFSET 0
    ) AS counted WHERE {_ANY}
"""
_WHOLE_SCOPE: LiteralString = f"""
    WITH scope AS MATERIALIZED (
        SELECT DISTINCT place.audience_id, place.chunk_id
        FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
        WHERE d.audience_id = ANY (%(audiences)s) AND {DOCUMENT_FILTER}
    )
    SELECT * FROM (
        SELECT {_COUNTS} FROM scope JOIN docwell.chunk_terms t USING (audience_id, chunk_id) OFFSET 0
    ) AS counted WHERE {_ANY}
"""
_FREQUENCIES: LiteralString = "SELECT term, chunks FROM docwell.document_frequencies(%s, %s, %s)"
_TEXTS: LiteralString = """
    SELECT c.audience_id, c.chunk_id, concat_ws(E'\\n', c.symbol, c.section, c.text)
    FROM unnest(%s::integer[], %s::uuid[]) AS wanted (audience_id, chunk_id) JOIN docwell.chunk c USING (audience_id, chunk_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordHit:
    """A chunk that holds terms of the query.

    `coverage` is the share of the query's weight that the chunk's terms make up, 0.0-1.0. `exact` counts the identifiers and
    quoted phrases of the query that stand in it.
    """

    key: ChunkKey
    score: float
    coverage: float
    exact: int = 0


class FrequencyCache:
    """Document frequencies of one state of one set of audiences: common words are counted once, not with every query.

    Safe for threads. The key holds the audiences that the principal sees and their versions, so nothing leaks or grows stale.
    """

    def __init__(self, scopes: int = 16, terms: int = 50_000) -> None:
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
    connection: Connection[Any], scope: Scope, filters: Filters, query: QueryTerms, *, limit: int, cache: FrequencyCache
) -> list[KeywordHit]:
    """The best chunks of the scope by BM25, at most `limit`; exact hits first, then by score, then by id."""
    if not query.terms or scope.empty:
        return []
    if not scope.narrowed and scope.chunks <= MOST_CANDIDATES:
        terms: Sequence[QueryTerm] = query.terms[:MOST_TERMS]
        rows = _run(connection, _WHOLE_AUDIENCES, scope, filters, terms)
        frequencies = _count(rows, terms)
    else:
        frequencies = _frequencies(connection, scope, query.numbers, cache)
        terms = _weightiest(query.terms, frequencies, scope.chunks)
        rows = _rows(connection, scope, filters, terms, frequencies, limit)
    hits = _score(rows, scope, query, terms, frequencies, max(limit, CHECKED_FOR_PHRASES if query.phrases else 0))
    if query.phrases:
        hits = sorted(_with_phrases(connection, hits, query.phrases), key=_order)
    return hits[:limit]


def _order(hit: KeywordHit) -> tuple[int, float, ChunkKey]:
    return -hit.exact, -round(hit.score, 9), hit.key


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


def _weightiest(terms: Sequence[QueryTerm], frequencies: Mapping[int, int], chunks: int) -> Sequence[QueryTerm]:
    if len(terms) <= MOST_TERMS:
        return terms
    return sorted(terms, key=lambda term: (-term.weight * bm25.idf(frequencies.get(term.number, 0), chunks), term.number))[
        :MOST_TERMS
    ]


def choose_candidates(terms: Sequence[QueryTerm], frequencies: Mapping[int, int], most: int) -> tuple[list[int], list[int]]:
    """The terms any of which makes a candidate, and the terms all of which together make one.

    The first are the rarest while their frequencies add up to no more than `most`, one at least. The second are what is left,
    when it is more than one: a chunk with all the common words of a query can outrank one with a single rare word.
    """
    there = sorted(
        (term for term in terms if frequencies.get(term.number)), key=lambda term: (frequencies[term.number], term.number)
    )
    total = 0
    taken = 0
    for term in there:
        total += frequencies[term.number]
        if total > most and taken:
            break
        taken += 1
    together = [term.number for term in there[taken:] if term.kind is not TermKind.EXACT]
    return [term.number for term in there[:taken]], together if len(together) > 1 else []


def _rows(
    connection: Connection[Any],
    scope: Scope,
    filters: Filters,
    terms: Sequence[QueryTerm],
    frequencies: Mapping[int, int],
    limit: int,
) -> list[tuple[Any, ...]]:
    wanted, together = choose_candidates(terms, frequencies, MOST_CANDIDATES)
    if not wanted:
        return []
    if not scope.narrowed:
        return _run(connection, _CANDIDATES, scope, filters, terms, wanted=wanted, together=together)
    if scope.searched <= MOST_CANDIDATES:
        return _run(connection, _WHOLE_SCOPE, scope, filters, terms)
    rows = _run(connection, _CANDIDATES_IN_SCOPE, scope, filters, terms, wanted=wanted, together=together)
    if len(rows) < limit and sum(frequencies.get(term.number, 0) for term in terms) > MOST_CANDIDATES:
        # The filters left too few of the candidates, and there were more.
        return _run(connection, _WHOLE_SCOPE, scope, filters, terms)
    return rows


def _run(
    connection: Connection[Any],
    statement: LiteralString,
    scope: Scope,
    filters: Filters,
    terms: Sequence[QueryTerm],
    *,
    wanted: Sequence[int] | None = None,
    together: Sequence[int] = (),
) -> list[tuple[Any, ...]]:
    numbers = [term.number for term in terms]
    vectors = counting_vectors(numbers)
    values: dict[str, Any] = {
        "audiences": list(scope.audiences),
        "wanted": list(wanted) if wanted is not None else numbers,
        # No chunk holds term 0; an empty array would be held by all of them.
        "together": list(together) or [0],
        "most": 2 * MOST_CANDIDATES,
        "vectors": vectors,
        **filters.parameters,
        **{f"vector_{place}": vectors[place] if place < len(vectors) else None for place in range(_VECTORS)},
    }
    with connection.cursor(binary=True) as cursor:
        return cursor.execute(statement, values, prepare=False).fetchall()


def _score(
    rows: Sequence[tuple[Any, ...]],
    scope: Scope,
    query: QueryTerms,
    terms: Sequence[QueryTerm],
    frequencies: Mapping[int, int],
    limit: int,
) -> list[KeywordHit]:
    if not rows:
        return []
    numbers = [term.number for term in terms]
    counts = _unpack(rows, len(terms))
    idf = bm25.inverse_frequencies(numbers, frequencies, scope.chunks)
    weights = idf * np.array([term.weight for term in terms])
    scores = bm25.scores(counts, np.array([row[2] for row in rows], dtype=np.float64), weights, scope.average_length)
    # The exact form of a word is no second thing that was asked for.
    asked = np.array([0.0 if term.kind is TermKind.EXACT else 1.0 for term in terms]) * weights
    coverage = (counts > 0) @ asked / max(float(asked.sum()), 1e-9)
    rare = max(COMMON_COUNT, int(COMMON_SHARE * scope.chunks))
    identifiers = [
        numbers.index(term.number)
        for term in query.identifiers
        if term.number in numbers and frequencies.get(term.number, 0) <= rare
    ]
    exact = (counts[:, identifiers] > 0).sum(axis=1)
    order = np.lexsort((-np.round(scores, 9), -exact))
    # A few more than wanted, so that the ids decide between equal scores at the border too.
    edge = scores[order[min(limit, len(order)) - 1]] - 1e-9
    best = [place for rank, place in enumerate(order) if rank < limit or (scores[place] >= edge and rank < 2 * limit)]
    hits = [
        KeywordHit(
            key=(rows[place][0], rows[place][1]),
            score=float(scores[place]),
            coverage=float(coverage[place]),
            exact=int(exact[place]),
        )
        for place in best
        if scores[place] > 0
    ]
    return sorted(hits, key=_order)[:limit]


def _count(rows: Sequence[tuple[Any, ...]], terms: Sequence[QueryTerm]) -> dict[int, int]:
    """Document frequencies, of rows that are all there are."""
    if not rows:
        return {}
    found = (_unpack(rows, len(terms)) > 0).sum(axis=0)
    return {term.number: int(count) for term, count in zip(terms, found, strict=True)}


def _unpack(rows: Sequence[tuple[Any, ...]], terms: int) -> npt.NDArray[np.int64]:
    """The counts in the products of `counting_vectors`, shape (rows, terms)."""
    groups = -(-terms // COUNTED_AT_ONCE)
    products = np.array([row[3 : 3 + groups] for row in rows], dtype=np.float64).astype(np.int64)
    bits = MOST_COUNTED.bit_length()
    places = np.arange(COUNTED_AT_ONCE, dtype=np.int64) * bits
    digits = (products[:, :, None] >> places[None, None, :]) & MOST_COUNTED
    return digits.reshape(len(rows), groups * COUNTED_AT_ONCE)[:, :terms]


def _with_phrases(connection: Connection[Any], hits: Sequence[KeywordHit], phrases: Sequence[str]) -> list[KeywordHit]:
    keys = [hit.key for hit in hits]
    rows = connection.execute(_TEXTS, ([audience for audience, _ in keys], [chunk for _, chunk in keys])).fetchall()
    texts = {(row[0], row[1]): fold_phrase(row[2]) for row in rows}
    return [
        KeywordHit(
            key=hit.key,
            score=hit.score,
            coverage=hit.coverage,
            exact=hit.exact + sum(phrase in texts.get(hit.key, "") for phrase in phrases),
        )
        for hit in hits
    ]
