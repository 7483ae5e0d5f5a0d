"""A search service with a reranker of the tests' own, and passages for it to reorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from query_server.retrieve.rerank import OnDemand, Reranker, Reranking
from query_server.service import SearchService
from tests.asking import add, serving
from tests.conftest import Database
from tests.corpus import Corpus, text_chunk


class ByNumber:
    """Likes a text the better the greater the last number in it; may fail, be slow, or talk nonsense."""

    def __init__(self, before: Callable[[], None] = lambda: None, *, sign: float = 1.0) -> None:
        self.before = before
        self.sign = sign
        self.calls: list[int] = []

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        self.calls.append(len(texts))
        self.before()
        return [self.sign * float(text.rsplit("number", 1)[1].split()[0]) for text in texts]


@contextmanager
def reranking_services(database: Database) -> Iterator[Callable[..., SearchService]]:
    """Makes services with the reranker that is given, and closes them all."""
    with ExitStack() as opened:

        def open_one(reranker: Reranker, *, limit_seconds: float = 30.0) -> SearchService:
            reranking = Reranking(lambda: reranker, limit_seconds=limit_seconds)
            return opened.enter_context(serving(database, reranking=OnDemand(lambda: reranking)))

        yield open_one


def fill(corpus: Corpus, count: int) -> None:
    """Passages of falling worth for `alpha`, with rising numbers."""
    for number in range(count):
        add(corpus, f"{number}.md", text_chunk("alpha " * 3 + f"number{number} " + "filler " * number))


def paths(answer: dict[str, Any]) -> list[str]:
    """The paths of the passages, in order."""
    return [result["path"] for result in answer["results"]]


def warned(answer: dict[str, Any]) -> list[str]:
    """What the answer says of a reranker that failed."""
    return [warning["message"] for warning in answer["warnings"] if warning["code"] == "rerank_failed"]
