"""Buying what a paid model says of one document: some calls at the same time, each answer kept at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from ingest_worker.enrich.messages import Answer
from shared.errors import ConfigurationError, PermanentError, TransientError
from shared.prices import TokenUse

_MOST_REFUSED = 3
"""So many requests refused one after the other are no fault of what they ask about."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why the rest of a document was left: a short code, a sentence, and when to go on if somebody said so (seconds)."""

    code: str
    reason: str
    retry_after: float | None = None
    is_outage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders(Generic[Item]):
    """What a purchase may ask and tell.

    `refusal` says why a call with this estimated use may not be made, all calls under way counted; `keep` is told each answer,
    and that a request was refused, in the thread of the buyer, and may raise to end it.
    """

    refusal: Callable[[TokenUse], Stop | None]
    keep: Callable[[Item, Answer], None]
    concurrency: int
    seconds: float
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[Item]):
    """What is asked about together. `ask` is called in a thread; `estimate` says what a call will use, about, the first one or
    another. With `first_alone` the others wait until one has been answered."""

    items: Sequence[Item]
    ask: Callable[[Item], Answer]
    estimate: Callable[[Item, bool], TokenUse]
    first_alone: bool = False


def buy(rounds: Iterable[Round[Item]], orders: Orders[Item], *, name: str) -> Stop | None:
    """Ask for all of it, one round after the other; returns what ended it early, None when all was asked for.

    `name` is that of the threads.
    """
    calls = _Calls(orders)
    stop: Stop | None = None
    with ThreadPoolExecutor(orders.concurrency, thread_name_prefix=name) as pool:
        try:
            for one in rounds:
                stop = calls.run(pool, one)
                if stop is not None:
                    break
        finally:
            # What is under way is paid for, whatever stopped us.
            late = calls.collect(calls.under_way)
    return stop or late


class _Calls(Generic[Item]):
    def __init__(self, orders: Orders[Item]) -> None:
        self._orders = orders
        self._until = orders.clock() + orders.seconds
        self._refused = 0
        self.under_way: dict[Future[Answer], tuple[Item, TokenUse]] = {}

    def run(self, pool: ThreadPoolExecutor, wanted: Round[Item]) -> Stop | None:
        waiting = deque(wanted.items)
        is_first = wanted.first_alone
        while waiting or self.under_way:
            while waiting and len(self.under_way) < (1 if is_first else self._orders.concurrency):
                use = wanted.estimate(waiting[0], is_first)
                stop = self._may_ask(use)
                if stop is not None:
                    return stop
                item = waiting.popleft()
                self.under_way[pool.submit(wanted.ask, item)] = (item, use)
            done, _ = wait(self.under_way, return_when=FIRST_COMPLETED)
            stop = self.collect(done)
            if stop is not None:
                return stop
            is_first = is_first and all(future.exception() is not None for future in done)
        return None

    def _may_ask(self, use: TokenUse) -> Stop | None:
        if self._orders.clock() > self._until:
            return Stop(code="time", reason=f"It took longer than {self._orders.seconds:g} seconds; the rest follows.")
        return self._orders.refusal(sum((reserved for _, reserved in self.under_way.values()), use))

    def collect(self, done: Iterable[Future[Answer]]) -> Stop | None:
        """Keep what these gave, all of it, whatever goes wrong with one."""
        stop: Stop | None = None
        failure: Exception | None = None
        for future in list(done):
            try:
                stop = self._take(future) or stop
            except Exception as error:  # noqa: BLE001 - raised below, when the others have been kept too
                failure = error
        if failure is not None:
            raise failure
        return stop

    def _take(self, future: Future[Answer]) -> Stop | None:
        item, _ = self.under_way.pop(future)
        is_refused = False
        try:
            answer = future.result()
        except ConfigurationError as error:
            return Stop(code=error.code, reason=str(error), is_outage=True)
        except TransientError as error:
            return Stop(code=error.code, reason=str(error), retry_after=error.retry_after, is_outage=True)
        except PermanentError as error:
            answer, is_refused = Answer(use=TokenUse(), code=error.code, reason=str(error)), True
        self._orders.keep(item, answer)
        self._refused = self._refused + 1 if is_refused else 0
        if self._refused >= _MOST_REFUSED:
            return Stop(code="request_refused", reason=answer.reason or "")
        return None
