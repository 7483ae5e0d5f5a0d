"""What we ask of Redis ourselves, beside Celery: how many messages wait, and one more. It never makes anybody wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from ingest_worker.jobs.celery_app import QUEUE, WORK
from shared.errors import ServiceUnavailable

PATIENCE_SECONDS = 1.0
"""For connecting, and for each answer."""

# Kombu's own patience is six seconds with a broker that is away, and minutes with one that hangs.
_IMPATIENT = {
    "socket_connect_timeout": PATIENCE_SECONDS,
    "socket_timeout": PATIENCE_SECONDS,
    "retry_on_timeout": False,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
    "connect_retries_timeout": PATIENCE_SECONDS,
}


class BrokerAway(ServiceUnavailable):
    """Redis cannot be reached, or hangs. Nothing is lost by that: the job rows are the truth."""


class Broker:
    """A connection of its own, made at the first call and again after each failure. For one thread at a time."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection: Any = None

    def waiting(self) -> int:
        """How many messages nobody has taken yet.

        Raises:
            BrokerAway: it cannot be reached.
        """
        with self._connected() as connection:
            return int(connection.default_channel.queue_declare(queue=QUEUE).message_count)

    def send(self) -> None:
        """One more message that there is work.

        Raises:
            BrokerAway: it cannot be reached.
        """
        with self._connected() as connection:
            self._app.send_task(WORK, ignore_result=True, retry=False, connection=connection)

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.collect(socket_timeout=PATIENCE_SECONDS)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._connection is None:
            options = {**self._app.conf.broker_transport_options, **_IMPATIENT}
            self._connection = self._app.connection_for_write(transport_options=options)
        try:
            yield self._connection
        except (KombuError, RedisError, OSError) as error:
            self.close()
            raise BrokerAway(f"Redis cannot be reached: {error}", code="broker_unavailable") from error
