"""Whether this process lives, whether it can work, and its numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import redis
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from psycopg_pool import PoolTimeout
from starlette.responses import Response

from ingest_worker.api.answers import PROBLEMS, answer, services
from ingest_worker.api.caller import caller
from ingest_worker.api.problems import unavailable
from ingest_worker.catalogue.overview import Status, read_status
from shared.config import Settings
from shared.database import Pool, check_schema
from shared.errors import ConfigurationError

router = APIRouter(tags=["state"], responses=PROBLEMS)

_BROKER_SECONDS = 2.0
_DATABASE_SECONDS = 3.0


@router.get("/healthz")
async def healthz() -> Response:
    """200 as long as this process answers at all; needs no token."""
    return answer({"status": "ok"})


@router.get("/readyz")
def readyz(request: Request) -> Response:
    """200 when database, migrations and broker are fit, else 503 that names those that are not; needs no token."""
    held = services(request)
    checks = {"database": "ok", "migrations": "ok", "broker": "ok"}
    try:
        with held.pool.connection(timeout=_DATABASE_SECONDS) as connection:
            check_schema(connection)
    except (psycopg.OperationalError, PoolTimeout):
        checks |= {"database": "not reachable", "migrations": "not known"}
    except ConfigurationError as error:
        checks["migrations"] = error.code
    if not broker_answers(held.settings):
        checks["broker"] = "not reachable"
    unfit = [name for name, found in checks.items() if found != "ok"]
    if unfit:
        return unavailable(
            f"Not ready: {', '.join(f'{name} {checks[name]}' for name in unfit)}.", code="not_ready", checks=checks
        )
    return answer({"status": "ready", "checks": checks})


def broker_answers(settings: Settings) -> bool:
    """Whether Redis answers a PING within two seconds."""
    if settings.redis_url is None:
        return False
    client = redis.Redis.from_url(
        settings.redis_url.get_secret_value(),
        socket_connect_timeout=_BROKER_SECONDS,
        socket_timeout=_BROKER_SECONDS,
        retry=None,
    )
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Numbers in Prometheus' text format, read from the database at this moment."""
    caller(request).check_whole()
    registry = CollectorRegistry()
    registry.register(_CorpusCollector(services(request).pool))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _CorpusCollector(Collector):
    """Reads the state once for each scrape."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def describe(self) -> list[Metric]:
        """Nothing: registering reads no database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self._pool.connection() as connection:
            found = read_status(connection)
        yield _by_label("docwell_documents", "Documents by state.", "state", found.documents.by_state)
        yield _by_label("docwell_jobs", "Jobs by state.", "state", found.jobs.by_state)
        for name, help_text, value in _SINGLE:
            yield GaugeMetricFamily(name, help_text, value=value(found))
        chunks = {one.name: one.chunks for one in found.namespaces}
        yield _by_label("docwell_chunks", "Searchable chunks by namespace.", "namespace", chunks)
        sweeps = {one.name: one.newest_sweep.timestamp() for one in found.sources if one.newest_sweep is not None}
        yield _by_label(
            "docwell_newest_sweep_timestamp_seconds", "When the newest complete sweep of a source began.", "source", sweeps
        )


_SINGLE: tuple[tuple[str, str, Callable[[Status], float]], ...] = (
    ("docwell_documents_searchable", "Documents that searches find.", lambda found: found.documents.searchable),
    ("docwell_jobs_due", "Jobs that could run now.", lambda found: found.jobs.due),
    (
        "docwell_jobs_oldest_due_seconds",
        "How long the job that is due longest has waited.",
        lambda found: found.jobs.oldest_due_seconds or 0.0,
    ),
    ("docwell_database_bytes", "Size of the database.", lambda found: found.database_bytes),
)


def _by_label(name: str, help_text: str, label: str, values: dict[str, int] | dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
