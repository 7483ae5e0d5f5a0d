"""The numbers of sources over the network for Prometheus, from what the database knows. docs/metrics.md names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from ingest_worker.catalogue.remote_measures import RemoteMeasure
from ingest_worker.sources.pace import OPENS_AFTER

_NUMBERS: tuple[tuple[str, str, Callable[[RemoteMeasure], float | None]], ...] = (
    ("synced_timestamp_seconds", "When a source was last followed to an end.", lambda one: one.synced),
    ("behind_seconds", "Time since a source was last followed to an end.", lambda one: one.behind),
    ("failures", "Failures of a source in a row.", lambda one: one.failures),
    (
        "breaker_open",
        "1 when a source failed so often that it is left alone for minutes.",
        lambda one: one.failures >= OPENS_AFTER,
    ),
    ("resting", "1 while nothing is asked of a source, since it failed or asked for a pause.", lambda one: one.rests),
    ("items_failed", "Things of a source that could not be taken.", lambda one: one.failed),
    ("oldest_event_seconds", "How long the event that came first waits.", lambda one: one.oldest_event),
    (
        "subscription_expires_timestamp_seconds",
        "When the first subscription of a source ends.",
        lambda one: one.subscription_expires,
    ),
    (
        "subscription_failing",
        "1 when a subscription could not be made or renewed.",
        lambda one: one.subscription_error is not None,
    ),
)


def collect(sources: Sequence[RemoteMeasure]) -> Iterator[Metric]:
    """All metrics of these; paused ones are left out, since nobody waits for them."""
    followed = [one for one in sources if not one.paused]
    for name, help_text, number in _NUMBERS:
        family = GaugeMetricFamily(f"docwell_remote_{name}", help_text, labels=["source"])
        for one in followed:
            value = number(one)
            if value is not None:
                family.add_metric([one.name], float(value))
        yield family
    events = GaugeMetricFamily("docwell_remote_events", "Events of a source that are not handled.", labels=["source", "state"])
    for one in sources:
        events.add_metric([one.name, "waiting"], one.events_waiting)
        events.add_metric([one.name, "dead"], one.events_dead)
    yield events
