"""The stream that the usage log goes to. Nothing else of the query server speaks to Redis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from shared.config import Settings
from shared.errors import ConfigurationError, ServiceUnavailable
from shared.usage import FIELD, MOST_WAITING, STREAM, UsageEvent, encode_event, require_address

PATIENCE_SECONDS = 1.0
"""For connecting, and for each answer."""


class UsageStream:
    """Adds to the stream; without the texts of queries unless they are wanted. For one thread."""

    def __init__(self, client: redis.Redis, *, with_queries: bool) -> None:
        self._client = client
        self._with_queries = with_queries

    def add(self, events: Sequence[UsageEvent]) -> None:
        """Add them in one round trip; the oldest of too many are cut off.

        Raises:
            ServiceUnavailable: Redis is away, or does not take them.
        """
        kept = [event if self._with_queries else dataclasses.replace(event, query=None) for event in events]
        self.add_entries([(FIELD, encode_event(event)) for event in kept])

    def add_entries(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """The same for entries of one field, as they are.

        Raises:
            ServiceUnavailable: Redis is away, or does not take them.
        """
        pipeline = self._client.pipeline(transaction=False)
        for field, value in entries:
            pipeline.xadd(STREAM, {field: value}, maxlen=MOST_WAITING, approximate=True)
        try:
            pipeline.execute()
        except (RedisError, OSError) as error:
            raise ServiceUnavailable(f"Redis did not take events of the usage log: {error}", code="usage_unavailable") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def open_stream(settings: Settings) -> UsageStream | None:
    """The stream of these settings; None where the log is off.

    Raises:
        ConfigurationError: the log has no place to go to, or its address is none.
    """
    require_address(settings)
    return None if settings.usage_log == "off" else connect_stream(settings)


def connect_stream(settings: Settings) -> UsageStream:
    """The stream, whether the usage log is on or off; nothing is sent yet.

    Raises:
        ConfigurationError: its address is not set, or is none.
    """
    if settings.usage_redis_url is None:
        raise ConfigurationError(
            "DOCWELL_USAGE_REDIS_URL is not set. Set it to a Redis user that may only XADD to docwell:usage (docs/operations.md"
            " shows how).",
            code="usage_address_missing",
        )
    try:
        client = redis.Redis.from_url(
            settings.usage_redis_url.get_secret_value(),
            socket_connect_timeout=PATIENCE_SECONDS,
            socket_timeout=PATIENCE_SECONDS,
            retry=Retry(NoBackoff(), 0),
            # This login may add to the stream and do nothing else: no greeting, no name, no notifications.
            protocol=2,
            driver_info=None,
        )
    except ValueError as error:
        raise ConfigurationError(f"DOCWELL_USAGE_REDIS_URL is no address of Redis: {error}") from error
    return UsageStream(client, with_queries=settings.usage_log == "queries")
