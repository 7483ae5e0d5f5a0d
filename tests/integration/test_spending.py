"""What questions cost: from the query server over the stream into the ledger, once, and told by commands and metrics."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr
from typer.testing import CliRunner

from infra.cli import make_app
from infra.local.redis import EmbeddedRedis
from ingest_worker.catalogue import ledger
from ingest_worker.usage import fold
from query_server.assembly import open_service
from query_server.metrics import Metrics
from query_server.spending import QuerySpending
from shared.config import Settings
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Role, Vectors
from shared.prices import Price, TokenUse
from shared.spending import FIELD, Spent, decode_spent, encode_spent
from shared.usage import STREAM, Unreadable
from tests.api import running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.folders import eventually
from tests.v1_embeddings import embeddings_server

PRICES = {"m": Price(input=Decimal("0.02"))}


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


class Paid:
    """An embedder whose every question costs five tokens."""

    fingerprint = Fingerprint(provider="openai", model="m", dimension=8)

    def embed(self, texts: Any, role: Role) -> Vectors:
        raise NotImplementedError

    def take_use(self) -> TokenUse:
        return TokenUse(calls=1, input_tokens=5)


def spending(url: str, **options: Any) -> QuerySpending:
    settings = Settings(usage_redis_url=SecretStr(url))
    return QuerySpending(lambda: settings, **{"every_seconds": 0.01, "pause_seconds": 0.01, **options})


def spent(**facts: Any) -> Spent:
    known = {"batch_id": uuid.uuid4(), "day": datetime.now(UTC).date(), "model": "m", "use": TokenUse(calls=1, input_tokens=5)}
    return Spent(**{**known, **facts})


def test_questions_are_added_up_and_told_together_by_a_login_that_may_only_add(
    usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    counts: list[tuple[str, TokenUse]] = []
    told = spending(usage_redis.usage_url, every_seconds=60.0, count=lambda model, use: counts.append((model, use)))
    for _ in range(20):
        told.note(Paid())
    assert broker.xlen(STREAM) == 0
    assert told.untold == TokenUse(calls=20, input_tokens=100)
    told.close()
    entries: Any = broker.xrange(STREAM)
    ((_, entry),) = entries
    found = decode_spent(entry)
    assert (found.model, found.use) == ("m", TokenUse(calls=20, input_tokens=100))
    assert counts == [("m", TokenUse(calls=1, input_tokens=5))] * 20
    assert told.untold == TokenUse()


def test_what_cannot_be_told_waits_and_is_counted_and_said_when_the_process_ends(
    usage_redis: EmbeddedRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = spending(f"unix://{tmp_path}/none.sock")
    metrics = Metrics(untold=lambda: told.untold)
    told.note(Paid())
    told.note(Paid())
    eventually(lambda: "waits to be told" in caplog.text)
    metrics.spent("m", TokenUse(calls=2, input_tokens=10))
    text = metrics.text().decode()
    assert "docwell_query_embedding_untold_calls 2.0" in text
    assert 'docwell_query_embedding_tokens_total{model="m"} 10.0' in text
    told.close()
    assert "2 calls with 10 tokens for embeddings of questions are missing in the ledger" in caplog.text


def test_a_batch_that_was_told_twice_counts_once_on_the_day_when_it_was_asked(corpus: Corpus, broker: redis.Redis) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    one, other, late = spent(), spent(model="unpriced"), spent(day=yesterday)
    for told in (one, one, other, late, spent(day=date(2999, 1, 1))):
        broker.xadd(STREAM, {FIELD: encode_spent(told)})
    broker.xadd(STREAM, {FIELD: b'{"calls": -1}'})
    assert fold(corpus.connection, broker, PRICES) == 6
    broker.xadd(STREAM, {FIELD: encode_spent(one)})
    fold(corpus.connection, broker, PRICES)
    assert broker.xlen(STREAM) == 0
    rows = ledger.totals_by_day(corpus.connection, days=2)
    assert [(row.day == yesterday, row.source, row.kind, row.model, row.calls, row.unpriced_calls) for row in rows] == [
        (False, "", "query_embedding", "m", 2, 0),
        (False, "", "query_embedding", "unpriced", 1, 1),
        (True, "", "query_embedding", "m", 1, 0),
    ]
    assert rows[0].money == 10 * Decimal("0.02") / 1_000_000


@pytest.mark.parametrize("entry", [b"", b"[]", b'{"batch": "x"}', b"\xff"])
def test_an_entry_that_nobody_of_ours_wrote_is_refused(entry: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_spent({FIELD: entry})


def test_a_search_costs_what_the_service_counted_and_status_and_metrics_show_it(
    database: Database, usage_redis: EmbeddedRedis, broker: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embeddings_server() as model, open_corpus(database.url, fingerprint="x") as corpus:
        key = Fingerprint(provider="openai", model="m", dimension=8).key
        corpus.connection.execute("UPDATE docwell.embedding_space SET fingerprint = %s, provider = 'openai', model = 'm'", (key,))
        corpus.add("a.md", [text_chunk("Refunds are paid within five days.")])
        settings = Settings(
            query_database_url=SecretStr(database.reader_url),
            usage_redis_url=SecretStr(usage_redis.usage_url),
            embedding_provider="openai",
            embedding_base_url=model.url,
            embedding_model="m",
        )
        with open_service(settings) as service:
            service.search("refunds")
            service.search("refunds")  # remembered: it costs nothing
        calls = len(model.requests)
        assert calls >= 1
        fold(corpus.connection, broker, PRICES)
        (row,) = ledger.totals_by_kind(corpus.connection, days=1)
        assert (row.kind, row.calls, row.input_tokens) == ("query_embedding", calls, calls)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    shown = CliRunner().invoke(make_app(), ["status", "--json"])
    assert [(one["kind"], one["model"]) for one in json.loads(shown.stdout)["costs"]] == [("query_embedding", "m")]
    with running_api(database.url) as api:
        text = api.client.get("/metrics").text
    assert f'docwell_spend_today_calls{{kind="query_embedding",model="m"}} {float(calls)}' in text
