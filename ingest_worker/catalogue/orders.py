"""Whose turn it is to have missing contexts put into a batch, and which passages are left alone after a failure."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

BATCH = "batch"
"""The reason code of a document whose missing contexts are in a batch, or are to be put into one."""
ORDERED = "The contexts that are missing are ordered in a batch, which takes up to a day."
"""Its reason, as long as nothing went wrong."""

FAILED_SECONDS = 3_600.0
"""After a first failure; each further one is waited for four times as long."""

MOST_ATTEMPTS = 6
"""After so many, only a person asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOrder:
    """A document whose missing contexts are to be put into a batch, since `due`."""

    document_id: uuid.UUID
    due: datetime


_TO_ORDER: LiteralString = """
    SELECT document_id, order_due AS due FROM docwell.enrichment
    WHERE order_due <= now() AND document_id <> ALL (%s) ORDER BY order_due, document_id LIMIT %s
"""


def to_order(connection: Connection[Any], *, limit: int, but: Collection[uuid.UUID] = ()) -> list[ToOrder]:
    """Documents whose turn it is, the one that waits longest first, `but` these."""
    with connection.cursor(row_factory=class_row(ToOrder)) as cursor:
        return cursor.execute(_TO_ORDER, (list(but), limit)).fetchall()


# Who wrote a newer wish meanwhile has a newer version: that one's passages were not looked at.
_NOTE_ORDER: LiteralString = """
    UPDATE docwell.enrichment SET order_due = now() + make_interval(secs => %(order)s),
        due = CASE WHEN %(due)s::float8 IS NULL THEN due ELSE now() + make_interval(secs => %(due)s) END,
        reason_code = %(code)s, reason = %(reason)s, changed_at = now()
    WHERE document_id = %(document)s AND order_due = %(taken)s
"""


def note_order(
    connection: Connection[Any],
    taken: ToOrder,
    *,
    code: str | None,
    reason: str | None,
    order_seconds: float | None = None,
    due_seconds: float | None = None,
) -> None:
    """What became of a document's turn; `order_seconds` from now it has another one, `due_seconds` from now it is read again."""
    values = {
        "document": taken.document_id,
        "taken": taken.due,
        "code": code,
        "reason": reason,
        "order": order_seconds,
        "due": due_seconds,
    }
    connection.execute(_NOTE_ORDER, values)


_ORDER_AGAIN: LiteralString = """
    UPDATE docwell.enrichment SET order_due = now() + make_interval(secs => %s),
        reason = coalesce(%s, reason), changed_at = now()
    WHERE document_id = ANY (%s)
"""


def order_again(
    connection: Connection[Any], documents: Collection[uuid.UUID], *, seconds: float, reason: str | None = None
) -> None:
    """So many seconds from now it is these documents' turn, to be published with what has come and to order what has not."""
    connection.execute(_ORDER_AGAIN, (seconds, reason, sorted(documents)))


_EXPLAIN: LiteralString = """
    UPDATE docwell.enrichment SET reason = %(reason)s, changed_at = now()
    WHERE order_due <= now() AND reason_code = 'batch' AND reason IS DISTINCT FROM %(reason)s
"""


def explain_waiting(connection: Connection[Any], reason: str) -> None:
    """Say of all documents whose turn it is why nothing is ordered."""
    connection.execute(_EXPLAIN, {"reason": reason})


_RESTING: LiteralString = """
    SELECT chunk_id, greatest(0, extract(epoch FROM created_at - now())
                                 + %(base)s * power(4, least(attempts, %(most)s) - 1))::float8 AS seconds, attempts >= %(most)s
    FROM docwell.chunk_context
    WHERE document_id = %(document)s AND chunk_id = ANY (%(chunks)s) AND prompt = %(prompt)s AND context IS NULL
"""


def resting(
    connection: Connection[Any], document_id: uuid.UUID, chunks: Collection[uuid.UUID], *, prompt: int
) -> dict[uuid.UUID, float | None]:
    """Passages that failed and are left alone: for so many seconds more, or (None) until a person asks."""
    values = {
        "document": document_id,
        "chunks": list(chunks),
        "prompt": prompt,
        "base": FAILED_SECONDS,
        "most": MOST_ATTEMPTS,
    }
    rows = connection.execute(_RESTING, values).fetchall()
    return {chunk: None if is_last else seconds for chunk, seconds, is_last in rows if is_last or seconds > 0}
