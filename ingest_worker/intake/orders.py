"""What intake decided, carried out in the catalogue: many orders in one transaction, and a bad one alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import Connection

from ingest_worker.catalogue.documents import Observed, request_delete, request_ingest
from ingest_worker.catalogue.moving import move_documents
from ingest_worker.catalogue.source_state import still_takes
from ingest_worker.catalogue.sources import Source
from ingest_worker.jobs.wake import Wake
from shared.database import Pool, first_line, reachable
from shared.errors import PermanentError

log = structlog.get_logger(__name__)

WAIT_SECONDS = 1.0
"""How long to wait for a connection: the caller keeps its orders and tries again."""

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Read this file, for it is new or has changed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocate:
    """This document's file is at `name` now. `read`: it must be read again, since its time or content is not the known one."""

    document_id: uuid.UUID
    name: str
    read: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """This document's file is gone. `sure`: something that is no document stands there now, so the job need not look again."""

    document_id: uuid.UUID
    path: str
    sure: bool = False


Order = Take | Relocate | Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many jobs were asked for, how many documents moved, and the files that the database would not take."""

    jobs: int = 0
    moved: int = 0
    refused: tuple[str, ...] = ()


def carry_out(pool: Pool, source: Source, orders: Sequence[Order], *, max_attempts: int, wake: Wake) -> Outcome:
    """Do all of the orders in one transaction and wake the workers. When the database refuses one, the others are still done.

    Raises:
        ServiceUnavailable: PostgreSQL cannot be reached; nothing of the batch that was under way is done.
    """
    outcome = _attempt(pool, source, orders, max_attempts)
    if outcome.jobs:
        wake(outcome.jobs)
    return outcome


def _attempt(pool: Pool, source: Source, orders: Sequence[Order], max_attempts: int) -> Outcome:
    if not orders:
        return Outcome()
    refusal: psycopg.Error | None = None
    for _ in range(_TRIES):
        with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
            try:
                with connection.transaction():
                    return _carry_out(connection, source, orders, max_attempts)
            except psycopg.Error as error:
                if not _is_about_orders(error):
                    raise
                refusal = error
        if not isinstance(refusal, psycopg.errors.TransactionRollback):
            break  # a deadlock with a worker is tried once more, anything else is in the orders
    if len(orders) == 1:
        log.warning("file_not_recorded", source=source.name, file=_label(orders[0]), error=first_line(refusal or Exception()))
        return Outcome(refused=(_label(orders[0]),))
    middle = len(orders) // 2
    first = _attempt(pool, source, orders[:middle], max_attempts)
    second = _attempt(pool, source, orders[middle:], max_attempts)
    return Outcome(jobs=first.jobs + second.jobs, moved=first.moved + second.moved, refused=(*first.refused, *second.refused))


def _is_about_orders(error: psycopg.Error) -> bool:
    """Whether the database refused what it was given, rather than being away, shutting down or out of room."""
    return error.sqlstate is not None and error.sqlstate[:2] not in {"08", "53", "57", "58"}


def _label(order: Order) -> str:
    return order.path if isinstance(order, Remove) else Observed(name=order.name).path


def _carry_out(connection: Connection[Any], source: Source, orders: Sequence[Order], max_attempts: int) -> Outcome:
    if source.namespace_id is None:
        raise PermanentError(f"Source {source.name} has no namespace.", code="no_namespace")
    if not still_takes(connection, source.source_id):
        return Outcome()  # it was paused or taken out meanwhile; if it goes on, a sweep finds all of this
    takes = [order.name for order in orders if isinstance(order, Take)]
    removes = [order.document_id for order in orders if isinstance(order, Remove) and not order.sure]
    sure = [order.document_id for order in orders if isinstance(order, Remove) and order.sure]
    relocates = {order.document_id: order for order in orders if isinstance(order, Relocate)}
    places = {document_id: Observed(name=order.name) for document_id, order in relocates.items()}
    moved = move_documents(connection, source.source_id, places)
    for document_id, order in relocates.items():
        if document_id not in moved:  # it was deleted meanwhile, or another document is there
            removes.append(document_id)
        if document_id not in moved or order.read:
            takes.append(order.name)
    jobs = 0
    if takes:
        seen = [Observed(name=name) for name in takes]
        jobs += len(request_ingest(connection, source, source.namespace_id, seen, max_attempts=max_attempts).jobs)
    if removes:
        jobs += request_delete(connection, removes, max_attempts=max_attempts)
    if sure:
        jobs += request_delete(connection, sure, look_again=False, max_attempts=max_attempts)
    return Outcome(jobs=jobs, moved=len(moved))
