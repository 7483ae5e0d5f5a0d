"""Applies the deliveries that wait, in the order in which they came. Any number may run; one of them works at a time."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue import deliveries
from ingest_worker.intake.deliveries import apply
from ingest_worker.jobs.wake import Wake
from shared.database import connect, first_line, is_away
from shared.errors import ServiceUnavailable

log = structlog.get_logger(__name__)

_AT_A_TIME = 50
_IDLE_SECONDS = 1.0
"""How long to listen before looking all the same: one that failed is due again, and a ring may have been missed."""


def apply_deliveries(url: str, wake: Wake, stop: threading.Event, *, max_attempts: int = 5) -> None:
    """Apply what waits, and wait for more, until `stop` is set. PostgreSQL may be away; then it is tried again."""
    while not stop.is_set():
        try:
            with connect(url, name="docwell-deliveries", autocommit=True) as connection:
                connection.execute(f"LISTEN {deliveries.CHANNEL}")
                while not stop.is_set():
                    if not apply_due(connection, wake, stop, max_attempts=max_attempts):
                        next(connection.notifies(timeout=_IDLE_SECONDS, stop_after=1), None)
        except (psycopg.OperationalError, ServiceUnavailable) as error:
            log.warning("database_unreachable", error=first_line(error))
            stop.wait(_IDLE_SECONDS)
        except Exception:
            log.exception("deliveries_stopped")
            stop.wait(_IDLE_SECONDS)


def apply_due(connection: Connection[Any], wake: Wake, stop: threading.Event | None = None, *, max_attempts: int = 5) -> int:
    """Apply some of the deliveries that are due and wake workers for what they left; returns how many were looked at.

    `connection` commits by itself. None is applied while somebody else does.
    """
    if not deliveries.take_turn(connection):
        return 0
    try:
        numbers = deliveries.due(connection, limit=_AT_A_TIME)
        accepted = 0
        for number in numbers:
            if stop is not None and stop.is_set():
                break
            accepted += _apply(connection, number, max_attempts) == "accepted"
        if accepted:
            wake(accepted)
        return len(numbers)
    finally:
        if not connection.closed:
            deliveries.end_turn(connection)


def _apply(connection: Connection[Any], number: int, max_attempts: int) -> str | None:
    try:
        return apply(connection, number, max_attempts=max_attempts)
    except Exception as error:
        if is_away(error) or connection.closed:
            raise
        # One that nobody foresaw must not keep the others waiting.
        log.exception("delivery_failed", number=number)
        deliveries.fail(connection, number, first_line(error))
        return "failed"
