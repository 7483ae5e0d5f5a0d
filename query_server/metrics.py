"""The numbers of one MCP server for Prometheus; docs/metrics.md names them all."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from query_server.searched import Searched
from shared.database import Pool
from shared.pool_metrics import PoolCollector
from shared.prices import TokenUse

_CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

OUTCOMES = ("ok", "no_match", "index_empty", "failed")


class Metrics:
    """Counters of one server."""

    def __init__(self, pool: Callable[[], Pool | None] = lambda: None, *, untold: Callable[[], TokenUse] = TokenUse) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series of each, which nobody asks for
        self.registry = CollectorRegistry()
        self._calls = Counter("docwell_mcp_calls", "Tool calls.", ["tool", "outcome"], registry=self.registry)
        self._seconds = Histogram(
            "docwell_mcp_call_seconds", "Duration of a tool call.", ["tool"], buckets=_CALL_BUCKETS, registry=self.registry
        )
        self._refused = Counter("docwell_mcp_refused", "Requests that the gate refused.", ["code"], registry=self.registry)
        self._searches = Counter("docwell_searches", "Searches.", ["outcome", "mode"], registry=self.registry)
        self._warnings = Counter("docwell_search_warnings", "Answers with a warning.", ["code"], registry=self.registry)
        self._warming = Counter("docwell_searches_warming", "Searches while a model was loading.", registry=self.registry)
        self._caches = Counter("docwell_search_cache", "Questions to a cache.", ["cache", "result"], registry=self.registry)
        self._stages = Histogram(
            "docwell_search_stage_seconds",
            "Duration of a stage of a search.",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=self.registry,
        )
        self._usage = Counter("docwell_usage_events", "Events of the usage log.", ["result"], registry=self.registry)
        for result in ("written", "dropped"):
            self._usage.labels(result)
        self._spent_calls = Counter(
            "docwell_query_embedding_calls", "Calls of a model behind an API for questions.", ["model"], registry=self.registry
        )
        self._spent_tokens = Counter("docwell_query_embedding_tokens", "Their tokens.", ["model"], registry=self.registry)
        waiting = Gauge("docwell_query_embedding_untold_calls", "Those that the ledger lacks yet.", registry=self.registry)
        waiting.set_function(lambda: untold().calls)
        self.registry.register(PoolCollector(pool))
        for outcome in OUTCOMES:  # a rate of nothing is 0, and not missing
            self._searches.labels(outcome, "hybrid")

    def observe(self, tool: str, outcome: str, seconds: float) -> None:
        """Count a call."""
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)

    def refused(self, code: str) -> None:
        """Count a request that did not get in."""
        self._refused.labels(code).inc()

    def usage(self, result: str, number: int) -> None:
        """Count events of the usage log: `written`, or `dropped` because they did not fit or could not be written."""
        self._usage.labels(result).inc(number)

    def spent(self, model: str, use: TokenUse) -> None:
        """Count what embeddings of questions used."""
        self._spent_calls.labels(model).inc(use.calls)
        self._spent_tokens.labels(model).inc(use.input_tokens)

    def searched(self, search: Searched) -> None:
        """Count a search."""
        self._searches.labels(search.outcome, search.mode).inc()
        if search.warming:
            self._warming.inc()
        for code in search.warnings:
            self._warnings.labels(code).inc()
        for cache, result in search.caches:
            self._caches.labels(cache, result).inc()
        for stage in search.stages:
            self._stages.labels(stage.name).observe(stage.seconds)

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self.registry)
