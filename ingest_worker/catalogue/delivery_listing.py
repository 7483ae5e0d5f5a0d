"""Deliveries of the generic webhook as people see them."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.asking import Page, Unknown, cut, number_key, read_cursor, write_cursor

DeliveryStatus = Literal["waiting", "accepted", "unchanged", "superseded", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """A delivery and what it came to.

    `waiting`: it has still to be applied; `accepted`: its job is at work, or was; `unchanged`: there was nothing to do;
    `superseded`: newer changes of the document were known; `refused`, with `code` and `reason`: the document is excluded or was
    erased; `failed`: it could not be applied several times over. `namespace` and `path` are None once they were erased.
    """

    number: int
    delivery_id: str
    status: DeliveryStatus
    action: str | None
    namespace: str | None
    path: str | None
    document_id: uuid.UUID | None
    job_id: uuid.UUID | None
    duplicate_of: uuid.UUID | None
    code: str | None
    reason: str | None
    attempts: int
    received_at: datetime
    applied_at: datetime | None


_COLUMNS: LiteralString = """
    SELECT number, delivery_id, status, action, namespace, path, document_id, job_id, duplicate_of, code, reason, attempts,
           received_at, applied_at
    FROM docwell.delivery
"""
_GET: LiteralString = _COLUMNS + "WHERE connection = %s AND delivery_id = %s"
_LIST: LiteralString = (
    _COLUMNS
    + """
    WHERE connection = %(connection)s AND (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
      AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s)) AND number < %(before)s
    ORDER BY number DESC LIMIT %(limit)s
"""
)
_NEWEST = 2**63 - 1


def get_delivery(connection: Connection[Any], name: str, delivery_id: str) -> DeliveryRow:
    """One delivery.

    Raises:
        Unknown: none came under this id within thirty days.
    """
    with connection.cursor(row_factory=class_row(DeliveryRow)) as cursor:
        found = cursor.execute(_GET, (name, delivery_id)).fetchone()
    if found is None:
        raise unknown_delivery(delivery_id)
    return found


def unknown_delivery(delivery_id: str) -> Unknown:
    """There is none of this id."""
    return Unknown(f"No delivery {delivery_id!r} came; they are remembered for thirty days.", code="unknown_delivery")


def list_deliveries(
    connection: Connection[Any],
    name: str,
    *,
    statuses: Collection[DeliveryStatus] = (),
    namespace: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[DeliveryRow]:
    """`limit` deliveries, newest first, after `cursor`.

    Raises:
        BadQuestion: the cursor is none of this list.
    """
    values = {
        "connection": name,
        "namespace": namespace,
        "statuses": list(statuses) or None,
        "before": _NEWEST if cursor is None else number_key(read_cursor(cursor, 1)[0]),
        "limit": limit + 1,
    }
    with connection.cursor(row_factory=class_row(DeliveryRow)) as rows:
        found, more = cut(rows.execute(_LIST, values).fetchall(), limit)
    return Page(rows=found, next_cursor=write_cursor(found[-1].number) if more else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryCounts:
    """Deliveries that wait, and those of thirty days that were refused or given up."""

    waiting: int
    oldest_waiting_seconds: float | None
    refused: int
    failed: int


_COUNT: LiteralString = """
    SELECT w.waiting, w.oldest AS oldest_waiting_seconds, t.refused, t.failed
    FROM (SELECT count(*) AS waiting, extract(epoch FROM now() - min(received_at))::float8 AS oldest
          FROM docwell.delivery WHERE status = 'waiting') AS w,
         (SELECT count(*) FILTER (WHERE status = 'refused') AS refused, count(*) FILTER (WHERE status = 'failed') AS failed
          FROM docwell.delivery WHERE status IN ('refused', 'failed')) AS t
"""


def count_deliveries(connection: Connection[Any]) -> DeliveryCounts:
    """What a person should know of the webhook at a glance."""
    with connection.cursor(row_factory=class_row(DeliveryCounts)) as cursor:
        found = cursor.execute(_COUNT).fetchone()
    if found is None:
        raise RuntimeError("an aggregate gave no row")
    return found
