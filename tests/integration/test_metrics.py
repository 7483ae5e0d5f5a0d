"""The numbers on the wire: that they are those of docs/metrics.md, and that they count what happens."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from ingest_worker.jobs import worker as worker_module
from ingest_worker.jobs.worker import Worker
from ingest_worker.work import Work
from query_server.http import make_app
from query_server.service import SearchService
from shared.config import Settings, load_settings
from shared.errors import ServiceUnavailable
from tests.api import running_api
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.faults.working import HeldEmbedder, Works, held_embedder, open_works
from tests.listening import listening

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `(?P<name>docwell_\w+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\|", re.MULTILINE)


def documented(section: str | None = None) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric of docs/metrics.md, or of the sections that begin so."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    parts = [part for part in text.split("\n## ") if section is None or part.startswith((section, "Both"))]
    rows = [row for part in parts for row in _ROW.finditer(part)]
    return {row["name"]: (row["type"], frozenset(re.findall(r"`(\w+)`", row["labels"]))) for row in rows}


def on_the_wire(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each metric of an exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels if label != "le")
        found[name] = (family.type, labels)
    return found


def values(text: str) -> dict[str, float]:
    """Each sample's value by its name and labels, as they are written: `name{a="b"}`."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def _agree(text: str, section: str) -> None:
    wire, page = on_the_wire(text), documented(section)
    assert wire.keys() == page.keys()
    for name, (kind, labels) in wire.items():
        assert kind == page[name][0], name
        assert labels <= page[name][1], name


# --- the MCP server


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        add(found, "billing.md", text_chunk("Refunds are paid within five days."))
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


def _call(url: str, *calls: dict[str, Any]) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(f"{url}/mcp") as client:
                for arguments in calls:
                    await client.call_tool("search_documents", arguments)

    anyio.run(main)


def test_the_metrics_of_the_mcp_server_are_those_of_the_page_and_count_searches(corpus: Corpus, service: SearchService) -> None:
    with listening(make_app(service, Settings())) as url:
        asked = {"query": "refunds"}
        _call(url, asked, asked, {"query": "refunds", "namespace": "none"}, {"query": ""})
        _call(url, {"query": "refunds", "mode": "keyword"}, {"query": "zebra crossing", "mode": "keyword"})
        assert httpx.get(f"{url}/metrics", headers={"host": "evil.example"}).status_code == 421
        text = httpx.get(f"{url}/metrics").text
    _agree(text, "The MCP server")
    found = values(text)
    counted = {name: value for name, value in found.items() if name.startswith("docwell_searches_total")}
    assert counted == {
        'docwell_searches_total{mode="hybrid",outcome="ok"}': 2,
        'docwell_searches_total{mode="hybrid",outcome="no_match"}': 0,
        'docwell_searches_total{mode="hybrid",outcome="index_empty"}': 1,
        'docwell_searches_total{mode="hybrid",outcome="failed"}': 0,
        'docwell_searches_total{mode="keyword",outcome="ok"}': 1,
        'docwell_searches_total{mode="keyword",outcome="no_match"}': 1,
    }
    assert found['docwell_mcp_calls_total{outcome="bad_argument",tool="search_documents"}'] == 1
    assert found['docwell_mcp_refused_total{code="host_not_allowed"}'] == 1
    assert found['docwell_search_cache_total{cache="ranking",result="hit"}'] == 1
    assert found['docwell_search_cache_total{cache="vector",result="hit"}'] == 2
    for stage, count in {"encode": 3, "snapshot": 5, "keyword": 4, "semantic": 2, "gather": 5, "compose": 5}.items():
        assert found[f'docwell_search_stage_seconds_count{{stage="{stage}"}}'] == count, stage
    assert found["docwell_pool_requests_total"] >= 6
    assert found["docwell_pool_connections_used"] == 0


def test_a_search_that_fails_is_counted_with_the_stages_that_it_finished(database: Database) -> None:
    with serving(database) as service, open_corpus(database.url, dimension=DIMENSION, fingerprint="another model") as corpus:
        add(corpus, "billing.md", text_chunk("Refunds are paid within five days."))
        with listening(make_app(service, Settings())) as url:
            _call(url, {"query": "refunds"})
            found = values(httpx.get(f"{url}/metrics").text)
    assert found['docwell_searches_total{mode="hybrid",outcome="failed"}'] == 1
    assert found['docwell_mcp_calls_total{outcome="embedding_mismatch",tool="search_documents"}'] == 1
    assert found['docwell_search_stage_seconds_count{stage="scope"}'] == 1
    assert 'docwell_search_stage_seconds_count{stage="compose"}' not in found


def test_an_embedder_that_is_away_shows_in_the_warnings(database: Database, corpus: Corpus) -> None:
    class Away:
        fingerprint = MODEL

        def embed(self, texts: object, role: object) -> Any:
            raise ServiceUnavailable("The embedder is away.", code="embedder_unavailable")

    with serving(database, embedder=Away) as service, listening(make_app(service, Settings())) as url:
        _call(url, {"query": "refunds"})
        found = values(httpx.get(f"{url}/metrics").text)
    assert found['docwell_search_warnings_total{code="keyword_only"}'] == 1
    assert found["docwell_searches_warming_total"] == 0


def test_a_search_while_the_model_loads_is_counted_as_warming(database: Database, corpus: Corpus) -> None:
    loaded = threading.Event()

    def load() -> Any:
        loaded.wait(60)
        raise ServiceUnavailable("Never mind.")

    try:
        with serving(database, embedder=load, patient=False) as service, listening(make_app(service, Settings())) as url:
            _call(url, {"query": "refunds"})
            found = values(httpx.get(f"{url}/metrics").text)
    finally:
        loaded.set()
    assert found["docwell_searches_warming_total"] == 1


def test_whoever_asks_too_often_or_without_a_token_is_counted(service: SearchService) -> None:
    settings = Settings(mcp_tokens=(SecretStr("one"), SecretStr("two")), mcp_calls_per_minute=6)
    with listening(make_app(service, settings)) as url:
        assert httpx.get(f"{url}/metrics").status_code == 401
        answers = [httpx.get(f"{url}/metrics", headers={"Authorization": "Bearer one"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        text = answers[0].text
    assert values(text)['docwell_mcp_refused_total{code="unauthorized"}'] == 1


# --- the ingest side


@pytest.fixture
def embedder() -> Iterator[HeldEmbedder]:
    with held_embedder() as found:
        yield found


@pytest.fixture
def works(database: Database, tmp_path: Path, redis_url: str, embedder: HeldEmbedder) -> Iterator[Works]:
    with open_works(database, tmp_path, redis_url, embedder, DOCWELL_JOB_ATTEMPTS="1") as found:
        found.attempts = 1
        yield found


def test_the_metrics_of_the_ingest_side_are_those_of_the_page_and_count_what_workers_did(
    database: Database, works: Works, embedder: HeldEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a batch has no time left for is handed back, and its file read again.
    monkeypatch.setattr(worker_module, "_LONGEST_BATCH_SECONDS", 600.0)
    embedder.status, embedder.limits = 503, lambda texts: any("poison" in text for text in texts)
    works.ask(a="# A\n\nsome text", b="# B\n\nanother text", poison="this is poison", empty="")
    with closing(Worker(load_settings(works.environment)[0])) as worker:
        assert worker.work() == 4
    works.ask(late="it waits")
    works.connection.execute("UPDATE docwell.source SET held_deletes = 3, created_at = now() - interval '1 hour'")
    with running_api(database.url) as api:
        api.client.get("/v1/nothing")
        api.client.request("BREW", "/v1/nothing")
        text = api.client.get("/metrics").text
    _agree(text, "The ingest API")
    found = values(text)
    assert found['docwell_jobs_finished_total{reason="",result="indexed"}'] == 2
    assert found['docwell_jobs_finished_total{reason="",result="skipped"}'] == 1
    assert found['docwell_jobs_finished_total{reason="embedding_unavailable",result="dead"}'] == 1
    assert found['docwell_dead_letters{reason="embedding_unavailable"}'] == 1
    assert found['docwell_document_reasons{reason="empty",state="skipped"}'] == 1
    assert found['docwell_queue_jobs{source_type="folder",state="queued"}'] == 1
    assert found['docwell_queue_jobs{source_type="folder",state="running"}'] == 0
    assert found["docwell_embedding_texts_total"] == 2
    assert found["docwell_embedding_tokens_total"] > 4
    assert found["docwell_embedding_requests_total"] >= 2
    assert found['docwell_job_stage_seconds_count{stage="read"}'] == 4
    assert found['docwell_job_stage_seconds_count{stage="parse"}'] == 4
    assert found['docwell_job_stage_seconds_count{stage="publish"}'] >= 1
    assert 0 < found['docwell_job_stage_seconds_sum{stage="publish"}'] < 60
    assert found['docwell_job_stage_seconds_bucket{le="+Inf",stage="read"}'] == 4
    assert found['docwell_held_deletes{source="inbox"}'] == 3
    assert found['docwell_sweep_age_seconds{source="inbox"}'] == pytest.approx(3600, abs=60)
    assert found['docwell_source_watched{source="inbox"}'] == 0
    assert found['docwell_api_requests_total{method="GET",status="404"}'] == 1
    assert found['docwell_api_requests_total{method="other",status="404"}'] == 1
    assert found["docwell_disk_bytes"] >= found["docwell_disk_free_bytes"] >= 0


def test_totals_of_workers_add_up_and_outlive_them(database: Database, works: Works) -> None:
    for name in ("one", "two"):
        works.ask(**{name: f"text number {name}"})
        with closing(Worker(load_settings(works.environment)[0])) as worker:
            assert worker.work() == 1
    with running_api(database.url) as api:
        found = values(api.client.get("/metrics").text)
    assert found['docwell_jobs_finished_total{reason="",result="indexed"}'] == 2
    assert found['docwell_job_stage_seconds_count{stage="publish"}'] == 2


def test_a_document_on_which_the_parser_is_stopped_is_counted_with_the_reason(
    database: Database, tmp_path: Path, redis_url: str, embedder: HeldEmbedder
) -> None:
    with open_works(database, tmp_path, redis_url, embedder, DOCWELL_PARSE_TIMEOUT_SECONDS="0.001") as works:
        works.ask(long="a word and another. " * 200_000)
        with closing(Worker(load_settings(works.environment)[0])) as worker:
            assert worker.work() == 1
    with running_api(database.url) as api:
        found = values(api.client.get("/metrics").text)
    assert found['docwell_parser_stops_total{reason="parser_timeout"}'] == 1


def test_what_could_not_be_written_down_is_written_down_next_time() -> None:
    work = Work()
    work.count("embedding_texts", by=3)
    taken = work.take()
    assert work.take() == {}
    work.count("embedding_texts")
    work.put_back(taken)
    assert work.take() == {("embedding_texts", "", ""): 4.0}


def test_a_database_without_a_source_shows_every_metric_with_nothing_in_it(database: Database) -> None:
    with running_api(database.url) as api:
        text = api.client.get("/metrics").text
    assert on_the_wire(text).keys() == documented("The ingest API").keys()
    assert values(text)["docwell_embedding_tokens_total"] == 0
    assert all(math.isfinite(value) for value in values(text).values())
