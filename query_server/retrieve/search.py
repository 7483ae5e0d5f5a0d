"""A search, from the query to cited passages. This file reads as the story; each step has a module of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from psycopg import Connection

from query_server.access import Principal
from query_server.answers import SearchAnswer
from query_server.cursor import CursorExpired, decode_cursor
from query_server.retrieve.cache import RankingCache, RankingKey
from query_server.retrieve.compose import compose
from query_server.retrieve.confidence import calibration_of
from query_server.retrieve.encode import Encoded
from query_server.retrieve.gather import gather
from query_server.retrieve.keyword import FrequencyCache
from query_server.retrieve.legs import refuse_mismatch, run_legs
from query_server.retrieve.ranking import Ranking, rank
from query_server.retrieve.request import SearchRequest
from query_server.retrieve.scope import Scope, measure
from query_server.retrieve.semantic import active_space
from query_server.snapshot import Snapshots

CacheUse: TypeAlias = Literal["hit", "miss"]
"""Whether the ranking was remembered; texts, places and access are looked up in any case."""


class Search:
    """Answers searches; what it remembers holds for one state of the index each. Safe for threads."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._frequencies = FrequencyCache()
        self._rankings = RankingCache()

    def answer(
        self, request: SearchRequest, encoded: Encoded, *, principal: Principal, now: datetime, rescan_seconds: float
    ) -> tuple[SearchAnswer, CacheUse]:
        """Answer from one snapshot. `encoded` holds the query's vectors, made before the snapshot is opened: a model takes its
        time, and a transaction held open keeps dead rows alive.

        Raises:
            ConfigurationError: `embedding_mismatch`, the index was made with another model.
            CursorExpired: the index changed since the cursor was made.
        """
        cursor = decode_cursor(request.cursor, request.question)
        with self._snapshots.open(principal) as connection:
            scope = measure(connection, request.filters, now=now, rescan_seconds=rescan_seconds)
            if cursor is not None and cursor.index_version != scope.index_version:
                raise CursorExpired
            offset = cursor.offset if cursor is not None else 0
            ranking, use = self._ranking(connection, request, encoded, scope, principal)
            gathered = gather(connection, scope, request.filters, ranking, offset + request.limit)
        return compose(request, encoded, scope, gathered, offset), use

    def _ranking(
        self, connection: Connection[Any], request: SearchRequest, encoded: Encoded, scope: Scope, principal: Principal
    ) -> tuple[Ranking, CacheUse]:
        space = active_space(connection) if request.mode != "keyword" else None
        refuse_mismatch(space, encoded)
        key = RankingKey(
            question=request.question,
            principal=principal,
            audiences=tuple(zip(scope.audiences, scope.versions, strict=True)),
            space=space.fingerprint if space is not None else None,
            vectors=len(encoded.vectors),
        )
        known = self._rankings.get(key)
        if known is not None:
            return known, "hit"
        legs = run_legs(connection, request, encoded, scope, space, principal=principal, frequencies=self._frequencies)
        ranking = rank(legs, request.mode, calibration_of(space.model) if space is not None else None)
        self._rankings.put(key, ranking)
        return ranking, "miss"
