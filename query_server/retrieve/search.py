"""A search, from the query to cited passages. This file reads as the story; each step has a module of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from psycopg import Connection

from query_server.access import Principal
from query_server.answers import SearchAnswer
from query_server.cursor import Cursor, CursorExpired, decode_cursor
from query_server.retrieve.cache import RankingCache, RankingKey, Remembered
from query_server.retrieve.compose import compose
from query_server.retrieve.confidence import calibration_of
from query_server.retrieve.encode import Encoded
from query_server.retrieve.explain import UNTRACED, Facts, Trace, explain, gather_evidence
from query_server.retrieve.gather import Gathered, gather
from query_server.retrieve.keyword import FrequencyCache
from query_server.retrieve.legs import Legs, refuse_mismatch, run_legs
from query_server.retrieve.ranking import Ranking, rank
from query_server.retrieve.request import SearchRequest
from query_server.retrieve.rerank import BY_FUSION, RERANKED, OnDemand, Order, RerankFailed, Reranking, front_length, reorder
from query_server.retrieve.scope import Scope, measure
from query_server.retrieve.semantic import Space, active_space
from query_server.retrieve.unindexed import find_unindexed, with_unindexed
from query_server.snapshot import Snapshots

CacheUse: TypeAlias = Literal["hit", "miss"]
"""Whether the ranking was remembered; texts, places and access are looked up in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A ranking, what it is remembered by, and the space that was searched. `legs` are there when they were run for it."""

    key: RankingKey
    ranking: Ranking
    space: Space | None
    use: CacheUse
    legs: Legs | None = None


class Search:
    """Answers searches; what it remembers holds for one state of the index each. Safe for threads."""

    def __init__(
        self,
        snapshots: Snapshots,
        reranking: OnDemand | None = None,
        *,
        notice: Callable[[Space], None] = lambda _space: None,
    ) -> None:
        self._snapshots = snapshots
        self._notice = notice
        self._reranking = reranking or OnDemand()
        self._frequencies = FrequencyCache()
        self._rankings = RankingCache()
        self._orders: Remembered[Order] = Remembered()

    def answer(
        self,
        request: SearchRequest,
        encoded: Encoded,
        *,
        principal: Principal,
        now: datetime,
        rescan_seconds: float,
        trace: Trace = UNTRACED,
    ) -> tuple[SearchAnswer, CacheUse]:
        """Answer from one snapshot. `encoded` holds the query's vectors, made before the snapshot is opened, and the reranker is
        asked when it is closed: a model takes its time, and a transaction held open keeps dead rows alive.

        Raises:
            OtherModel: the index has another model than the vectors.
            CursorExpired: the index changed since the cursor was made, or its order cannot be made again.
        """
        cursor = decode_cursor(request.cursor, request.question)
        offset = cursor.offset if cursor is not None else 0
        reranking = self.reranking(request)
        with self._snapshots.open(principal) as connection:
            trace.lap("snapshot")
            scope = measure(connection, request.filters, now=now, rescan_seconds=rescan_seconds, count_documents=trace.on)
            if cursor is not None and cursor.index_version != scope.index_version:
                raise CursorExpired
            trace.lap("scope")
            ranked = self.rank(connection, request, encoded, scope, principal, trace)
            reach = max(offset + request.limit, RERANKED if reranking is not None else 0)
            gathered = gather(connection, scope, request.filters, ranked.ranking, reach)
            trace.lap("gather")
            facts = None
            if trace.on:
                facts = self._facts(connection, request, encoded, scope, principal, ranked, gathered)
                trace.lap("explain")
            unindexed = find_unindexed(connection, scope, request.filters) if not gathered.found and offset == 0 else ()
        gathered, order, problem = self.reorder(request, reranking, ranked, gathered, cursor, scope.confined)
        if reranking is not None:
            trace.lap("rerank")
        answer = compose(
            request,
            encoded,
            scope,
            gathered,
            offset,
            order=order,
            rerank_problem=problem,
            absent=ranked.ranking.absent,
            wordless=ranked.ranking.wordless,
        )
        answer = with_unindexed(answer, unindexed)
        trace.lap("compose")
        if facts is not None:
            shown = gathered.found[offset : offset + len(answer.results)]
            trace.explained = explain(dataclasses.replace(facts, order=order), shown, trace.milliseconds)
        return answer, ranked.use

    def reranking(self, request: SearchRequest) -> Reranking | None:
        """Who reads the passages again: nobody for a leg that is asked for alone, which answers in its own order."""
        return self._reranking() if request.mode == "hybrid" else None

    def rank(
        self,
        connection: Connection[Any],
        request: SearchRequest,
        encoded: Encoded,
        scope: Scope,
        principal: Principal,
        trace: Trace = UNTRACED,
    ) -> Ranked:
        """The ranking, remembered or new.

        Raises:
            OtherModel: the index has another model than the vectors.
        """
        space = active_space(connection) if request.mode != "keyword" else None
        refuse_mismatch(space, encoded)
        if space is not None:
            self._notice(space)
        key = RankingKey(
            question=request.question,
            principal=principal,
            audiences=tuple(zip(scope.audiences, scope.versions, strict=True)),
            space=space.fingerprint if space is not None else None,
            vectors=len(encoded.vectors),
        )
        known = self._rankings.get(key)
        if known is not None:
            return Ranked(key=key, ranking=known, space=space, use="hit")
        legs = self.run_legs(connection, request, encoded, scope, space, principal, lap=trace.lap)
        ranking = rank(legs, request.mode, calibration_of(space.model) if space is not None else None)
        self._rankings.put(key, ranking)
        trace.lap("fusion")
        return Ranked(key=key, ranking=ranking, space=space, use="miss", legs=legs)

    def run_legs(
        self,
        connection: Connection[Any],
        request: SearchRequest,
        encoded: Encoded,
        scope: Scope,
        space: Space | None,
        principal: Principal,
        **options: Any,
    ) -> Legs:
        """What both legs find; see `legs.run_legs`."""
        return run_legs(connection, request, encoded, scope, space, principal=principal, frequencies=self._frequencies, **options)

    def reorder(
        self,
        request: SearchRequest,
        reranking: Reranking | None,
        ranked: Ranked,
        gathered: Gathered,
        cursor: Cursor | None,
        confined: Collection[int],
    ) -> tuple[Gathered, Order, str | None]:
        """The passages in the reranker's order, or in that of the fusion with the reason; never in another than the page before.

        Raises:
            CursorExpired: the order of the page before cannot be made again.
        """
        asked = cursor.order if cursor is not None else None
        if reranking is None or asked == "" or not gathered.found:
            if asked:
                raise CursorExpired(_ORDER_GONE)
            return gathered, BY_FUSION, _FUSED_BEFORE if asked == "" and reranking is not None else None
        if asked and cursor is not None and cursor.offset >= front_length(gathered.found):
            return gathered, Order(sign=asked), None
        order = self._orders.get(ranked.key)
        found = None if order is None else reorder(gathered.found, order)
        if order is None or found is None:
            try:
                order = reranking.order(request.query, gathered.found, confined=confined)
            except RerankFailed as error:
                if asked:
                    raise CursorExpired(_ORDER_GONE) from error
                return gathered, BY_FUSION, str(error)
            found = reorder(gathered.found, order)
            self._orders.put(ranked.key, order)
        if found is None or (asked and asked != order.sign):
            raise CursorExpired(_ORDER_GONE)
        return dataclasses.replace(gathered, found=found), order, None

    def _facts(
        self,
        connection: Connection[Any],
        request: SearchRequest,
        encoded: Encoded,
        scope: Scope,
        principal: Principal,
        ranked: Ranked,
        gathered: Gathered,
    ) -> Facts:
        """What an explanation goes by. Of a remembered ranking the legs are run again: only their outcome was kept."""
        legs = ranked.legs or self.run_legs(connection, request, encoded, scope, ranked.space, principal)
        keys = [one.best.hit.key for one in gathered.found]
        return Facts(
            request=request,
            scope=scope,
            space=ranked.space,
            legs=legs,
            ranking=ranked.ranking,
            evidence=gather_evidence(connection, request, scope, keys),
            cache=ranked.use,
        )


_ORDER_GONE = "The reranker's order that this cursor belongs to cannot be made again. Ask again without a cursor."
_FUSED_BEFORE = "the page before stood in the order of the fusion, and this one goes on in it."
