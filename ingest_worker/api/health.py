"""Whether this process lives, whether it can work, and its numbers for Prometheus."""

from __future__ import annotations

import psycopg
import redis
from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from psycopg_pool import PoolTimeout
from starlette.responses import Response

from ingest_worker.api.answers import PROBLEMS, answer, services
from ingest_worker.api.caller import caller
from ingest_worker.api.problems import unavailable
from shared.config import Settings
from shared.database import check_schema
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
    return Response(services(request).metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
