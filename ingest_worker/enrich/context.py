"""Buying the contexts of one document: one call warms the service's cache, the others fan out, each answer is kept at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from ingest_worker.enrich.model import Answer, ContextModel
from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, Part, question
from shared.documents import Chunk
from shared.errors import ConfigurationError, DocwellError, PermanentError, TransientError
from shared.prices import TokenUse

CACHEABLE_TOKENS = 4_096
"""What Claude Haiku 4.5 takes into its cache at least; other models take less, and cost less then."""

_MOST_REFUSED = 3
"""So many requests refused one after the other are no passage's fault."""

# The bundled tokenizer counts European languages much as Claude does; the rest is what stands around document and passage.
_ESTIMATE = 1.25
_AROUND_TOKENS = len(INSTRUCTIONS) // 4 + 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why the rest of a document was left: a short code, a sentence, and when to go on if somebody said so (seconds)."""

    code: str
    reason: str
    retry_after: float | None = None
    is_outage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a purchase may ask and tell.

    `refusal` says why a call with this estimated use may not be made, all calls under way counted; `keep` is told each answer, or
    the error of a request that was refused, in the thread of the buyer, and may raise to end it.
    """

    refusal: Callable[[TokenUse], Stop | None]
    keep: Callable[[int, Answer | PermanentError], None]
    concurrency: int
    seconds: float
    clock: Callable[[], float] = time.monotonic


def estimate(part: Part, chunk: Chunk, *, is_first: bool, is_cached: bool = True) -> TokenUse:
    """What a call for a passage of this part will use, about; the first one of a part writes the cache that the others read.

    Not `is_cached`: the part is too short for the service's cache.
    """
    shown = int((part.tokens + _AROUND_TOKENS) * _ESTIMATE)
    own = int(chunk.tokens * _ESTIMATE) + 50
    return TokenUse(
        calls=1,
        input_tokens=own if is_cached else own + shown,
        output_tokens=MOST_ANSWER_TOKENS // 2,
        cache_read_tokens=shown if is_cached and not is_first else 0,
        cache_write_tokens=shown if is_cached and is_first else 0,
    )


def buy(
    model: ContextModel, chunks: Sequence[Chunk], parts: Sequence[Part], missing: Sequence[int], orders: Orders
) -> Stop | None:
    """Ask for the contexts of the `missing` chunks, by their place; returns what ended it early, None when all were asked for."""
    return _Buyer(model, chunks, orders).run(parts, set(missing))


class _Buyer:
    def __init__(self, model: ContextModel, chunks: Sequence[Chunk], orders: Orders) -> None:
        self._model = model
        self._chunks = chunks
        self._orders = orders
        self._until = orders.clock() + orders.seconds
        self._refused = 0
        self._is_cached = True
        self._under_way: dict[Future[Answer], tuple[int, TokenUse]] = {}

    def run(self, parts: Sequence[Part], missing: set[int]) -> Stop | None:
        with ThreadPoolExecutor(self._orders.concurrency, thread_name_prefix="context") as pool:
            try:
                for part in parts:
                    waiting = deque(place for place in range(part.first, part.last) if place in missing)
                    stop = self._run_part(pool, part, waiting)
                    if stop is not None:
                        return stop
            finally:
                # What is under way is paid for, whatever stopped us.
                stopped = self._collect_all()
        return stopped

    def _run_part(self, pool: ThreadPoolExecutor, part: Part, waiting: deque[int]) -> Stop | None:
        is_warm = False
        while waiting or self._under_way:
            while waiting and len(self._under_way) < (self._orders.concurrency if is_warm else 1):
                stop = self._may_ask(part, waiting[0], is_first=not is_warm)
                if stop is not None:
                    return stop
                self._submit(pool, part, waiting.popleft(), is_first=not is_warm)
            done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
            for future in done:
                stop = self._collect(future)
                if stop is not None:
                    return stop
                is_warm = is_warm or future.exception() is None
        return None

    def _may_ask(self, part: Part, place: int, *, is_first: bool) -> Stop | None:
        if self._orders.clock() > self._until:
            return Stop(code="time", reason=f"It took longer than {self._orders.seconds:g} seconds; the rest follows.")
        use = self._estimate(part, place, is_first=is_first)
        for _, reserved in self._under_way.values():
            use += reserved
        return self._orders.refusal(use)

    def _submit(self, pool: ThreadPoolExecutor, part: Part, place: int, *, is_first: bool) -> None:
        chunk = self._chunks[place]
        future = pool.submit(self._model.ask, part.shown, question(chunk))
        self._under_way[future] = (place, self._estimate(part, place, is_first=is_first))

    def _estimate(self, part: Part, place: int, *, is_first: bool) -> TokenUse:
        return estimate(part, self._chunks[place], is_first=is_first, is_cached=is_first or self._is_cached)

    def _collect_all(self) -> Stop | None:
        stop: Stop | None = None
        failure: Exception | None = None
        for future in list(self._under_way):
            try:
                stop = self._collect(future) or stop
            except Exception as error:  # noqa: BLE001 - raised below, when the others have been kept too
                failure = error
        if failure is not None:
            raise failure
        return stop

    def _collect(self, future: Future[Answer]) -> Stop | None:
        place, _ = self._under_way.pop(future)
        try:
            answer: Answer | PermanentError = future.result()
        except ConfigurationError as error:
            return Stop(code=error.code, reason=str(error), is_outage=True)
        except TransientError as error:
            return Stop(code=error.code, reason=str(error), retry_after=error.retry_after, is_outage=True)
        except PermanentError as error:
            answer = error
        if isinstance(answer, Answer):
            self._is_cached = answer.use.cache_read_tokens + answer.use.cache_write_tokens > 0
        self._orders.keep(place, answer)
        self._refused = self._refused + 1 if isinstance(answer, DocwellError) else 0
        if self._refused >= _MOST_REFUSED:
            return Stop(code="request_refused", reason=str(answer))
        return None
