"""Contexts that were ordered in batches and have not come yet: which passages, in which batch, and what they will take."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.ledger import Spent
from ingest_worker.catalogue.orders import BATCH, ORDERED


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A passage to be asked about. `worth` is what that will take at most."""

    document_id: uuid.UUID
    chunk_id: uuid.UUID
    worth: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that has no end yet; without a `service_id` it is not known whether the service has heard of it."""

    batch_id: uuid.UUID
    service_id: str | None
    model: str
    prompt: int
    requests: int
    created_at: datetime
    age_seconds: float


_OPEN: LiteralString = """
    INSERT INTO docwell.context_batch (batch_id, model, prompt, requests) VALUES (%(batch)s, %(model)s, %(prompt)s, %(requests)s)
"""
_ADD: LiteralString = """
    INSERT INTO docwell.context_order (batch_id, number, document_id, chunk_id, tokens, money)
    SELECT %(batch)s, number - 1, document_id, chunk_id, tokens, money
    FROM unnest(%(documents)s::uuid[], %(chunks)s::uuid[], %(tokens)s::bigint[], %(money)s::numeric[])
        WITH ORDINALITY AS wanted (document_id, chunk_id, tokens, money, number)
"""


def open_batch(connection: Connection[Any], batch_id: uuid.UUID, orders: Sequence[Order], *, model: str, prompt: int) -> None:
    """Write down what is about to be ordered; an order's number is its place, from 0 on."""
    connection.execute(_OPEN, {"batch": batch_id, "model": model, "prompt": prompt, "requests": len(orders)})
    values = {
        "batch": batch_id,
        "documents": [one.document_id for one in orders],
        "chunks": [one.chunk_id for one in orders],
        "tokens": [one.worth.tokens for one in orders],
        "money": [one.worth.money for one in orders],
    }
    connection.execute(_ADD, values)


_ARRIVED: LiteralString = """
    UPDATE docwell.context_batch SET service_id = %s, state = 'running', next_look = now() + make_interval(secs => %s)
    WHERE batch_id = %s
"""


def note_arrived(connection: Connection[Any], batch_id: uuid.UUID, service_id: str, *, look_in_seconds: float) -> None:
    """The service works on it."""
    connection.execute(_ARRIVED, (service_id, look_in_seconds, batch_id))


_LATER: LiteralString = """
    UPDATE docwell.context_batch SET next_look = now() + make_interval(secs => %s), reason = %s WHERE batch_id = %s
"""
_TROUBLED: LiteralString = "UPDATE docwell.context_batch SET reason = %s WHERE state IN ('ordering', 'running')"


def look_later(connection: Connection[Any], batch_id: uuid.UUID, seconds: float, *, problem: str | None = None) -> None:
    """There is nothing to know of it before that; `problem`: why this look told nothing."""
    connection.execute(_LATER, (seconds, problem, batch_id))


def explain_open(connection: Connection[Any], problem: str) -> None:
    """Say of all batches under way why nothing is heard of them; the next look that succeeds forgets it."""
    connection.execute(_TROUBLED, (problem,))


_DUE: LiteralString = """
    SELECT batch_id, service_id, model, prompt, requests, created_at,
           extract(epoch FROM now() - created_at)::float8 AS age_seconds
    FROM docwell.context_batch WHERE state IN ('ordering', 'running') AND next_look <= now() ORDER BY next_look LIMIT %s
"""


def due(connection: Connection[Any], *, limit: int) -> list[Batch]:
    """Batches to look after, those that wait longest first."""
    with connection.cursor(row_factory=class_row(Batch)) as cursor:
        return cursor.execute(_DUE, (limit,)).fetchall()


def known_ids(connection: Connection[Any]) -> set[str]:
    """The service's names of all batches that are known to be ours."""
    rows = connection.execute("SELECT service_id FROM docwell.context_batch WHERE service_id IS NOT NULL").fetchall()
    return {row[0] for row in rows}


_WHOSE: LiteralString = """
    SELECT number, document_id FROM docwell.context_order WHERE batch_id = %s AND (%s::integer[] IS NULL OR number = ANY (%s))
"""


def whose(connection: Connection[Any], batch_id: uuid.UUID, numbers: Sequence[int] | None = None) -> dict[int, uuid.UUID]:
    """The document of each of these orders that have no answer yet; of all, when no numbers are given."""
    wanted = None if numbers is None else list(numbers)
    return dict(connection.execute(_WHOSE, (batch_id, wanted, wanted)).fetchall())


# The document first, as everybody holds it who deletes or publishes: then its orders.
_HOLD: LiteralString = "SELECT 1 FROM docwell.document WHERE document_id = %s FOR KEY SHARE"
_TAKE: LiteralString = "DELETE FROM docwell.context_order WHERE batch_id = %s AND number = ANY (%s) RETURNING number, chunk_id"


def take(
    connection: Connection[Any], batch_id: uuid.UUID, document_id: uuid.UUID, numbers: Sequence[int]
) -> dict[int, uuid.UUID | None]:
    """End these orders of one document, whose answers are there: `{number: chunk_id}`, None where nobody wants it any more.

    What was taken before is left out. In the transaction that keeps the answers and writes down what they cost.
    """
    connection.execute(_HOLD, (document_id,))
    return dict(connection.execute(_TAKE, (batch_id, list(numbers))).fetchall())


_END: LiteralString = """
    UPDATE docwell.context_batch SET state = %s, reason = %s, ended_at = now()
    WHERE batch_id = %s AND state IN ('ordering', 'running')
"""
_DROP: LiteralString = "DELETE FROM docwell.context_order WHERE batch_id = %s RETURNING document_id"


def end(connection: Connection[Any], batch_id: uuid.UUID) -> None:
    """All of its answers were taken."""
    connection.execute(_END, ("done", None, batch_id))


def lose(connection: Connection[Any], batch_id: uuid.UUID, reason: str) -> set[uuid.UUID]:
    """It was never begun, or its answers cannot be had: returns the documents whose passages are free to be asked about again."""
    connection.execute(_END, ("lost", reason, batch_id))
    return {row[0] for row in connection.execute(_DROP, (batch_id,)).fetchall()}


_PRUNE: LiteralString = (
    "DELETE FROM docwell.context_batch WHERE state IN ('done', 'lost') AND ended_at < now() - make_interval(days => %s)"
)


def prune(connection: Connection[Any], *, days: int) -> None:
    """Forget batches that ended so long ago."""
    connection.execute(_PRUNE, (days,))


_ORDERED: LiteralString = """
    SELECT o.chunk_id, bool_or(o.document_id = %(document)s)
    FROM docwell.context_order o JOIN docwell.document d USING (document_id)
    WHERE o.chunk_id = ANY (%(chunks)s) AND (o.document_id = %(document)s OR d.audience_id = %(audience)s)
    GROUP BY o.chunk_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Passages that were ordered for a document, and those that were for another one with the same readers."""

    own: frozenset[uuid.UUID]
    others: frozenset[uuid.UUID]


def ordered(connection: Connection[Any], document_id: uuid.UUID, audience_id: int, chunks: Collection[uuid.UUID]) -> Ordered:
    """Which of these passages are asked about already."""
    values = {"document": document_id, "audience": audience_id, "chunks": list(chunks)}
    rows = connection.execute(_ORDERED, values).fetchall()
    own = frozenset(chunk for chunk, is_own in rows if is_own)
    return Ordered(own=own, others=frozenset(chunk for chunk, _ in rows) - own)


def forget(connection: Connection[Any], documents: Collection[uuid.UUID]) -> None:
    """These documents go: what comes for them is paid for and dropped. Before their contexts are erased, in one transaction."""
    connection.execute("UPDATE docwell.context_order SET chunk_id = NULL WHERE document_id = ANY (%s)", (list(documents),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Documents whose contexts are yet to be ordered, and how long the first one has waited; None: none waits.

    `batches` are under way with so many `passages`; the oldest was ordered at `since`. `tokens` and `money` are what these will
    take at most, which budgets count as spent. `problem`: why the newest try to order or to fetch failed.
    """

    documents: int
    seconds: float | None
    batches: int
    passages: int
    since: datetime | None
    tokens: int = 0
    money: Decimal = Decimal(0)
    problem: str | None = None


_WAITING: LiteralString = """
    SELECT (SELECT count(*) FROM docwell.enrichment WHERE order_due IS NOT NULL) AS documents,
           (SELECT extract(epoch FROM now() - min(order_due))::float8 FROM docwell.enrichment WHERE order_due <= now())
               AS seconds,
           count(batch_id) AS batches, min(created_at) AS since, ordered.passages, ordered.tokens, ordered.money,
           coalesce(min(reason), (SELECT min(reason) FROM docwell.enrichment
                                  WHERE order_due IS NOT NULL AND reason_code = %(code)s AND reason <> %(reason)s)) AS problem
    FROM docwell.context_batch RIGHT JOIN (
        SELECT count(*) AS passages, coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(money), 0) AS money
        FROM docwell.context_order
    ) AS ordered ON state IN ('ordering', 'running')
    GROUP BY ordered.passages, ordered.tokens, ordered.money
"""


def waiting(connection: Connection[Any]) -> Waiting:
    """How much waits for batches, and in them."""
    with connection.cursor(row_factory=class_row(Waiting)) as cursor:
        return cursor.execute(_WAITING, {"code": BATCH, "reason": ORDERED}).fetchone() or Waiting(
            documents=0, seconds=None, batches=0, passages=0, since=None
        )
