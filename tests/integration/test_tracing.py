"""Traces as a collector gets them: OTLP over HTTP, decoded from the protobuf of the specification."""

from __future__ import annotations

import gzip
import http.server
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.util._once import Once

from ingest_worker.jobs import worker as worker_module
from ingest_worker.jobs.worker import Worker
from query_server.http import make_app
from shared import tracing
from shared.config import Settings, load_settings
from shared.tracing import close_tracing, configure_tracing, wants_traces
from tests.api import running_api
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import open_corpus, text_chunk
from tests.faults.working import held_embedder, open_works
from tests.folders import eventually
from tests.listening import listening

ROOT = Path(__file__).parents[2]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "Refunds are paid within five days."


@dataclass(kw_only=True)
class Collector:
    """What a collector got, decoded."""

    url: str
    bodies: list[bytes] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    def spans(self) -> list[Any]:
        """All spans that were sent until now; those that wait are sent first."""
        close_tracing()
        return [
            span for request in self.requests for of in request.resource_spans for scope in of.scope_spans for span in scope.spans
        ]

    def services(self) -> set[str]:
        """The values of `service.name`."""
        return {
            attribute.value.string_value
            for request in self.requests
            for of in request.resource_spans
            for attribute in of.resource.attributes
            if attribute.key == "service.name"
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A receiver on the loopback, as the specification has it: `POST /v1/traces`, protobuf, gzip or not."""

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.bodies.append(body)
            found.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found = Collector(url=f"http://127.0.0.1:{server.server_address[1]}")
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def traced(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Traces of this process go to the collector. OpenTelemetry takes one provider a process: each test has the first."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    for module in [module for name, module in sys.modules.items() if name == "mcp.shared._otel"]:
        monkeypatch.setattr(module, "_tracer", trace.get_tracer("mcp-python-sdk"))
    configure_tracing("mcp")
    assert tracing.is_tracing()
    yield collector
    close_tracing()


def _attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def _below(spans: list[Any], parent: Any) -> list[Any]:
    return sorted((span for span in spans if span.parent_span_id == parent.span_id), key=lambda span: span.start_time_unix_nano)


def _ask(url: str, query: str, *, headers: dict[str, str] | None = None, **options: Any) -> Any:
    async def main() -> Any:
        with anyio.fail_after(60):
            async with (
                httpx2.AsyncClient(headers=headers or {}) as http,
                Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
            ):
                return await client.call_tool("search_documents", {"query": query}, **options)

    return anyio.run(main)


# --- what is traced


def test_a_search_has_its_stages_below_the_call_and_goes_on_with_the_trace_of_the_request(
    database: Database, traced: Collector
) -> None:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus, serving(database) as service:
        add(corpus, "secret-plan.md", text_chunk(SECRET))
        with listening(make_app(service, Settings())) as url:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            answer = httpx.post(
                f"{url}/mcp",
                json={**body, "params": {"name": "search_documents", "arguments": {"query": "refunds five days"}}},
                headers={"traceparent": TRACEPARENT, "accept": "application/json, text/event-stream"},
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["result"]["structuredContent"]["outcome"] == "ok"
    spans = traced.spans()
    (call,) = [span for span in spans if span.name == "tools/call search_documents"]
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == (TRACE, PARENT)
    assert _attributes(call)["gen_ai.tool.name"] == "search_documents"
    assert _attributes(call)["docwell.outcome"] == "ok"
    stages = _below(spans, call)
    names = [span.name for span in stages]
    assert names == ["encode", "snapshot", "scope", "keyword", "semantic", "fusion", "gather", "compose"]
    assert {span.trace_id.hex() for span in stages} == {TRACE}
    assert call.start_time_unix_nano <= stages[0].start_time_unix_nano
    assert stages[-1].end_time_unix_nano <= call.end_time_unix_nano
    assert all(before.end_time_unix_nano <= after.start_time_unix_nano for before, after in itertools.pairwise(stages))
    assert traced.services() == {"docwell-mcp"}


def test_no_text_of_a_query_or_a_document_and_no_path_leaves_with_a_trace(database: Database, traced: Collector) -> None:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus, serving(database) as service:
        add(corpus, "secret-plan.md", text_chunk(SECRET))
        with listening(make_app(service, Settings())) as url:
            assert _ask(url, "refunds five zebras").structured_content["results"]
            assert _ask(url, "").is_error
    with running_api(database.url) as api:
        api.client.put("/v1/documents/default/hidden-name.md", content=b"A hidden text.")
        api.client.get("/v1/documents", params={"path": "hidden-name*"})
    spans = traced.spans()
    assert {"tools/call search_documents", "keyword", "PUT /v1/documents/{namespace}/{path}"} <= {span.name for span in spans}
    for word in (b"zebras", b"Refunds", b"refunds", b"secret-plan", b"hidden-name", b"hidden text"):
        assert not any(word in body for body in traced.bodies), word


def test_a_call_that_fails_says_its_code(database: Database, traced: Collector) -> None:
    with serving(database) as service, open_corpus(database.url, dimension=DIMENSION, fingerprint="another") as corpus:
        add(corpus, "billing.md", text_chunk(SECRET))
        with listening(make_app(service, Settings())) as url:
            assert _ask(url, "refunds").is_error
    spans = traced.spans()
    (call,) = [span for span in spans if span.name == "tools/call search_documents" and span.kind == span.SPAN_KIND_SERVER]
    assert call.status.code == call.status.STATUS_CODE_ERROR
    assert _attributes(call)["docwell.outcome"] == "embedding_mismatch"
    assert [span.name for span in _below(spans, call)] == ["encode", "snapshot", "scope"]


def test_a_request_to_the_api_goes_on_with_its_trace_and_names_the_route(database: Database, traced: Collector) -> None:
    with running_api(database.url) as api:
        api.client.put("/v1/documents/default/a.md", content=b"text", headers={"traceparent": TRACEPARENT})
        api.client.get("/v1/status", headers={"traceparent": "nonsense"})
    spans = {span.name: span for span in traced.spans()}
    put = spans["PUT /v1/documents/{namespace}/{path}"]
    assert (put.trace_id.hex(), put.parent_span_id.hex()) == (TRACE, PARENT)
    assert _attributes(put)["http.response.status_code"] == 202
    assert spans["GET /v1/status"].parent_span_id == b""


def test_a_job_has_its_stages_below_it(
    database: Database, tmp_path: Path, redis_url: str, traced: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a batch has no time left for is handed back, and begins again.
    monkeypatch.setattr(worker_module, "_LONGEST_BATCH_SECONDS", 600.0)
    with held_embedder() as embedder, open_works(database, tmp_path, redis_url, embedder) as works:
        embedder.status, embedder.limits = 503, lambda texts: any("poison" in text for text in texts)
        works.attempts = 1
        works.ask(a="# A\n\nsome text", poison="this is poison")
        with closing(Worker(load_settings(works.environment)[0])) as worker:
            assert worker.work() == 2
    spans = traced.spans()
    jobs = {_attributes(span)["docwell.job.result"]: span for span in spans if span.name == "job ingest"}
    assert jobs.keys() == {"indexed", "dead"}
    indexed = [span.name for span in _below(spans, jobs["indexed"])]
    assert [name for name in indexed if name != "embed"] == ["read", "parse", "chunk", "publish"]
    assert "embed" in indexed
    assert [span.name for span in _below(spans, jobs["dead"])][:3] == ["read", "parse", "chunk"]
    assert _attributes(jobs["dead"])["error.type"] == "embedding_unavailable"
    assert jobs["dead"].status.code == jobs["dead"].status.STATUS_CODE_ERROR
    assert jobs["indexed"].trace_id != jobs["dead"].trace_id
    for job in jobs.values():
        parts = _below(spans, job)
        assert job.start_time_unix_nano <= parts[0].start_time_unix_nano
        assert parts[-1].end_time_unix_nano <= job.end_time_unix_nano


def test_the_processes_of_a_worker_send_their_spans(
    database: Database, tmp_path: Path, redis_url: str, collector: Collector
) -> None:
    with held_embedder() as embedder, open_works(database, tmp_path, redis_url, embedder) as works:
        works.environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with works.worker():
            works.ask(a="some text")
            eventually(lambda: any(span.name == "job ingest" for span in collector.spans()))
    assert collector.services() == {"docwell-worker"}


# --- when nothing is


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_SERVICE_NAME": "docwell"}, False),
    ],
)
def test_the_variables_of_the_specification_decide(environment: dict[str, str], wanted: bool) -> None:
    assert wants_traces(environment) is wanted


def _python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, cwd=ROOT, capture_output=True, text=True, timeout=60
    )


_USE = """
import sys, time
from shared.tracing import *
from shared.tracing import emit_stages
configure_tracing("test")
emit("work", began=time.perf_counter(), ended=time.perf_counter(), stages=[Stage(name="part", began=0.0, ended=1.0)])
print(is_tracing(), sorted(name for name in sys.modules if name.startswith(("opentelemetry", "google.protobuf", "requests"))))
"""


def test_nothing_of_opentelemetry_is_imported_when_it_is_off() -> None:
    done = _python(_USE)
    assert (done.stdout, done.returncode) == ("False []\n", 0), done.stderr


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("query_server.http, query_server.server", ("opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf")),
        # redis-py loads the SDK's metrics wherever it finds them.
        (
            "ingest_worker.api.app, ingest_worker.api.serve",
            ("opentelemetry.sdk.trace", "opentelemetry.exporter", "google.protobuf"),
        ),
    ],
)
def test_a_server_loads_nothing_that_makes_or_sends_spans_when_it_is_off(modules: str, absent: tuple[str, ...]) -> None:
    done = _python(f"import sys\nimport {modules}\nprint([name for name in sys.modules if name.startswith({absent})])")
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_process_that_ends_sends_what_is_left(collector: Collector) -> None:
    done = _python(_USE, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME="mine")
    assert done.returncode == 0, done.stderr
    assert [span.name for span in collector.spans()] == ["part", "work"]
    assert collector.services() == {"mine"}


def test_a_collector_that_is_away_holds_no_process_up() -> None:
    done = _python(
        f"import time\nbegan = time.perf_counter()\n{_USE}\nclose_tracing()\nprint(time.perf_counter() - began < 15)",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "True"), done.stderr


def test_a_protocol_that_is_not_spoken_turns_traces_off_and_says_so() -> None:
    done = _python(_USE, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert done.returncode == 0
    assert "False []" in done.stdout
    assert "traces_off" in done.stdout + done.stderr
