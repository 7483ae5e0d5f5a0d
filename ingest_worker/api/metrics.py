"""The numbers of the ingest side for Prometheus: of this API, and of all that the database knows. docs/metrics.md names them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingest_worker import work
from ingest_worker.api import remote_metrics
from ingest_worker.catalogue.measures import Measures, read_measures
from ingest_worker.catalogue.overview import SourceRow
from ingest_worker.catalogue.remote_measures import read_remote_measures
from ingest_worker.catalogue.sources import MANUAL, PUSH
from shared.database import Pool
from shared.pool_metrics import PoolCollector
from shared.tracing import continued, emit

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

Totals: TypeAlias = Mapping[tuple[str, str, str], float]


class Metrics:
    """The numbers of one API."""

    def __init__(self, pool: Pool, home: Path) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series of each, which nobody asks for
        self._registry = CollectorRegistry()
        self._requests = Counter("docwell_api_requests", "Requests.", ["method", "status"], registry=self._registry)
        self._seconds = Histogram(
            "docwell_api_request_seconds", "Duration of a request.", ["method"], buckets=_BUCKETS, registry=self._registry
        )
        self._registry.register(PoolCollector(lambda: pool))
        self._registry.register(_StateCollector(pool))
        self._registry.register(_DiskCollector(home))

    def observe(self, method: str, status: int, seconds: float) -> None:
        """Count a request."""
        method = method if method in _METHODS else "other"
        self._requests.labels(method, str(status)).inc()
        self._seconds.labels(method).observe(seconds)

    def text(self) -> bytes:
        """All of them in Prometheus' text format, read at this moment."""
        return generate_latest(self._registry)


class Watched:
    """ASGI middleware in front of all others: counts and times requests, and tells of them to whoever traces."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with continued(Headers(scope=scope)):
            try:
                await self._app(scope, receive, sending)
            finally:
                ended = time.perf_counter()
                self._metrics.observe(scope["method"], status, ended - began)
                route = getattr(scope.get("route"), "path_format", "")
                emit(
                    f"{scope['method']} {route}".rstrip(),
                    began=began,
                    ended=ended,
                    # The route's pattern and not the path, which names a document.
                    attributes={
                        "http.request.method": scope["method"],
                        "http.response.status_code": status,
                        **({"http.route": route} if route else {}),
                    },
                    error=str(status) if status >= 500 else None,
                )


class _DiskCollector(Collector):
    def __init__(self, home: Path) -> None:
        self._home = home

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            total, _, free = shutil.disk_usage(self._home)
        except OSError:  # it is made with the first process that needs it
            total, free = 0, 0
        yield GaugeMetricFamily("docwell_disk_bytes", "Size of the file system that DOCWELL_HOME lies on.", value=total)
        yield GaugeMetricFamily("docwell_disk_free_bytes", "What is free of it.", value=free)


class _StateCollector(Collector):
    """Reads the state once for each scrape."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def describe(self) -> list[Metric]:
        """Nothing: registering reads no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self._pool.connection() as connection:
            found = read_measures(connection)
            remotes = read_remote_measures(connection)
        yield from _documents(found)
        yield from _queue(found)
        yield from _deliveries(found)
        yield from _spent(found)
        yield from _batches(found)
        yield from _sources(found)
        yield from remote_metrics.collect(remotes)
        yield from _work(found.totals)


def _documents(found: Measures) -> Iterator[Metric]:
    status = found.status
    yield _gauge("docwell_documents", "Documents by state.", ["state"], _keyed(status.documents.by_state))
    yield _gauge("docwell_document_reasons", "Documents that have a reason code.", ["state", "reason"], found.reasons)
    searchable = status.documents.searchable
    yield GaugeMetricFamily("docwell_documents_searchable", "Documents that searches find.", value=searchable)
    chunks = {(one.name,): one.chunks for one in status.namespaces}
    yield _gauge("docwell_chunks", "Searchable chunks by namespace.", ["namespace"], chunks)
    yield GaugeMetricFamily("docwell_database_bytes", "Size of the database.", value=status.database_bytes)


def _queue(found: Measures) -> Iterator[Metric]:
    jobs = found.status.jobs
    yield _gauge("docwell_jobs", "Jobs by state.", ["state"], _keyed(jobs.by_state))
    yield GaugeMetricFamily("docwell_jobs_due", "Jobs that could run now.", value=jobs.due)
    oldest = jobs.oldest_due_seconds or 0.0
    yield GaugeMetricFamily("docwell_jobs_oldest_due_seconds", "How long the job that is due longest has waited.", value=oldest)
    live = {(one.source_type, state): count for one in found.queues for state, count in one.by_state.items()}
    yield _gauge("docwell_queue_jobs", "Jobs that are not over.", ["source_type", "state"], live)
    ages = {(one.source_type,): one.oldest_due_seconds for one in found.queues}
    yield _gauge("docwell_queue_oldest_seconds", "How long the job due longest has waited.", ["source_type"], ages)
    yield _gauge("docwell_dead_letters", "Jobs that were given up.", ["reason"], _keyed(found.dead))


def _deliveries(found: Measures) -> Iterator[Metric]:
    counts = found.status.deliveries
    states = {("waiting",): counts.waiting, ("refused",): counts.refused, ("failed",): counts.failed}
    yield _gauge("docwell_deliveries", "Deliveries of the generic webhook that are not applied.", ["status"], states)
    oldest = counts.oldest_waiting_seconds or 0.0
    yield GaugeMetricFamily("docwell_deliveries_oldest_seconds", "How long the delivery that came first waits.", value=oldest)


def _sources(found: Measures) -> Iterator[Metric]:
    sources = [one for one in found.status.sources if one.removed_at is None]
    folders = [one for one in sources if one.type == "folder" and not one.paused]
    swept = {(one.name,): one.newest_sweep.timestamp() for one in sources if one.newest_sweep is not None}
    yield _gauge("docwell_newest_sweep_timestamp_seconds", "When the newest complete sweep of a source began.", ["source"], swept)
    ages = {(one.name,): max(0.0, found.now - _since(one)) for one in folders}
    yield _gauge("docwell_sweep_age_seconds", "Time since a folder's newest complete sweep began.", ["source"], ages)
    watched = {(one.name,): float(one.watched) for one in sources if one.type not in {MANUAL, PUSH} and not one.paused}
    yield _gauge("docwell_source_watched", "1 when whoever watches or follows a source is alive.", ["source"], watched)
    held = {(one.name,): one.held_deletes for one in sources}
    yield _gauge("docwell_held_deletes", "Deletions that wait for a person.", ["source"], held)


def _spent(found: Measures) -> Iterator[Metric]:
    for name, help_text, values in (
        ("calls", "Calls of paid services today (UTC).", [one.calls for one in found.spent]),
        ("unpriced_calls", "Those of them whose price is not set.", [one.unpriced_calls for one in found.spent]),
        ("tokens", "Their tokens of all kinds.", [one.tokens for one in found.spent]),
        ("money", "What they cost, where a price is set.", [float(one.money) for one in found.spent]),
    ):
        keyed = {(one.kind, one.model): value for one, value in zip(found.spent, values, strict=True)}
        yield _gauge(f"docwell_spend_today_{name}", help_text, ["kind", "model"], keyed)
    help_text = "Passages that are found by their words alone."
    yield _gauge("docwell_chunks_without_vector", help_text, ["reason"], _keyed(found.without_vector))


def _batches(found: Measures) -> Iterator[Metric]:
    waiting = found.batches
    age = 0.0 if waiting.since is None else max(0.0, found.now - waiting.since.timestamp())
    for name, help_text, value in (
        ("open", "Batches of contexts that are under way.", waiting.batches),
        ("requests", "Passages that are in them.", waiting.passages),
        ("oldest_seconds", "How long ago the oldest of them was ordered.", age),
        ("reserved_tokens", "What they will take at most, which budgets count.", waiting.tokens),
        ("reserved_money", "What that costs, where a price is set.", float(waiting.money)),
        ("unordered_documents", "Documents whose contexts are to be ordered.", waiting.documents),
        ("unordered_oldest_seconds", "How long the first of them has waited.", waiting.seconds or 0.0),
        ("failing", "1 when the newest try to order or to fetch failed.", float(waiting.problem is not None)),
    ):
        yield GaugeMetricFamily(f"docwell_context_batch_{name}", help_text, value=value)


def _since(source: SourceRow) -> float:
    return (source.newest_sweep or source.created_at).timestamp()


def _work(totals: Totals) -> Iterator[Metric]:
    ended = CounterMetricFamily("docwell_jobs_finished", "Attempts of jobs that ended.", labels=["result", "reason"])
    stops = CounterMetricFamily("docwell_parser_stops", "Documents on which a parser was stopped or fell.", labels=["reason"])
    for (name, label, detail), value in totals.items():
        if name == work.JOBS_FINISHED:
            ended.add_metric([label, detail], value)
        elif name == work.PARSER_STOPS:
            stops.add_metric([label], value)
    yield ended
    yield stops
    for name, help_text in (
        (work.EMBEDDING_REQUESTS, "Batches of passages that were given to the embedder."),
        (work.EMBEDDING_TEXTS, "Passages that were embedded."),
        (work.EMBEDDING_TOKENS, "Tokens of these passages, by the bundled tokenizer."),
    ):
        yield CounterMetricFamily(f"docwell_{name}", help_text, value=totals.get((name, "", ""), 0.0))
    seconds = HistogramMetricFamily("docwell_job_stage_seconds", "Duration of a stage of jobs.", labels=["stage"])
    for stage in work.STAGES:
        seconds.add_metric([stage], *_histogram(totals, stage))
    yield seconds


def _histogram(totals: Totals, stage: str) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets, as Prometheus wants them, and the sum."""
    buckets, count = [], 0.0
    for bound in (*(f"{bound:g}" for bound in work.BUCKETS), "+Inf"):
        count += totals.get((work.STAGE_SECONDS, stage, bound), 0.0)
        buckets.append((bound if bound == "+Inf" else str(float(bound)), count))
    return buckets, totals.get((work.STAGE_SECONDS, stage, "sum"), 0.0)


def _keyed(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(key,): value for key, value in values.items()}


def _gauge(name: str, help_text: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
