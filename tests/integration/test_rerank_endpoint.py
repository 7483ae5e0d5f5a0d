"""A reranker behind an endpoint as Cohere and Jina have it, on the loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from query_server.retrieve.rerank import RerankFailed
from query_server.retrieve.rerank_endpoint import EndpointReranker
from query_server.service import SearchService
from tests.asking import DIMENSION, MODEL
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.reranking import fill, paths, reranking_services, warned


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def serve(database: Database) -> Iterator[Callable[..., SearchService]]:
    with reranking_services(database) as found:
        yield found


class Endpoint(ThreadingHTTPServer):
    """Answers as Cohere and Jina do; `before` may answer in place of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str | None, dict[str, Any]]] = []
        self.before: Callable[[dict[str, Any]], tuple[int, Any] | None] = lambda _request: None
        self.waits = threading.Event()
        self.waits.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/rerank"

    def handle_error(self, *arguments: object) -> None:
        """A client that did not wait for its answer is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, self.headers.get("authorization"), request))
        self.server.waits.wait(60)
        status, body = self.server.before(request) or (200, self.results(request))
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.send_header("retry-after", "60")
        self.end_headers()
        self.wfile.write(raw)

    @staticmethod
    def results(request: dict[str, Any]) -> dict[str, Any]:
        found = [{"index": index, "relevance_score": len(text) / 100} for index, text in enumerate(request["documents"])]
        return {"results": sorted(found, key=lambda one: -one["relevance_score"])[: request["top_n"]]}

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.waits.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[EndpointReranker]:
    found = EndpointReranker(url=endpoint.url, model="rerank-1", api_key="key", limit_seconds=30.0)
    yield found
    found.close()


def test_an_endpoint_is_asked_as_cohere_and_jina_are(endpoint: Endpoint, client: EndpointReranker) -> None:
    assert client.scores("question", ["a", "ccc", "bb"]) == [0.01, 0.03, 0.02]
    assert endpoint.requests == [
        (
            "/v1/rerank",
            "Bearer key",
            {"model": "rerank-1", "query": "question", "documents": ["a", "ccc", "bb"], "top_n": 3},
        )
    ]


def test_the_endpoints_name_may_be_left_out(endpoint: Endpoint) -> None:
    client = EndpointReranker(url=endpoint.url.removesuffix("/rerank"), model=None, api_key=None, limit_seconds=30.0)
    client.scores("question", ["a"])
    client.close()
    [(path, key, request)] = endpoint.requests
    assert (path, key, "model" in request) == ("/v1/rerank", None, False)


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        {"results": [{"index": 0, "relevance_score": 1.0}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 0, "relevance_score": 1.0}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 2, "relevance_score": 1.0}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": "high"}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 1}]},
        {"results": ["x", "y"]},
        {"error": "overloaded"},
        [],
    ],
)
def test_an_answer_that_does_not_fit_is_refused(endpoint: Endpoint, client: EndpointReranker, body: Any) -> None:
    endpoint.before = lambda _request: (200, body)
    with pytest.raises(RerankFailed, match="does not fit"):
        client.scores("question", ["a", "b"])


@pytest.mark.parametrize(
    ("status", "cure"), [(401, "API_KEY"), (404, "RERANK_URL"), (429, "later"), (500, "later"), (302, "RERANK_URL")]
)
def test_an_error_is_told_with_its_cure_and_not_tried_again(
    endpoint: Endpoint, client: EndpointReranker, status: int, cure: str
) -> None:
    endpoint.before = lambda _request: (status, {"message": "no"})
    with pytest.raises(RerankFailed, match=cure):
        client.scores("question", ["a"])
    assert len(endpoint.requests) == 1


def test_a_search_falls_back_when_the_endpoint_hangs_or_is_away(
    corpus: Corpus, serve: Callable[..., SearchService], endpoint: Endpoint
) -> None:
    fill(corpus, 2)
    endpoint.waits.clear()
    client = EndpointReranker(url=endpoint.url, model=None, api_key=None, limit_seconds=0.2)
    assert len(warned(serve(client, limit_seconds=0.2).search("alpha"))) == 1
    away = EndpointReranker(url="http://127.0.0.1:9/rerank", model=None, api_key=None, limit_seconds=5.0)
    assert "cannot be reached" in warned(serve(away).search("alpha"))[0]


def test_a_search_over_an_endpoint_takes_its_order(
    corpus: Corpus, serve: Callable[..., SearchService], client: EndpointReranker
) -> None:
    fill(corpus, 3)
    assert paths(serve(client).search("alpha")) == ["2.md", "1.md", "0.md"]
