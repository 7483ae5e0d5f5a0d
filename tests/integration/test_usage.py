"""The usage log: from a call of a tool over the stream into the database."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis
from mcp import Client
from pydantic import SecretStr

from infra.local.redis import EmbeddedRedis
from infra.local.up import process_environment
from ingest_worker.erasure import erase
from ingest_worker.usage import UsageKeeper, fold
from query_server.access import LOCAL
from query_server.http import make_app
from query_server.metrics import Metrics
from query_server.server import DocwellServer
from query_server.usage import Call, UsageLog
from shared.config import Settings
from shared.database import open_pool
from shared.errors import ConfigurationError
from shared.usage import FIELD, LONGEST_QUERY, MOST_PASSAGES, STREAM, UsageEvent, decode_event, encode_event, require_address
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.folders import eventually
from tests.listening import listening

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


class Counts(dict[str, int]):
    def __call__(self, fate: str, number: int) -> None:
        self[fate] = self.get(fate, 0) + number


@contextmanager
def logging_to(url: str, mode: str = "ids", **options: Any) -> Iterator[tuple[UsageLog, Counts]]:
    counts = Counts()
    log = UsageLog(lambda: Settings(usage_log=mode, usage_redis_url=SecretStr(url)), count=counts, **options)
    try:
        yield log, counts
    finally:
        log.close()


def _call(database: Database, log: UsageLog, tool: str, **arguments: Any) -> Any:
    async def main() -> Any:
        with anyio.fail_after(60):
            async with Client(DocwellServer(service, record=log.record)) as client:
                return await client.call_tool(tool, arguments)

    with serving(database) as service:
        return anyio.run(main)


def _events(broker: redis.Redis) -> list[UsageEvent]:
    return [decode_event(fields) for _, fields in broker.xrange(STREAM)]


def _event(*documents: uuid.UUID, kind: Any = "search", at: datetime | None = None, **facts: Any) -> UsageEvent:
    known: dict[str, Any] = {"principal": "ann", "outcome": "ok", "milliseconds": 3.0, **facts}
    at = at or datetime.now(UTC)
    return UsageEvent(kind=kind, at=at, passages=tuple((document, uuid.uuid4()) for document in documents), **known)


def _post(broker: redis.Redis, *events: UsageEvent) -> None:
    for event in events:
        broker.xadd(STREAM, {FIELD: encode_event(event)})


# --- the query server's side


def test_a_search_and_a_read_are_noted_by_ids_in_the_order_of_the_answer_without_the_text(
    database: Database, corpus: Corpus, usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    add(corpus, "a.md", text_chunk("Refunds are paid within five days."))
    add(corpus, "b.md", text_chunk("Refunds of tickets are refused."))
    with logging_to(usage_redis.usage_url) as (log, counts):
        found = _call(database, log, "search_documents", query="refunds", namespace="default").structured_content
        read = _call(database, log, "read_document", document_id=found["results"][1]["document_id"]).structured_content
        _call(database, log, "list_documents")
    search, reading = _events(broker)
    assert (search.kind, search.search_id, search.outcome, search.principal) == ("search", found["search_id"], "ok", "local")
    assert [(str(document), str(chunk)) for document, chunk in search.passages] == [
        (result["document_id"], result["chunk_id"]) for result in found["results"]
    ]
    assert len(search.passages) == 2
    assert search.milliseconds > 0
    assert search.namespace == "default"
    assert reading.kind == "read"
    assert [(str(document), str(chunk)) for document, chunk in reading.passages] == [
        (found["results"][1]["document_id"], piece["chunk_id"]) for piece in read["pieces"]
    ]
    assert counts == {"written": 2}
    assert search.query is None
    assert b"refund" not in b"".join(fields[FIELD] for _, fields in broker.xrange(STREAM)).lower()


def test_the_text_of_a_query_is_noted_where_the_owner_asks_for_it(
    database: Database, usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    with logging_to(usage_redis.usage_url, "queries") as (log, _):
        _call(database, log, "search_documents", query="who pays?\x00 " + "x" * LONGEST_QUERY)
    (event,) = _events(broker)
    assert event.query is not None
    assert event.query.startswith("who pays?")
    assert len(event.query) <= LONGEST_QUERY
    assert event.outcome == "index_empty"


def test_a_call_that_fails_is_noted_with_the_code_of_its_error(
    database: Database, usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    with logging_to(usage_redis.usage_url) as (log, _):
        _call(database, log, "search_documents", query="x", limit=0)
        _call(database, log, "read_document", document_id=str(uuid.UUID(int=0)))
    assert [(event.kind, event.outcome, event.passages) for event in _events(broker)] == [
        ("search", "bad_argument", ()),
        ("read", "not_found", ()),
    ]


def test_a_log_that_is_off_writes_nothing(database: Database, usage_redis: EmbeddedRedis, broker: redis.Redis) -> None:
    with logging_to(usage_redis.usage_url, "off") as (log, counts):
        assert not _call(database, log, "search_documents", query="x").is_error
    assert (broker.xlen(STREAM), counts) == (0, {})


def test_the_login_of_the_query_server_may_add_to_the_stream_and_nothing_else(
    usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    with redis.Redis.from_url(usage_redis.usage_url, protocol=2, driver_info=None) as client:
        client.xadd(STREAM, {"event": "x"})
        for forbidden in (
            lambda: client.xadd("docwell", {"event": "x"}),
            lambda: client.xrange(STREAM),
            lambda: client.delete(STREAM),
            lambda: client.lpush("docwell", "x"),
            lambda: client.publish("docwell", "x"),
            lambda: client.execute_command("CONFIG", "GET", "*"),
            lambda: client.eval("return 1", 0),
        ):
            with pytest.raises(redis.ResponseError, match="no permissions"):
                forbidden()
    assert broker.xlen(STREAM) == 1
    with pytest.raises(redis.AuthenticationError), redis.Redis.from_url(usage_redis.usage_url.replace("@", "0@")) as wrong:
        wrong.xadd(STREAM, {"event": "x"})


def test_a_redis_that_is_away_costs_no_answer_and_what_is_lost_is_counted(database: Database, tmp_path: Path) -> None:
    with logging_to(f"unix://{tmp_path}/none.sock") as (log, counts):
        assert not _call(database, log, "search_documents", query="x").is_error
    assert counts == {"dropped": 1}


def test_a_redis_that_hangs_delays_nobody_and_what_does_not_fit_is_dropped() -> None:
    looked_up, go_on = threading.Event(), threading.Event()

    def settings() -> Settings:
        looked_up.set()
        go_on.wait(30)
        return Settings(usage_log="off")

    counts = Counts()
    log = UsageLog(settings, count=counts, most=3)
    call = Call(tool="search_documents", arguments={}, answer=None, outcome="failed", seconds=0.0, principal=LOCAL)
    log.record(call)
    assert looked_up.wait(30)
    began = time.perf_counter()
    for _ in range(10):
        log.record(call)
    assert time.perf_counter() - began < 1
    assert counts == {"dropped": 7}
    go_on.set()
    log.close()


def test_an_answer_of_a_shape_that_nobody_knows_is_dropped_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts()
    log = UsageLog(Settings, count=counts)
    answer = {"results": [{"document_id": "no id"}]}
    log.record(Call(tool="search_documents", arguments={}, answer=answer, outcome="ok", seconds=0.0, principal=LOCAL))
    assert counts == {"dropped": 1}
    assert "search_documents" in caplog.text


def test_the_log_goes_on_when_redis_is_back(home: Path) -> None:
    server = EmbeddedRedis(home)
    call = Call(tool="search_documents", arguments={}, answer=None, outcome="failed", seconds=0.0, principal=LOCAL)
    with logging_to(server.usage_url) as (log, counts):
        log.record(call)
        eventually(lambda: counts.get("dropped") == 1)
        server.start()
        try:
            log.record(call)
            eventually(lambda: counts.get("written") == 1)
        finally:
            server.stop()


def test_what_was_written_and_dropped_stands_on_the_metrics(
    database: Database, usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    async def search(url: str) -> None:
        async with Client(f"{url}/mcp") as client:
            await client.call_tool("search_documents", {"query": "x"})

    metrics = Metrics()
    settings = Settings(usage_log="ids", usage_redis_url=SecretStr(usage_redis.usage_url))
    log = UsageLog(lambda: settings, count=metrics.usage)
    with (
        serving(database) as service,
        listening(make_app(service, settings, metrics=metrics, record=log.record)) as url,
    ):
        anyio.run(search, url)
    log.close()
    assert b'docwell_usage_events_total{result="written"} 1.0' in metrics.text()
    assert b'docwell_usage_events_total{result="dropped"} 0.0' in metrics.text()
    assert [event.principal for event in _events(broker)] == ["local"]


def test_a_log_without_a_place_to_go_to_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigurationError, match="DOCWELL_USAGE_REDIS_URL"):
        require_address(Settings(usage_log="ids"))
    require_address(Settings())


def test_only_the_mcp_server_is_told_where_the_log_goes_to() -> None:
    settings = Settings(usage_log="ids", usage_redis_url=SecretStr("unix://u:p@/x.sock"))
    assert process_environment(settings, {}, service="mcp")["DOCWELL_USAGE_REDIS_URL"] == "unix://u:p@/x.sock"
    assert "DOCWELL_USAGE_REDIS_URL" not in process_environment(settings, {}, service="worker")


# --- the ingest side's


def test_events_come_into_the_database_once_and_leave_the_stream(corpus: Corpus, broker: redis.Redis) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    _post(broker, _event(document, document), _event(document, kind="read"))
    held = broker.xrange(STREAM)
    assert fold(corpus.connection, broker) == 2
    assert broker.xlen(STREAM) == 0
    # Whoever died between commit and deletion finds them again.
    broker.delete(STREAM)
    for stream_id, fields in held:
        broker.xadd(STREAM, fields, id=stream_id)
    assert fold(corpus.connection, broker) == 2
    assert (corpus.count("usage_event"), corpus.count("usage_passage")) == (2, 3)
    assert broker.xlen(STREAM) == 0


def test_what_is_no_event_leaves_the_stream_and_stops_nothing(corpus: Corpus, broker: redis.Redis) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    good = encode_event(_event(document))
    for spoilt in (b"", b"[]", b"{}", good[:-9], good.replace(b"search", b"write"), good.replace(document.hex.encode(), b"x")):
        broker.xadd(STREAM, {FIELD: spoilt})
    broker.xadd(STREAM, {"other": "field"})
    _post(broker, _event(document, principal="a\x00b" * 500, search_id="\ud800"))
    assert fold(corpus.connection, broker) == 8
    assert (broker.xlen(STREAM), corpus.count("usage_event")) == (0, 1)


def test_an_event_stays_within_its_limits() -> None:
    many = _event(*(uuid.uuid4() for _ in range(1000)), query="ä" * 9999, principal="p" * 9999, namespace="No Name!")
    coded = encode_event(many)
    assert len(coded) < 12_000
    again = decode_event({FIELD: coded})
    assert (len(again.passages), len(again.query or ""), again.namespace) == (MOST_PASSAGES, LONGEST_QUERY, None)


def test_the_scheduler_folds_what_waits_and_removes_what_is_too_old(
    database: Database, corpus: Corpus, usage_redis: EmbeddedRedis, broker: redis.Redis
) -> None:
    document = corpus.add("a.md", [text_chunk("x")])
    old = _event(document, at=datetime.now(UTC) - timedelta(days=8))
    _post(broker, old, *[_event(document) for _ in range(1200)])
    settings = Settings(usage_days=7, redis_url=SecretStr(usage_redis.url))
    with open_pool(database.url, name="test", size=1) as pool:
        keeper = UsageKeeper(settings)
        keeper.tick(pool, until=time.monotonic() + 30)
        assert (broker.xlen(STREAM), corpus.count("usage_event")) == (0, 1201)
        keeper.close()
        keeper = UsageKeeper(settings)
        keeper.tick(pool, until=time.monotonic() + 30)
        keeper.close()
    assert (corpus.count("usage_event"), corpus.count("usage_passage")) == (1200, 1200)


def test_a_scheduler_whose_redis_is_away_goes_on(database: Database, tmp_path: Path) -> None:
    with open_pool(database.url, name="test", size=1) as pool:
        keeper = UsageKeeper(Settings(redis_url=SecretStr(f"unix://{tmp_path}/none.sock")))
        keeper.tick(pool, until=time.monotonic() + 30)
        keeper.tick(pool, until=time.monotonic() + 30)
        keeper.close()


def test_an_erased_document_is_named_nowhere_nor_the_question_that_led_to_it(corpus: Corpus, broker: redis.Redis) -> None:
    document = corpus.add("ann.md", [text_chunk("Ann owes money.")])
    other = corpus.add("other.md", [text_chunk("Other.")])
    _post(broker, _event(other, document, query="what owes ann"), _event(document, kind="read"), _event(other, query="other"))
    fold(corpus.connection, broker)
    receipt = erase(corpus.connection, document, max_bytes=1_000_000)
    assert receipt.removed.usage_rows == 2
    # What was on its way meanwhile.
    _post(broker, _event(other, document, query="ann again"), _event(document, kind="read"))
    fold(corpus.connection, broker)
    rows = corpus.connection.execute("SELECT document_id FROM docwell.usage_passage").fetchall()
    assert {row[0] for row in rows} == {other}
    found = corpus.connection.execute("SELECT kind, query FROM docwell.usage_event ORDER BY query").fetchall()
    assert found == [("search", "other"), ("search", None), ("search", None)]
