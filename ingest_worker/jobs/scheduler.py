"""The scheduler: wakes what is due, and takes back jobs whose worker is gone. Any number may run; rows are taken once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from ingest_worker.catalogue import events
from ingest_worker.catalogue.namespaces import describe_namespaces
from ingest_worker.enrich.again import ask_for_due
from ingest_worker.enrich.caption_again import ask_for_due_captions
from ingest_worker.indexing import index_some, refresh_statistics
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.lost import UNKNOWN, take_back
from ingest_worker.jobs.wake import Wake
from ingest_worker.term_upkeep import keep_terms
from ingest_worker.usage import UsageKeeper
from ingest_worker.vector_upkeep import VectorKeeper
from shared.config import Settings
from shared.database import Pool

log = structlog.get_logger(__name__)


def run_scheduler(
    settings: Settings,
    pool: Pool,
    wake: Wake,
    stop: threading.Event,
    *,
    rng: random.Random,
    on_begun: Callable[[], None] = lambda: None,
) -> None:
    """Tick until `stop` is set; `on_begun` is called after the first one.

    PostgreSQL or Redis may be away; the next tick tries again.
    """
    usage = UsageKeeper(settings)
    vectors = VectorKeeper(settings)
    described = begun = False
    while not stop.is_set():
        began = time.monotonic()
        try:
            if not described:
                with pool.connection() as connection:
                    describe_namespaces(connection, {one.name: one.description for one in settings.namespaces})
                described = True
            due = tick(settings, pool, wake, rng=rng)
            if not begun:
                on_begun()
                begun = True
            usage.tick(pool, until=began + settings.scheduler_tick_seconds)
            vectors.tick(pool)
            _index_until(began + settings.scheduler_tick_seconds, pool, stop, idle=due == 0)
        except (psycopg.OperationalError, PoolTimeout) as error:
            log.warning("database_unreachable", error=str(error))
        stop.wait(began + settings.scheduler_tick_seconds - time.monotonic())
    usage.close()


def _index_until(deadline: float, pool: Pool, stop: threading.Event, *, idle: bool) -> None:
    """Move fresh vectors under the index, and see to terms, until the next tick is due or nothing is left to do."""
    with pool.connection() as connection:
        connection.autocommit = True
        try:
            refresh_statistics(connection)
            while (
                not stop.is_set() and keep_terms(connection) + index_some(connection, idle=idle) and time.monotonic() < deadline
            ):
                pass
        finally:
            connection.autocommit = False


def tick(settings: Settings, pool: Pool, wake: Wake, *, rng: random.Random) -> int:
    """One round; returns how many jobs are due (counted up to the number of wakes that make sense)."""
    with pool.connection() as connection:
        with connection.transaction():
            for job in jobs.expired(connection):
                take_back(connection, job, UNKNOWN, rng=rng)
        ask_for_due(connection, settings)
        ask_for_due_captions(connection, settings)
        events.prune(connection)
        due = jobs.due(connection, cap=settings.worker_concurrency or 8)
    if due:
        wake(due)
    return due
