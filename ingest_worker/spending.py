"""What query servers told of their embeddings of questions, on its way into the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import ledger
from shared.prices import Price, TokenUse, cost
from shared.spending import Spent

REMEMBERED_DAYS = 7
"""So long a batch is known again that comes a second time; it comes within seconds, unless the scheduler was away."""

_NEW: LiteralString = """
    INSERT INTO docwell.spend_batch (batch_id) SELECT * FROM unnest(%s::uuid[]) ORDER BY 1
    ON CONFLICT (batch_id) DO NOTHING RETURNING batch_id
"""


def record_spent(connection: Connection[Any], told: Sequence[Spent], prices: Mapping[str, Price]) -> int:
    """Add to the ledger what was not added yet, in the caller's transaction; returns how many batches these were."""
    by_id = {spent.batch_id: spent for spent in told}
    new = [row[0] for row in connection.execute(_NEW, (list(by_id),)).fetchall()] if by_id else []
    row = connection.execute("SELECT (now() AT TIME ZONE 'UTC')::date").fetchone()
    sums: dict[tuple[date, str], TokenUse] = {}
    for batch_id in new:
        spent = by_id[batch_id]
        # A clock that is ahead of the database's must not hide what was spent behind a day that is yet to come.
        key = (spent.day if row is None else min(spent.day, row[0]), spent.model)
        sums[key] = sums.get(key, TokenUse()) + spent.use
    ledger.record(
        connection,
        [
            ledger.Entry(
                document_id=ledger.NO_DOCUMENT,
                kind="query_embedding",
                model=model,
                use=use,
                money=cost(prices, model, use),
                day=day,
            )
            for (day, model), use in sums.items()
        ],
    )
    return len(new)


def forget_batches(connection: Connection[Any]) -> int:
    """Remove batches that nobody tells again; returns how many."""
    query = "DELETE FROM docwell.spend_batch WHERE folded_at < now() - make_interval(days => %s)"
    return connection.execute(query, (REMEMBERED_DAYS,)).rowcount
