"""Rankings that were made before, for as long as they hold."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from query_server.access import Principal
from query_server.retrieve.packed import PackedRanking, pack, unpack
from query_server.retrieve.ranking import Ranking

Value = TypeVar("Value")

MOST_RANKINGS = 1_000
"""Of at most 300 hits each, 61 bytes a hit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingKey:
    """All that a ranking follows from. `audiences` are those in scope with their versions, as the snapshot shows them: a publish
    raises a version in its own transaction, so every server sees at once that a ranking no longer holds."""

    question: str
    principal: Principal
    audiences: tuple[tuple[int, int], ...]
    space: str | None
    vectors: int


class Remembered(Generic[Value]):
    """Holds ids and numbers, never texts; whoever shows a hit looks its place up anew. Safe for threads."""

    def __init__(self, most: int = MOST_RANKINGS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[RankingKey, Value] = OrderedDict()

    def get(self, key: RankingKey) -> Value | None:
        """What was remembered, None when it is not known."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: RankingKey, value: Value) -> None:
        """Remember, at the cost of the one that was longest not asked for."""
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)


class RankingCache:
    """The rankings, packed."""

    def __init__(self) -> None:
        self._packed: Remembered[PackedRanking] = Remembered()

    def get(self, key: RankingKey) -> Ranking | None:
        """As `Remembered.get`."""
        found = self._packed.get(key)
        return None if found is None else unpack(found)

    def put(self, key: RankingKey, ranking: Ranking) -> None:
        """As `Remembered.put`."""
        self._packed.put(key, pack(ranking))
