"""What a query server has spent on embeddings of questions, as it tells that over Redis to the ingest side."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import orjson

from shared.prices import TokenUse
from shared.usage import Unreadable, clean

FIELD = b"spent"
"""The one field of such an entry of the stream of the usage log; it holds JSON."""

_LONGEST_NAME = 200
_MOST = 10**12
"""More calls or tokens are nobody's: the entry is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Calls that one process made of one model on one day (UTC), and their tokens. `batch_id`: it may be told twice, and counts
    once."""

    batch_id: uuid.UUID
    day: date
    model: str
    use: TokenUse


def encode_spent(spent: Spent) -> bytes:
    """As JSON."""
    return orjson.dumps(
        {
            "batch": spent.batch_id.hex,
            "day": spent.day.isoformat(),
            "model": clean(spent.model, _LONGEST_NAME),
            "calls": spent.use.calls,
            "tokens": spent.use.input_tokens,
        }
    )


def decode_spent(entry: Mapping[bytes, bytes]) -> Spent:
    """What an entry of the stream tells.

    Raises:
        Unreadable: it is none of these, or goes beyond the limits.
    """
    try:
        held: dict[str, Any] = orjson.loads(entry[FIELD])
        return Spent(
            batch_id=uuid.UUID(hex=held["batch"]),
            day=date.fromisoformat(held["day"]),
            model=clean(held["model"], _LONGEST_NAME),
            use=TokenUse(calls=_count(held["calls"]), input_tokens=_count(held["tokens"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"nothing spent: {error!r}") from error


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= _MOST:
        raise ValueError(f"no count: {value!r}")
    return value
