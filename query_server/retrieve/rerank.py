"""A second reading: a reranker sees the query together with each of the best passages, and puts these into its own order."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from query_server.retrieve.collapse import Found
from query_server.retrieve.matches import ChunkKey
from shared.errors import DocwellError, TransientError

_Result = TypeVar("_Result")

RERANKED = 50
"""Passages that are read again. Those behind them keep their order."""

MOST_AT_ONCE = 8
"""Questions that may be with the reranker, those included that nobody waits for any more."""


class Reranker(Protocol):
    """Reads a query together with texts."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One number for each text, in their order: the higher, the better it answers the query.

        Raises:
            DocwellError: it could not be done; the message says why.
        """


class RerankFailed(TransientError):
    """The reranker gave no order; the answer does without it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="rerank_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The front of a ranking in the reranker's order: scores by the best chunk of each passage. `sign` names this very order, for
    cursors that go on in it; an empty one is the order of the fusion. `apart` are passages that the reranker did not get: they
    keep their places."""

    scores: Mapping[ChunkKey, float] = field(default_factory=dict)
    sign: str = ""
    apart: frozenset[ChunkKey] = frozenset()


BY_FUSION = Order()


class Reranking:
    """Asks a reranker, and waits for it no longer than `limit_seconds`, whatever it does. Safe for threads.

    The reranker is opened once, in the background. Only who is `patient` waits for that beyond the limit. One that `is_paid` gets
    no text of sources that keep theirs from paid services.
    """

    def __init__(
        self, open_reranker: Callable[[], Reranker], *, limit_seconds: float, patient: bool = False, is_paid: bool = False
    ) -> None:
        self._open = open_reranker
        self._limit = limit_seconds
        self._patient = patient
        self._is_paid = is_paid
        self._lock = threading.Lock()
        self._opening: Future[Reranker] | None = None
        self._seats = threading.BoundedSemaphore(MOST_AT_ONCE)

    def warm(self) -> Future[Reranker]:
        """Open the reranker in the background, unless that is being done or is done."""
        with self._lock:
            failed = self._opening is not None and self._opening.done() and self._opening.exception() is not None
            if self._opening is None or failed:
                self._opening = _in_background(self._open)
            return self._opening

    def order(self, query: str, found: Sequence[Found], *, confined: Collection[int] = ()) -> Order:
        """The reranker's order of the front of these passages; `confined` are sources, by number, whose text stays here.

        Raises:
            RerankFailed: it is away, too slow, still being loaded, or answered nonsense.
        """
        front = _front(found)
        asked = [one for one in front if not (self._is_paid and one.best.place.source_id in confined)]
        apart = frozenset(one.best.hit.key for one in front) - {one.best.hit.key for one in asked}
        if not asked:
            return Order(sign=_sign(front), apart=apart)
        try:
            reranker = self.warm().result(None if self._patient else self._limit)
        except TimeoutError:
            raise RerankFailed("the reranker is still being loaded. Try again in a few seconds.") from None
        except Exception as error:  # a library's failure too: the search is worth more than its reranker
            raise RerankFailed(_said(error)) from error
        scores = self._ask(reranker, query, [_text(one) for one in asked])
        order = Order(scores={one.best.hit.key: score for one, score in zip(asked, scores, strict=True)}, apart=apart)
        return replace(order, sign=_sign(_sorted(front, order)))

    def _ask(self, reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
        if not self._seats.acquire(blocking=False):
            raise RerankFailed(f"{MOST_AT_ONCE} questions are with the reranker already.")

        def ask() -> list[float]:
            try:
                return [float(score) for score in reranker.scores(query, texts)]
            finally:
                self._seats.release()

        try:
            scores = _in_background(ask).result(self._limit)
        except TimeoutError:
            raise RerankFailed(f"the reranker took longer than {self._limit:g} s (DOCWELL_RERANK_SECONDS).") from None
        except Exception as error:
            raise RerankFailed(_said(error)) from error
        if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
            raise RerankFailed("the reranker's answer does not fit: it takes one finite number for each passage.")
        return scores

    def close(self) -> None:
        """Close the reranker's connections, if it has any."""
        opening = self._opening
        if opening is not None and opening.done() and opening.exception() is None:
            close = getattr(opening.result(), "close", None)
            if close is not None:
                close()


class OnDemand:
    """The reranking, made when a search first wants it, or None where none is set. Safe for threads."""

    def __init__(self, make: Callable[[], Reranking | None] = lambda: None) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[Reranking | None] | None = None

    def __call__(self) -> Reranking | None:
        """The reranking."""
        with self._lock:
            if self._made is None:
                self._made = (self._make(),)
            return self._made[0]

    def close(self) -> None:
        """Close what was made."""
        with self._lock:
            if self._made is not None and self._made[0] is not None:
                self._made[0].close()


def front_length(found: Sequence[Found]) -> int:
    """How many passages from the front on a reranker is asked about."""
    return len(_front(found))


def reorder(found: Sequence[Found], order: Order) -> tuple[Found, ...] | None:
    """The passages in this order; None when it is one of other passages.

    What holds more of the identifiers, quoted phrases and file names that were asked for stays in front, as in the fusion, and
    what holds more of a brief query: a model that judges meaning is a poor judge of names and numbers.
    """
    front = _front(found)
    if any(one.best.hit.key not in order.scores and one.best.hit.key not in order.apart for one in front):
        return None
    placed = _sorted(front, order)
    return (*placed, *found[len(front) :]) if _sign(placed) == order.sign else None


def _front(found: Sequence[Found]) -> Sequence[Found]:
    """The passages that are read again: not the further documents of a text, which stand behind all others."""
    texts = set()
    for count, one in enumerate(found[:RERANKED]):
        if one.best.hit.key[1] in texts:
            return found[:count]
        texts.add(one.best.hit.key[1])
    return found[:RERANKED]


def _sorted(front: Sequence[Found], order: Order) -> list[Found]:
    read = [one for one in front if one.best.hit.key not in order.apart]
    read.sort(key=lambda one: (-one.best.hit.exact, -one.best.hit.held, -order.scores[one.best.hit.key]))
    placed = iter(read)
    return [one if one.best.hit.key in order.apart else next(placed) for one in front]


def _sign(placed: Sequence[Found]) -> str:
    return hashlib.sha256(repr([one.best.hit.key for one in placed]).encode()).hexdigest()[:12]


def _text(found: Found) -> str:
    section = found.best.place.section
    return f"{section}\n{found.text}" if section else found.text


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, DocwellError) else f"the reranker failed ({type(error).__name__}: {error})."


def _in_background(work: Callable[[], _Result]) -> Future[_Result]:
    """The work's result in time to come. Its thread keeps no process alive: what nobody waits for any more may never end."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - a thread has nobody above it: whoever waits gets the failure
            future.set_exception(error)

    threading.Thread(target=run, name="docwell-rerank", daemon=True).start()
    return future
