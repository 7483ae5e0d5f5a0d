"""Prefixes, Azure, budgets and probes, against a small server on loopback and the session's Redis."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pytest

from shared.config import Settings, load_settings
from shared.embedding.endpoint import endpoint_from_json, endpoint_of, key_for
from shared.embedding.limiter import SharedLimiter
from shared.embedding.open import open_embedder, open_endpoint
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.embedding.probe import from_json, is_same_model, take_probes, to_json
from shared.embedding.protocol import Role
from shared.errors import Outage
from tests.v1_embeddings import Server, error, expected


def settings(server: Server, **more: str) -> Settings:
    named = {"DOCWELL_EMBEDDING_PROVIDER": "openai", "DOCWELL_EMBEDDING_MODEL": "small", "DOCWELL_EMBEDDING_BASE_URL": server.url}
    found, _ = load_settings({**named, **more})
    return found


def test_each_role_has_its_prefix_and_both_are_part_of_the_models_identity(server: Server) -> None:
    bare = open_embedder(settings(server))
    prefixed = open_embedder(
        settings(server, DOCWELL_EMBEDDING_QUERY_PREFIX="query: ", DOCWELL_EMBEDDING_PASSAGE_PREFIX="passage: ")
    )
    assert np.allclose(prefixed.embed(["a"], Role.QUERY), expected(["query: a"]), atol=1e-6)
    assert np.allclose(prefixed.embed(["a", " "], Role.PASSAGE), expected(["passage: a", "passage: ."]), atol=1e-6)
    assert prefixed.fingerprint.key != bare.fingerprint.key
    other = open_embedder(settings(server, DOCWELL_EMBEDDING_QUERY_PREFIX="passage: "))
    assert other.fingerprint.key not in {bare.fingerprint.key, prefixed.fingerprint.key}


def test_every_part_of_a_text_that_is_too_long_has_the_prefix(server: Server) -> None:
    server.before = lambda request, _number: (
        error(400, "maximum context length exceeded") if max(map(len, request["input"])) > 300 else None
    )
    embedder = OpenAIEmbedder(base_url=server.url, api_key=None, model="small", passage_prefix="passage: ")
    embedder.embed(["word " * 200], Role.PASSAGE)
    accepted = [text for request in server.requests for text in request["input"] if len(text) <= 300]
    assert len(accepted) > 2
    assert all(text.startswith("passage: ") for text in accepted)
    embedder.close()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/openai", "/openai/deployments/small/embeddings"),
        ("/openai/deployments/ours", "/openai/deployments/ours/embeddings"),
    ],
)
def test_azure_is_asked_with_its_version_deployment_and_header(server: Server, path: str, asked: str) -> None:
    embedder = open_embedder(
        settings(
            server,
            DOCWELL_EMBEDDING_BASE_URL=server.url.removesuffix("/v1") + path,
            DOCWELL_EMBEDDING_API_VERSION="2024-10-21",
            DOCWELL_EMBEDDING_API_KEY="azure-key",
        )
    )
    assert embedder.embed(["a"], Role.PASSAGE).shape == (1, 8)
    assert server.paths == [f"{asked}?api-version=2024-10-21"]
    assert server.headers[0]["api-key"] == "azure-key"
    assert "authorization" not in server.headers[0]


def limiter(
    redis_url: str | None, slept: list[float], name: str, *, requests: int | None = 60, tokens: int | None = None
) -> SharedLimiter:
    return SharedLimiter(
        name, requests_per_minute=requests, tokens_per_minute=tokens, redis_url=redis_url, sleep=slept.append, clock=lambda: 100.0
    )


def test_all_processes_share_one_budget(redis_url: str) -> None:
    slept: list[float] = []
    name = str(uuid4())
    workers = [limiter(redis_url, slept, name) for _ in range(3)]
    for _ in range(5):
        for worker in workers:
            worker.take(1, patient=True)
    assert len([pause for pause in slept if pause > 0]) >= 3  # a minute's budget is 60: ten at once, the others one a second
    assert max(slept) > 3
    limiter(redis_url, slept, str(uuid4())).take(1, patient=True)
    assert slept[-1] > 3  # another model has a budget of its own: nobody slept for it


def test_without_redis_each_process_keeps_to_the_budget_by_itself() -> None:
    slept: list[float] = []
    alone = limiter("redis://127.0.0.1:9/0", slept, "model", requests=None, tokens=6000)
    alone.take(1500, patient=True)
    alone.take(1, patient=True)
    assert slept == [pytest.approx(5.0)]


def test_who_searches_does_not_wait_and_ingest_waits_for_it(redis_url: str) -> None:
    slept: list[float] = []
    shared = limiter(redis_url, slept, str(uuid4()), requests=6)
    for _ in range(4):
        shared.take(1, patient=False)
    assert slept == []
    shared.take(1, patient=True)
    assert slept == [pytest.approx(30.0, abs=2)]


def test_a_wait_too_long_puts_the_job_back_and_takes_nothing(redis_url: str) -> None:
    slept: list[float] = []
    shared = limiter(redis_url, slept, str(uuid4()), requests=None, tokens=60)
    shared.take(600, patient=True)
    for _ in range(2):
        with pytest.raises(Outage) as full:
            shared.take(1, patient=True)
        assert full.value.retry_after == pytest.approx(600 - 10 - 60, abs=3)
    assert slept == []


def test_a_pause_that_the_service_asks_for_holds_for_all_processes(server: Server, redis_url: str) -> None:
    slept: list[float] = []
    name = str(uuid4())
    server.before = lambda _request, number: error(429, "slow down", retry_after="3") if number == 1 else None
    asking = OpenAIEmbedder(
        base_url=server.url, api_key=None, model="small", limiter=limiter(redis_url, [], name), sleep=lambda _seconds: None
    )
    asking.embed(["a"], Role.PASSAGE)
    limiter(redis_url, slept, name).take(1, patient=True)
    assert slept == [pytest.approx(3.0, abs=1.0)]
    asking.close()


def test_a_long_pause_is_waited_out_by_jobs_and_not_by_workers(redis_url: str) -> None:
    name = str(uuid4())
    limiter(redis_url, [], name).hold(40)
    other = limiter(redis_url, [], name)
    with pytest.raises(Outage, match="has asked for a pause") as caught:
        other.take(1, patient=True)
    assert caught.value.retry_after == pytest.approx(40.0, abs=2.0)
    other.take(1, patient=False)


def test_the_words_of_special_tokens_are_text_like_any_other(server: Server) -> None:
    embedder = open_embedder(settings(server))
    texts = ["before <|endoftext|> after", "</s> and <s>"]
    assert np.allclose(embedder.embed(texts, Role.PASSAGE), expected(texts), atol=1e-6)


def test_a_model_under_another_name_is_known_by_its_vectors_and_another_under_the_same_name_too(server: Server) -> None:
    stored = from_json(to_json(take_probes(open_embedder(settings(server)))))
    renamed = open_embedder(settings(server, DOCWELL_EMBEDDING_MODEL="small-2026"))
    assert is_same_model(renamed, stored)
    server.dimension = 16
    assert not is_same_model(open_embedder(settings(server)), stored)
    server.dimension = 8
    prefixed = open_embedder(settings(server, DOCWELL_EMBEDDING_PASSAGE_PREFIX="passage: "))
    assert not is_same_model(prefixed, stored)


def test_a_key_goes_to_no_other_address_than_the_one_it_was_set_for(server: Server) -> None:
    own = settings(server, DOCWELL_EMBEDDING_API_KEY="for-the-old-one")
    elsewhere = endpoint_from_json({"provider": "openai", "model": "large", "base_url": "https://api.example.com/v1"})
    beside = endpoint_from_json({"provider": "openai", "model": "large", "base_url": server.url})
    assert key_for(endpoint_of(own), own) == key_for(beside, own) == "for-the-old-one"
    assert key_for(elsewhere, own) is None
    both = settings(server, DOCWELL_EMBEDDING_API_KEY="for-the-old-one", DOCWELL_REINDEX_API_KEY="for-the-new-one")
    assert key_for(endpoint_of(both), both) == "for-the-old-one"
    assert key_for(elsewhere, both) == key_for(beside, both) == "for-the-new-one"


def test_what_a_space_remembers_of_its_model_holds_no_secret_and_opens_it_again(server: Server) -> None:
    address = server.url.replace("//", "//somebody:secret@")
    found = settings(server, DOCWELL_EMBEDDING_BASE_URL=address, DOCWELL_EMBEDDING_DIMENSION="4")
    stored = endpoint_of(found).to_json()
    assert "secret" not in str(stored)
    again = open_endpoint(endpoint_from_json(stored), settings(server, DOCWELL_EMBEDDING_MODEL="other"))
    assert again.embed(["a"], Role.QUERY).shape == (1, 4)
