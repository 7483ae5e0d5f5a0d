"""The client of OpenAI-compatible APIs, against a small server on loopback that answers as they do."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shared.embedding.limiter import Unlimited
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.embedding.probe import ORDINARY
from shared.embedding.protocol import Role, TextsRefused
from shared.errors import ConfigurationError, PermanentError, TransientError
from tests.ports import free_port
from tests.v1_embeddings import Answer, Server, error, expected


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def embedder(server: Server, slept: list[float]) -> Iterator[OpenAIEmbedder]:
    one = OpenAIEmbedder(base_url=server.url, api_key="sk-test", model="small", sleep=slept.append, rng=random.Random(1))
    yield one
    one.close()


@pytest.mark.parametrize("as_base64", [True, False])
def test_vectors_come_in_the_order_of_the_texts_with_length_one(
    server: Server, embedder: OpenAIEmbedder, *, as_base64: bool
) -> None:
    server.base64 = as_base64
    texts = ["one", "two", "", "三"]
    vectors = embedder.embed(texts, Role.PASSAGE)
    np.testing.assert_allclose(vectors, expected(["one", "two", ".", "三"]), atol=1e-6)
    assert vectors.dtype == np.float32
    assert server.keys == ["Bearer sk-test"]
    assert embedder.embed([], Role.PASSAGE).shape == (0, 8)


def test_the_dimension_is_learnt_from_the_first_answer(server: Server, embedder: OpenAIEmbedder) -> None:
    assert server.requests == []
    assert embedder.fingerprint.dimension == 8
    assert embedder.fingerprint.model == "small"
    assert len(server.requests) == 1


def test_a_wanted_dimension_is_asked_for_and_checked(server: Server) -> None:
    embedder = OpenAIEmbedder(base_url=server.url, api_key=None, model="large", dimension=4)
    assert embedder.embed(["a"], Role.QUERY).shape == (1, 4)
    assert server.requests[0]["dimensions"] == 4
    server.before = lambda request, _n: request.pop("dimensions", None) and None
    with pytest.raises(ConfigurationError, match="DOCWELL_EMBEDDING_DIMENSION=8"):
        embedder.embed(["a"], Role.QUERY)
    embedder.close()


def test_options_that_a_server_does_not_know_are_left_out(server: Server) -> None:
    def strict(request: dict[str, Any], _number: int) -> Answer | None:
        for name in ("dimensions", "encoding_format"):
            if name in request:
                return error(400, f"Unknown parameter: {name}")
        return None

    server.before = strict
    embedder = OpenAIEmbedder(base_url=server.url, api_key=None, model="small-old", dimension=8)
    np.testing.assert_allclose(embedder.embed(["a", "b"], Role.PASSAGE), expected(["a", "b"]), atol=1e-6)
    embedder.embed(["c"], Role.PASSAGE)
    assert len(server.requests) == 4
    embedder.close()


def test_retry_after_is_honoured(server: Server, embedder: OpenAIEmbedder, slept: list[float]) -> None:
    server.before = lambda _r, number: error(429, "slow down", retry_after="7") if number == 1 else None
    embedder.embed(["a"], Role.PASSAGE)
    assert len(slept) == 1
    assert 7 <= slept[0] < 7.5


def test_a_wait_too_long_for_the_worker_is_handed_to_the_job(server: Server, embedder: OpenAIEmbedder) -> None:
    server.before = lambda _r, _n: error(429, "quota", retry_after="600")
    with pytest.raises(TransientError) as caught:
        embedder.embed(["a"], Role.PASSAGE)
    assert caught.value.retry_after == 600
    assert len(server.requests) == 1


def test_a_request_that_no_minute_has_room_for_is_split_and_holds_nobody_up(server: Server, slept: list[float]) -> None:
    held: list[float] = []

    class Noting(Unlimited):
        def hold(self, seconds: float) -> None:
            held.append(seconds)

    asking = OpenAIEmbedder(base_url=server.url, api_key=None, model="small", limiter=Noting(), sleep=slept.append)
    too_large = (
        "Request too large for small on tokens per min (TPM): Limit 40000, Requested 50000. The input tokens must be reduced."
    )
    server.before = lambda request, _n: error(429, too_large, retry_after="86400") if len(request["input"]) > 1 else None
    assert len(asking.embed(["a", "b"], Role.PASSAGE)) == 2
    assert (held, slept) == ([], [])
    server.before = lambda _r, _n: error(429, "requests per day", retry_after="86400")
    with pytest.raises(TransientError):
        asking.embed(["a"], Role.PASSAGE)
    assert held == [900.0]
    asking.close()


def test_an_overloaded_server_is_asked_again_with_growing_pauses_and_then_given_up(
    server: Server, embedder: OpenAIEmbedder, slept: list[float]
) -> None:
    server.before = lambda _r, _n: error(503, "overloaded")
    with pytest.raises(TransientError, match="overloaded"):
        embedder.embed(["a"], Role.PASSAGE)
    assert len(server.requests) == 5
    assert slept == sorted(slept)
    with pytest.raises(TransientError):
        embedder.embed(["a"], Role.QUERY)
    assert len(server.requests) == 7


def test_a_batch_that_is_too_large_is_halved_and_later_batches_stay_smaller(server: Server, embedder: OpenAIEmbedder) -> None:
    server.before = lambda request, _n: error(413, "batch size > 32") if len(request["input"]) > 32 else None
    texts = [f"text {number}" for number in range(300)]
    np.testing.assert_allclose(embedder.embed(texts, Role.PASSAGE), expected(texts), atol=1e-6)
    refused = sum(len(request["input"]) > 32 for request in server.requests)
    assert refused == 3  # 128, and its halves of 64


def test_a_batch_of_many_tokens_is_sent_in_parts(server: Server, embedder: OpenAIEmbedder) -> None:
    embedder.embed(["word " * 10_000] * 12, Role.PASSAGE)
    assert [len(request["input"]) for request in server.requests] == [2] * 6


def test_texts_that_are_refused_cost_the_others_nothing_and_make_no_later_batch_smaller(
    server: Server, embedder: OpenAIEmbedder
) -> None:
    server.before = lambda request, _n: error(400, "content policy") if "bad" in request["input"] else None
    texts = ["bad", "a", "b", "bad", "c"]
    with pytest.raises(TextsRefused, match="content policy") as caught:
        embedder.embed(texts, Role.PASSAGE)
    rows = dict(zip(texts, caught.value.rows, strict=True))
    assert isinstance(rows.pop("bad"), PermanentError)
    np.testing.assert_allclose(np.stack([np.asarray(row) for row in rows.values()]), expected(list(rows)), atol=1e-6)
    sent = [text for request in server.requests for text in request["input"]]
    assert sent.count(ORDINARY) == 1, "asked once, before the first of them counted as refused"
    asked = len(server.requests)
    embedder.embed(["a"] * 128, Role.PASSAGE)
    assert len(server.requests) == asked + 1


def test_a_server_that_refuses_an_ordinary_sentence_too_is_a_setting_to_mend(server: Server, embedder: OpenAIEmbedder) -> None:
    server.before = lambda _r, _n: error(400, "invalid model")
    with pytest.raises(ConfigurationError, match=r"not even an ordinary sentence.*invalid model"):
        embedder.embed(["a"], Role.PASSAGE)
    assert len(server.requests) == 2


def test_a_text_longer_than_the_models_window_is_embedded_in_parts(server: Server, embedder: OpenAIEmbedder) -> None:
    message = "This model's maximum context length is 8192 tokens"
    server.before = lambda request, _n: error(400, message) if len(request["input"][0]) > 300 else None
    vector = embedder.embed(["lorem ipsum " * 100], Role.PASSAGE)
    assert vector.shape == (1, 8)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    sent = [request["input"][0] for request in server.requests if len(request["input"][0]) <= 300]
    assert "".join(sent) == "lorem ipsum " * 100


@pytest.mark.parametrize(
    ("status", "cure"), [(401, "DOCWELL_EMBEDDING_API_KEY"), (403, "DOCWELL_EMBEDDING_API_KEY"), (404, "DOCWELL_EMBEDDING_MODEL")]
)
def test_a_wrong_key_or_model_ends_at_once_with_the_setting_to_mend(
    server: Server, embedder: OpenAIEmbedder, status: int, cure: str
) -> None:
    server.before = lambda _r, _n: error(status, "no")
    with pytest.raises(ConfigurationError, match=cure):
        embedder.embed(["a"], Role.PASSAGE)
    assert len(server.requests) == 1


def test_an_error_in_an_answer_with_status_200_is_no_success(server: Server, embedder: OpenAIEmbedder) -> None:
    limited = (200, {}, {"error": {"message": "rate limit exceeded", "code": 429}})
    server.before = lambda _r, number: limited if number == 1 else None
    assert embedder.embed(["a"], Role.PASSAGE).shape == (1, 8)
    server.before = lambda _r, _n: limited
    with pytest.raises(TransientError, match="rate limit"):
        embedder.embed(["a"], Role.PASSAGE)
    server.before = lambda _r, _n: (200, {}, b"{")
    with pytest.raises(TransientError, match="cannot be read"):
        embedder.embed(["a"], Role.PASSAGE)


@pytest.mark.parametrize(
    "data",
    [
        [],
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 2, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": []}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": "???"}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [0.0]}],
        [{"index": 0, "embedding": [1.0]}, "text"],
    ],
)
def test_an_answer_that_does_not_fit_the_request_is_refused(server: Server, embedder: OpenAIEmbedder, data: Any) -> None:
    server.before = lambda _r, _n: (200, {}, {"data": data})
    with pytest.raises(PermanentError):
        embedder.embed(["a", "b"], Role.PASSAGE)


def test_a_batch_that_takes_too_long_is_halved(server: Server, slept: list[float]) -> None:
    never = threading.Event()

    def slow(request: dict[str, Any], _number: int) -> Answer | None:
        if len(request["input"]) > 2:
            never.wait(5)
        return None

    server.before = slow
    embedder = OpenAIEmbedder(base_url=server.url, api_key=None, model="small", timeout=0.5, sleep=slept.append)
    texts = ["a", "b", "c", "d"]
    np.testing.assert_allclose(embedder.embed(texts, Role.PASSAGE), expected(texts), atol=1e-6)
    assert slept == []
    never.set()
    embedder.close()


def test_a_server_that_is_not_there_is_transient_and_names_the_setting(slept: list[float]) -> None:
    embedder = OpenAIEmbedder(base_url=f"http://127.0.0.1:{free_port()}/v1", api_key=None, model="m", sleep=slept.append)
    with pytest.raises(TransientError, match="DOCWELL_EMBEDDING_BASE_URL"):
        embedder.embed(["a"], Role.QUERY)
    embedder.close()


def test_openai_itself_is_not_called_without_a_key() -> None:
    with pytest.raises(ConfigurationError, match="DOCWELL_EMBEDDING_API_KEY"):
        OpenAIEmbedder(base_url=None, api_key=None, model="text-embedding-3-small")
