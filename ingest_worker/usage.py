"""The usage log's way into the database: from the stream, each event once, and out again when its days are over.

What questions cost comes over the same stream, and goes into the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import psycopg
import redis
import structlog
from psycopg import Connection
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ingest_worker.catalogue import usage
from ingest_worker.spending import forget_batches, record_spent
from shared.config import Settings
from shared.database import Pool
from shared.prices import Price
from shared.spending import FIELD as SPENT_FIELD
from shared.spending import Spent, decode_spent
from shared.usage import STREAM, Unreadable, UsageEvent, decode_event

BATCH = 500
PATIENCE_SECONDS = 1.0
"""For Redis, in everything; it is the scheduler's one thread that waits."""

PAUSE_SECONDS = 10.0
"""After Redis failed."""

EXPIRE_EVERY_SECONDS = 600.0

log = structlog.get_logger(__name__)


def open_stream(settings: Settings) -> redis.Redis | None:
    """A client of the broker; None when there is none."""
    if settings.redis_url is None:
        return None
    return redis.Redis.from_url(
        settings.redis_url.get_secret_value(),
        socket_connect_timeout=PATIENCE_SECONDS,
        socket_timeout=PATIENCE_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def fold(connection: Connection[Any], client: redis.Redis, prices: Mapping[str, Price] = MappingProxyType({})) -> int:
    """Bring the oldest events of the stream into the database; returns how many were taken off it.

    They leave the stream after the commit. Whoever dies between the two finds them again, and the database knows them by their
    id. Several may do it at the same time.

    Raises:
        RedisError: the broker is away.
        psycopg.Error: the database is.
    """
    entries: Any = client.xrange(STREAM, count=BATCH)
    if not entries:
        return 0
    events: dict[str, UsageEvent] = {}
    spent: list[Spent] = []
    for stream_id, fields in entries:
        try:
            if SPENT_FIELD in fields:
                spent.append(decode_spent(fields))
            else:
                events[stream_id.decode("ascii")] = decode_event(fields)
        except Unreadable as error:
            log.warning("usage_event_dropped", stream_id=stream_id.decode("ascii"), error=str(error))
    with connection.transaction():
        usage.add_events(connection, events)
        record_spent(connection, spent, prices)
    client.xdel(STREAM, *(stream_id for stream_id, _ in entries))
    return len(entries)


class UsageKeeper:
    """What the scheduler does for the usage log at each tick. Redis may be away: then it is left alone for a while."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = open_stream(settings)
        self._days = settings.usage_days
        self._prices = settings.prices
        self._clock = clock
        self._away_until = clock()
        self._expire_at = clock()

    def tick(self, pool: Pool, *, until: float) -> None:
        """Fold what waits, until the clock says `until` at most, and remove what is too old.

        Raises:
            psycopg.Error: the database is away.
        """
        if self._clock() >= self._expire_at:
            self._expire_at = self._clock() + EXPIRE_EVERY_SECONDS
            with pool.connection() as connection:
                usage.expire(connection, days=self._days)
                forget_batches(connection)
        if self._client is None or self._clock() < self._away_until:
            return
        try:
            while self._waits(self._client):
                with pool.connection() as connection:
                    connection.autocommit = True
                    try:
                        fold(connection, self._client, self._prices)
                    finally:
                        connection.autocommit = False
                if self._clock() >= until:
                    break
        except (RedisError, OSError) as error:
            log.warning("usage_stream_unreachable", error=str(error), cure="It is read again when Redis is there.")
            self._away_until = self._clock() + PAUSE_SECONDS
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            # The log is not worth the scheduler; what cannot be folded is cut off in the end.
            log.exception("usage_not_folded", error=str(error))
            self._away_until = self._clock() + PAUSE_SECONDS

    def close(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            self._client.close()

    @staticmethod
    def _waits(client: redis.Redis) -> bool:
        length: Any = client.xlen(STREAM)
        return bool(length)
