"""What Prometheus is told of a pool of connections to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.database import Pool


class PoolCollector(Collector):
    """Reads the pool's own statistics at each scrape; a pool that was not opened yet shows zeros."""

    def __init__(self, pool: Callable[[], Pool | None]) -> None:
        self._pool = pool

    def describe(self) -> list[Metric]:
        """Nothing: registering opens no pool."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        pool = self._pool()
        found = pool.get_stats() if pool is not None else {}

        def value(name: str) -> float:
            return float(found.get(name, 0))

        used = value("pool_size") - value("pool_available")
        yield GaugeMetricFamily("docwell_pool_connections", "Open connections to PostgreSQL.", value=value("pool_size"))
        yield GaugeMetricFamily("docwell_pool_connections_used", "Connections that somebody works with.", value=used)
        yield GaugeMetricFamily("docwell_pool_connections_max", "The most connections.", value=value("pool_max"))
        yield GaugeMetricFamily("docwell_pool_waiting", "Who waits for a connection now.", value=value("requests_waiting"))
        for name, help_text, amount in (
            ("docwell_pool_requests", "Requests for a connection.", value("requests_num")),
            ("docwell_pool_waits", "Requests that had to wait.", value("requests_queued")),
            ("docwell_pool_wait_seconds", "Time that requests waited.", value("requests_wait_ms") / 1000),
            ("docwell_pool_errors", "Requests that got no connection.", value("requests_errors")),
        ):
            yield CounterMetricFamily(name, help_text, value=amount)
