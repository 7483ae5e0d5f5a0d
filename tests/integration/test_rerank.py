"""Reordering by a reranker: an endpoint on loopback and a small model that is built here; and what an answer does without one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from infra.doctor import look_at_reranker
from query_server.cursor import CursorExpired
from query_server.retrieve.rerank import OnDemand, Reranker, RerankFailed, Reranking
from query_server.retrieve.rerank_endpoint import EndpointReranker
from query_server.retrieve.rerank_local import LocalReranker
from query_server.retrieve.rerank_open import open_reranking
from query_server.service import SearchService
from shared.config import Settings, load_settings
from shared.errors import ConfigurationError
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk


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


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def serve(database: Database) -> Iterator[Callable[..., SearchService]]:
    """A service with this reranker."""
    opened: list[Any] = []

    def open_one(reranker: Reranker, *, limit_seconds: float = 30.0) -> SearchService:
        reranking = Reranking(lambda: reranker, limit_seconds=limit_seconds)
        context = serving(database, reranking=OnDemand(lambda: reranking))
        opened.append(context)
        return context.__enter__()

    yield open_one
    for context in opened:
        context.__exit__(None, None, None)


def _fill(corpus: Corpus, count: int) -> None:
    """Passages of falling worth for `alpha`, with rising numbers."""
    for number in range(count):
        add(corpus, f"{number}.md", text_chunk("alpha " * 3 + f"number{number} " + "filler " * number))


def _paths(answer: dict[str, Any]) -> list[str]:
    return [result["path"] for result in answer["results"]]


def _warned(answer: dict[str, Any]) -> list[str]:
    return [warning["message"] for warning in answer["warnings"] if warning["code"] == "rerank_failed"]


def _all_pages(service: SearchService, **arguments: Any) -> list[str]:
    seen: list[str] = []
    cursor = ""
    while True:
        answer = service.search("alpha", cursor=cursor, max_tokens=100_000, **arguments)
        seen += _paths(answer)
        cursor = answer.get("next_cursor", "")
        if not cursor:
            return seen


def test_the_reranker_decides_the_order_and_the_score(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 8)
    answer = serve(ByNumber()).search("alpha", limit=3)
    assert _paths(answer) == ["7.md", "6.md", "5.md"]
    assert [(result["score"], result["score_kind"]) for result in answer["results"]] == [
        (7.0, "rerank"),
        (6.0, "rerank"),
        (5.0, "rerank"),
    ]
    assert _warned(answer) == []


def test_it_is_not_asked_while_a_transaction_is_open(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    _fill(corpus, 3)
    open_transactions: list[int] = []

    def look() -> None:
        row = corpus.connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        open_transactions.append(row[0])

    serve(ByNumber(look)).search("alpha")
    assert open_transactions == [0]


def test_it_reads_fifty_passages_and_those_behind_keep_their_order(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 60)
    reranker = ByNumber()
    plain = _all_pages(serve(ByNumber(), limit_seconds=30), limit=50, mode="keyword")
    found = _all_pages(serve(reranker), limit=50)
    assert set(reranker.calls) == {50}
    numbers = [int(path.removesuffix(".md")) for path in found[:50]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(found) == len(set(found)) == len(plain) == 60


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_of_a_reranked_answer_repeat_and_skip_nothing(
    corpus: Corpus, serve: Callable[..., SearchService], limit: int
) -> None:
    _fill(corpus, 12)
    reranker = ByNumber()
    assert _all_pages(serve(reranker), limit=limit) == [f"{number}.md" for number in reversed(range(12))]
    assert len(reranker.calls) == 1, "the order is remembered"


def test_another_server_that_comes_to_the_same_order_goes_on_with_a_cursor(
    corpus: Corpus, serve: Callable[..., SearchService]
) -> None:
    _fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]
    assert _paths(serve(ByNumber()).search("alpha", limit=2, cursor=cursor)) == ["3.md", "2.md"]


@pytest.mark.parametrize("change", ["another order", "a failure"])
def test_a_cursor_whose_order_cannot_be_made_again_has_expired(
    corpus: Corpus, serve: Callable[..., SearchService], change: str
) -> None:
    _fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]

    def fail() -> None:
        if change == "a failure":
            raise RerankFailed("away")

    with pytest.raises(CursorExpired, match="order"):
        serve(ByNumber(fail, sign=-1.0)).search("alpha", limit=2, cursor=cursor)


def test_a_reranked_cursor_has_expired_where_nothing_reranks(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    _fill(corpus, 6)
    cursor = serve(ByNumber()).search("alpha", limit=2)["next_cursor"]
    with serving(database) as plain, pytest.raises(CursorExpired):
        plain.search("alpha", limit=2, cursor=cursor)


def test_an_answer_that_began_by_fusion_goes_on_by_fusion(
    corpus: Corpus, serve: Callable[..., SearchService], database: Database
) -> None:
    _fill(corpus, 9)
    fails = [True]

    def fail() -> None:
        if fails.pop():
            raise RerankFailed("away")

    with serving(database) as plain:
        expected = _all_pages(plain, limit=50)
    service = serve(ByNumber(fail))
    first = service.search("alpha", limit=4)
    assert _warned(first)
    second = service.search("alpha", limit=4, cursor=first["next_cursor"])
    assert _paths(first) + _paths(second) == expected[:8]
    assert _warned(second)
    assert {result["score_kind"] for result in second["results"]} == {"rrf"}


def test_a_slow_reranker_is_not_waited_for(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 3)
    ends = threading.Event()
    service = serve(ByNumber(lambda: ends.wait(60)), limit_seconds=0.2)
    began = time.monotonic()
    answer = service.search("alpha")
    took = time.monotonic() - began
    ends.set()
    assert (len(answer["results"]), answer["results"][0]["score_kind"]) == (3, "rrf")
    assert "0.2 s" in _warned(answer)[0]
    assert took < 20


@pytest.mark.parametrize("scores", [[1.0], [float("nan")] * 3, [float("inf")] * 3, [1.0] * 4, ["x"] * 3, None])
def test_nonsense_costs_no_answer(corpus: Corpus, serve: Callable[..., SearchService], scores: Any) -> None:
    class Nonsense:
        def scores(self, query: str, texts: Sequence[str]) -> Any:
            return scores

    _fill(corpus, 3)
    answer = serve(Nonsense()).search("alpha")
    assert len(answer["results"]) == 3
    assert len(_warned(answer)) == 1


def test_a_failure_is_not_remembered(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 3)
    fails = [True, False]

    def fail() -> None:
        if fails and fails.pop(0):
            raise RuntimeError("a library's own error")

    service = serve(ByNumber(fail))
    assert "a library's own error" in _warned(service.search("alpha"))[0]
    assert _paths(service.search("alpha")) == ["2.md", "1.md", "0.md"]


def test_what_holds_the_exact_identifier_stays_in_front(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 4)
    add(corpus, "exact.md", text_chunk("alpha ERR-0042 number0"))
    answer = serve(ByNumber()).search("alpha ERR-0042")
    assert _paths(answer) == ["exact.md", "3.md", "2.md", "1.md", "0.md"]


def test_further_documents_of_a_text_stay_behind_the_others(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    add(corpus, "best.md", text_chunk("alpha beta number9"))
    add(corpus, "copy.md", text_chunk("alpha beta number9"))
    add(corpus, "other.md", text_chunk("alpha gamma number1"))
    reranker = ByNumber()
    assert _paths(serve(reranker).search("alpha")) == ["best.md", "other.md", "copy.md"]
    assert reranker.calls == [2]


@pytest.mark.parametrize("mode", ["keyword", "semantic"])
def test_a_leg_that_is_asked_for_alone_answers_in_its_own_order(
    corpus: Corpus, serve: Callable[..., SearchService], mode: str
) -> None:
    _fill(corpus, 3)
    reranker = ByNumber()
    answer = serve(reranker).search("alpha", mode=mode)
    assert ({result["score_kind"] for result in answer["results"]}, reranker.calls) == ({"rrf"}, [])


def test_many_ask_at_once_and_each_gets_the_reranked_order(corpus: Corpus, serve: Callable[..., SearchService]) -> None:
    _fill(corpus, 4)
    service = serve(ByNumber())
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda _: _paths(service.search("alpha")), range(12)))
    assert found == [["3.md", "2.md", "1.md", "0.md"]] * 12


# --- an endpoint


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
    _fill(corpus, 2)
    endpoint.waits.clear()
    client = EndpointReranker(url=endpoint.url, model=None, api_key=None, limit_seconds=0.2)
    assert len(_warned(serve(client, limit_seconds=0.2).search("alpha"))) == 1
    away = EndpointReranker(url="http://127.0.0.1:9/rerank", model=None, api_key=None, limit_seconds=5.0)
    assert "cannot be reached" in _warned(serve(away).search("alpha"))[0]


def test_a_search_over_an_endpoint_takes_its_order(
    corpus: Corpus, serve: Callable[..., SearchService], client: EndpointReranker
) -> None:
    _fill(corpus, 3)
    assert _paths(serve(client).search("alpha")) == ["2.md", "1.md", "0.md"]


# --- a model in this process


@pytest.fixture(params=[1, 2], ids=["one class", "two classes"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_cross_encoder(tmp_path / "model", classes=request.param)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "question"]


def make_cross_encoder(folder: Path, *, classes: int) -> Path:
    """A model that counts `good` in the second text and takes off `bad`; the first text and the padding count nothing."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))],
    )
    tokenizer.enable_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    worth = np.zeros((len(WORDS), 1), np.float32)
    worth[WORDS.index("good")], worth[WORDS.index("bad")], worth[WORDS.index("[PAD]")] = 1.0, -1.0, 100.0
    spread = np.array([[1.0]] if classes == 1 else [[0.0, 1.0]], np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    nodes = [
        helper.make_node("Gather", ["worth", "input_ids"], ["values"]),
        helper.make_node("Mul", ["attention_mask", "token_type_ids"], ["second"]),
        helper.make_node("Cast", ["second"], ["weights"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "last"], ["wide"]),
        helper.make_node("Mul", ["values", "wide"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "middle"], ["sums"], keepdims=0),
        helper.make_node("MatMul", ["sums", "spread"], ["logits"]),
    ]
    constants = {"worth": worth, "spread": spread, "last": np.array([2]), "middle": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "cross-encoder",
        inputs,
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(folder / "model.onnx"))
    return folder


def _local(folder: Path, **options: Any) -> LocalReranker:
    return LocalReranker(folder, **{"threads": 1, "limit_seconds": 30.0} | options)


def test_a_model_reads_the_pairs_as_its_tokenizer_says(model: Path) -> None:
    texts = ["bad", "good", "good good", "neither", "", "good " * 100 + "bad"]
    found = _local(model).scores("good question good", texts)
    assert found == pytest.approx([1 / (1 + np.exp(-value)) for value in (-1, 1, 2, 0, 0, 99)])


def test_a_text_longer_than_the_model_reads_is_cut(model: Path) -> None:
    [long, short] = _local(model).scores("question", ["neither " * 2000 + "good", "good"])
    assert (long, short) == (pytest.approx(0.5), pytest.approx(0.731, abs=1e-3))
    assert _local(model).scores("question " * 2000, ["good"]) == [pytest.approx(0.731, abs=1e-3)]


def test_a_model_stops_when_its_time_is_over(model: Path) -> None:
    times = iter([0.0, 0.5, 5.0])
    with pytest.raises(RerankFailed, match="longer than 1 s"):
        _local(model, limit_seconds=1.0, monotonic=lambda: next(times)).scores("question", ["good " * 500] * 50)


def test_a_search_with_a_model_of_ones_own(corpus: Corpus, database: Database, model: Path) -> None:
    for name, text in (("a.md", "alpha bad"), ("b.md", "alpha good good"), ("c.md", "alpha good")):
        add(corpus, name, text_chunk(text))
    settings, _ = load_settings({"DOCWELL_RERANK_MODEL_PATH": str(model)})
    reranking = open_reranking(settings.model_copy(update={"rerank_seconds": 30.0}), patient=True)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha")
    assert (_paths(answer), _warned(answer)) == (["b.md", "c.md", "a.md"], [])


def test_files_that_are_missing_or_no_model_are_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigurationError, match="DOCWELL_RERANK_MODEL_PATH"):
        _local(tmp_path)
    (model / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ConfigurationError, match=r"model\.onnx cannot be loaded"):
        _local(model)


def test_a_search_whose_model_is_missing_answers_and_says_so(corpus: Corpus, database: Database, tmp_path: Path) -> None:
    _fill(corpus, 2)
    settings, _ = load_settings({"DOCWELL_RERANK_MODEL_PATH": str(tmp_path)})
    reranking = open_reranking(settings, patient=True)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha")
    assert len(answer["results"]) == 2
    assert "is missing" in _warned(answer)[0]


def test_it_is_off_unless_it_is_set_and_only_one_can_be(tmp_path: Path) -> None:
    assert open_reranking(load_settings({})[0], patient=False) is None
    with pytest.raises(ConfigurationError, match="rerank_url is set too"):
        load_settings({"DOCWELL_RERANK_URL": "http://127.0.0.1:1", "DOCWELL_RERANK_MODEL_PATH": str(tmp_path)})


def test_the_doctor_asks_the_reranker_that_is_set(tmp_path: Path) -> None:
    assert list(look_at_reranker(Settings())) == []
    [away] = look_at_reranker(Settings(rerank_url="http://127.0.0.1:1/rerank"))
    assert (away.check, away.status) == ("reranker", "failed")
    assert "cannot be reached" in away.finding
    assert "DOCWELL_RERANK_URL" in (away.cure or "")
    [missing] = look_at_reranker(Settings(rerank_model_path=tmp_path))
    assert (missing.status, "DOCWELL_RERANK_MODEL_PATH" in (missing.cure or "")) == ("failed", True)
