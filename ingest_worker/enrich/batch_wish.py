"""What of a document's missing contexts is left to batches, and what is bought on the way."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import orders
from ingest_worker.catalogue.batches import Ordered
from ingest_worker.catalogue.orders import BATCH, ORDERED
from ingest_worker.enrich.batch_choice import goes_into_batch
from ingest_worker.enrich.buying import Stop
from ingest_worker.enrich.prompt import PROMPT_VERSION, Part
from shared.config import Settings
from shared.documents import Chunk

BUSY_SECONDS = 300.0
"""A document that waits for a passage of another one looks again after so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Places of passages to be bought now; `stop` says why the others are not.

    `order_seconds` from now it is the document's turn to order; `due_seconds` from now it is read again. None: it is not.
    """

    now: Sequence[int]
    stop: Stop | None = None
    order_seconds: float | None = None
    due_seconds: float | None = None


def left_to_batches(
    connection: Connection[Any],
    document_id: uuid.UUID,
    under_way: Ordered,
    chunks: Sequence[Chunk],
    parts: Sequence[Part],
    missing: Collection[int],
    settings: Settings,
    *,
    at_once: bool = False,
) -> Left:
    """Divide the passages at these places. `at_once`: a person asks for new contexts in the place of those that are there.

    `under_way` was read before it was known what is missing: an answer that comes in between is then known or waited for.
    """
    by_id = {chunks[place].chunk_id: place for place in missing}
    free = {chunk_id: place for chunk_id, place in by_id.items() if chunk_id not in under_way.own | under_way.others}
    waits = Stop(code=BATCH, reason=ORDERED) if len(free) < len(by_id) else None
    order_seconds = BUSY_SECONDS if under_way.others & by_id.keys() else None
    if not free or at_once or (settings.context_batches == "off" and waits is None):
        return Left(now=sorted(free.values()), stop=waits, order_seconds=order_seconds)
    rest = orders.resting(connection, document_id, free, prompt=PROMPT_VERSION)
    ripe = [place for chunk_id, place in free.items() if chunk_id not in rest]
    if not ripe:
        return Left(now=(), stop=waits or failed_in_batch(rest), order_seconds=order_seconds, due_seconds=soonest(rest))
    if goes_into_batch(parts, chunks, ripe, settings):
        return Left(now=(), stop=Stop(code=BATCH, reason=ORDERED), order_seconds=0.0)
    return Left(now=sorted(ripe), stop=waits, order_seconds=order_seconds)


def failed_in_batch(rest: Mapping[uuid.UUID, float | None]) -> Stop:
    """Why nothing is ordered for passages that are left alone for a while."""
    return Stop(code="passages_failed", reason=f"{len(rest)} passages have no context: they failed in a batch.")


def soonest(rest: Mapping[uuid.UUID, float | None]) -> float | None:
    """Seconds until one of them may be tried again; None: not before a person asks."""
    return min((seconds for seconds in rest.values() if seconds is not None), default=None)
