"""What paid services were asked and what that cost: written right after each call, whatever becomes of the document."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from shared.prices import TokenUse

Kind = Literal["embedding", "query_embedding", "context", "caption"]


NO_DOCUMENT = uuid.UUID(int=0)
"""Of what was paid for no document: embeddings of questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was used for a document. `money` is None when the model's price is not set; no `day`: today."""

    document_id: uuid.UUID
    kind: Kind
    model: str
    use: TokenUse
    money: Decimal | None
    day: date | None = None


# In one order for all, so that two who write at the same time never wait for each other. The day is UTC's.
_RECORD: LiteralString = """
    INSERT INTO docwell.ledger AS l (day, kind, model, document_id, source, calls, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, money, unpriced_calls)
    SELECT coalesce(paid.day, (now() AT TIME ZONE 'UTC')::date), paid.kind, paid.model, paid.document_id, coalesce(s.name, ''),
           paid.calls, paid.input, paid.output, paid.cache_read, paid.cache_write, coalesce(paid.money, 0),
           CASE WHEN paid.money IS NULL THEN greatest(paid.calls, 1) ELSE 0 END
    FROM unnest(%(kinds)s::text[], %(models)s::text[], %(documents)s::uuid[], %(calls)s::bigint[], %(inputs)s::bigint[],
            %(outputs)s::bigint[], %(reads)s::bigint[], %(writes)s::bigint[], %(money)s::numeric[], %(days)s::date[])
        AS paid (kind, model, document_id, calls, input, output, cache_read, cache_write, money, day)
    LEFT JOIN docwell.document d USING (document_id) LEFT JOIN docwell.source s USING (source_id)
    ORDER BY 1, 2, 3, 4
    ON CONFLICT (day, kind, model, document_id) DO UPDATE SET
        calls = l.calls + excluded.calls, input_tokens = l.input_tokens + excluded.input_tokens,
        output_tokens = l.output_tokens + excluded.output_tokens,
        cache_read_tokens = l.cache_read_tokens + excluded.cache_read_tokens,
        cache_write_tokens = l.cache_write_tokens + excluded.cache_write_tokens,
        money = l.money + excluded.money, unpriced_calls = l.unpriced_calls + excluded.unpriced_calls
"""


def record(connection: Connection[Any], entries: Sequence[Entry]) -> None:
    """Add these to the ledger, each document, kind and day at most once."""
    if entries:
        values = {
            "kinds": [one.kind for one in entries],
            "models": [one.model for one in entries],
            "documents": [one.document_id for one in entries],
            "calls": [one.use.calls for one in entries],
            "inputs": [one.use.input_tokens for one in entries],
            "outputs": [one.use.output_tokens for one in entries],
            "reads": [one.use.cache_read_tokens for one in entries],
            "writes": [one.use.cache_write_tokens for one in entries],
            "money": [one.money for one in entries],
            "days": [one.day for one in entries],
        }
        connection.execute(_RECORD, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens of all kinds, and the money of those calls whose price was set."""

    tokens: int
    money: Decimal

    def __add__(self, other: Spent) -> Spent:
        return Spent(tokens=self.tokens + other.tokens, money=self.money + other.money)


# Of what is in batches it is known what it will take at most.
_SPENT: LiteralString = """
    SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(money), 0) AS money
    FROM (SELECT input_tokens + output_tokens + cache_read_tokens + cache_write_tokens AS tokens, money
          FROM docwell.ledger WHERE kind = ANY (%(kinds)s) AND {paid}
          UNION ALL
          SELECT tokens, money FROM docwell.context_order WHERE 'context' = ANY (%(kinds)s) AND {ordered}) AS counted
"""
_SPENT_TODAY: LiteralString = _SPENT.format(paid="day = (now() AT TIME ZONE 'UTC')::date", ordered="true")
_SPENT_ON: LiteralString = _SPENT.format(paid="document_id = %(document)s", ordered="document_id = %(document)s")


def spent_today(connection: Connection[Any], kinds: Collection[Kind]) -> Spent:
    """What calls of these kinds took since midnight (UTC), for all documents, and what is ordered in batches and yet to come."""
    return _spent(connection, _SPENT_TODAY, {"kinds": list(kinds)})


def spent_on(connection: Connection[Any], document_id: uuid.UUID, kinds: Collection[Kind]) -> Spent:
    """What calls of these kinds ever took for a document, and what is ordered for it in batches and yet to come."""
    return _spent(connection, _SPENT_ON, {"kinds": list(kinds), "document": document_id})


def _spent(connection: Connection[Any], query: LiteralString, values: dict[str, Any]) -> Spent:
    with connection.cursor(row_factory=class_row(Spent)) as cursor:
        return cursor.execute(query, values).fetchone() or Spent(tokens=0, money=Decimal(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What calls of one kind and model took. `money` leaves `unpriced_calls` out; None for `day` and `source`: over all."""

    kind: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    money: Decimal
    unpriced_calls: int
    day: date | None = None
    source: str | None = None

    @property
    def tokens(self) -> int:
        """All of them, whatever they cost."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


_TOTALS: LiteralString = """
    SELECT kind, model, sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
           sum(output_tokens)::bigint AS output_tokens, sum(cache_read_tokens)::bigint AS cache_read_tokens,
           sum(cache_write_tokens)::bigint AS cache_write_tokens, sum(money) AS money,
           sum(unpriced_calls)::bigint AS unpriced_calls
"""


def totals_of(connection: Connection[Any], document_id: uuid.UUID) -> list[Total]:
    """What a document has cost so far, by kind and model."""
    query = _TOTALS + " FROM docwell.ledger WHERE document_id = %s GROUP BY kind, model ORDER BY kind, model"
    return _totals(connection, query, (document_id,))


def totals_by_day(connection: Connection[Any], *, days: int) -> list[Total]:
    """What was used in the last `days` days (UTC), today's included, by day, source, kind and model; newest first."""
    query = (
        _TOTALS
        + """, day, source FROM docwell.ledger WHERE day > (now() AT TIME ZONE 'UTC')::date - %s::integer
             GROUP BY day, source, kind, model ORDER BY day DESC, source, kind, model"""
    )
    return _totals(connection, query, (days,))


def totals_by_kind(connection: Connection[Any], *, days: int) -> list[Total]:
    """What was used in the last `days` days (UTC), today's included, by kind and model."""
    query = (
        _TOTALS
        + """ FROM docwell.ledger WHERE day > (now() AT TIME ZONE 'UTC')::date - %s::integer
              GROUP BY kind, model ORDER BY kind, model"""
    )
    return _totals(connection, query, (days,))


def _totals(connection: Connection[Any], query: LiteralString, values: tuple[Any, ...]) -> list[Total]:
    with connection.cursor(row_factory=class_row(Total)) as cursor:
        return cursor.execute(query, values).fetchall()
