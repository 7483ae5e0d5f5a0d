"""Buying the captions of one document: some calls at the same time, each answer kept at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from ingest_worker.enrich.caption_model import CaptionModel
from ingest_worker.enrich.caption_prompt import estimate
from ingest_worker.enrich.context import Stop
from ingest_worker.enrich.model import Answer
from ingest_worker.parse.pictures import Picture
from shared.errors import ConfigurationError, PermanentError, TransientError
from shared.prices import TokenUse

_MOST_REFUSED = 3
"""So many requests refused one after the other are no picture's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionOrders:
    """What a purchase may ask and tell.

    `question` is what stands after a picture. `refusal` says why a call with this estimated use may not be made, all calls under
    way counted; `keep` is told each answer, or the error of a request that was refused, in the thread of the buyer, and may raise
    to end it.
    """

    question: Callable[[Picture], str]
    refusal: Callable[[TokenUse], Stop | None]
    keep: Callable[[Picture, Answer | PermanentError], None]
    concurrency: int
    seconds: float
    clock: Callable[[], float] = time.monotonic


def buy_captions(model: CaptionModel, missing: Sequence[Picture], orders: CaptionOrders) -> Stop | None:
    """Ask for the captions of these pictures; returns what ended it early, None when all were asked for."""
    return _Buyer(model, orders).run(deque(missing))


class _Buyer:
    def __init__(self, model: CaptionModel, orders: CaptionOrders) -> None:
        self._model = model
        self._orders = orders
        self._until = orders.clock() + orders.seconds
        self._refused = 0
        self._under_way: dict[Future[Answer], Picture] = {}

    def run(self, waiting: deque[Picture]) -> Stop | None:
        stop: Stop | None = None
        with ThreadPoolExecutor(self._orders.concurrency, thread_name_prefix="caption") as pool:
            try:
                while stop is None and (waiting or self._under_way):
                    while stop is None and waiting and len(self._under_way) < self._orders.concurrency:
                        stop = self._may_ask(waiting[0])
                        if stop is None:
                            picture = waiting.popleft()
                            asked = pool.submit(self._model.describe, picture.data, self._orders.question(picture))
                            self._under_way[asked] = picture
                    if self._under_way:
                        done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
                        stop = self._collect(done) or stop
            finally:
                # What is under way is paid for, whatever stopped us.
                late = self._collect(set(self._under_way))
        return stop or late

    def _may_ask(self, picture: Picture) -> Stop | None:
        if self._orders.clock() > self._until:
            return Stop(code="time", reason=f"It took longer than {self._orders.seconds:g} seconds; the rest follows.")
        use = estimate(picture)
        for other in self._under_way.values():
            use += estimate(other)
        return self._orders.refusal(use)

    def _collect(self, done: set[Future[Answer]]) -> Stop | None:
        stop: Stop | None = None
        failure: Exception | None = None
        for future in done:
            try:
                stop = self._take(future) or stop
            except Exception as error:  # noqa: BLE001 - raised below, when the others have been kept too
                failure = error
        if failure is not None:
            raise failure
        return stop

    def _take(self, future: Future[Answer]) -> Stop | None:
        picture = self._under_way.pop(future)
        try:
            answer: Answer | PermanentError = future.result()
        except ConfigurationError as error:
            return Stop(code=error.code, reason=str(error), is_outage=True)
        except TransientError as error:
            return Stop(code=error.code, reason=str(error), retry_after=error.retry_after, is_outage=True)
        except PermanentError as error:
            answer = error
        self._orders.keep(picture, answer)
        self._refused = self._refused + 1 if isinstance(answer, PermanentError) else 0
        if self._refused >= _MOST_REFUSED:
            return Stop(code="request_refused", reason=str(answer))
        return None
