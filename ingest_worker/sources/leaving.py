"""What is gone at a source leaves the index, unless it is so much that a person has to say so."""

from __future__ import annotations

import uuid

from ingest_worker.catalogue import held, remote_items
from ingest_worker.catalogue.remote_items import GoneItem
from ingest_worker.catalogue.source_state import record_walk
from ingest_worker.catalogue.sources import Source
from ingest_worker.catalogue.whereabouts import count_documents
from ingest_worker.intake.hold import judge
from ingest_worker.intake.orders import WAIT_SECONDS, Remove
from ingest_worker.sources.apply import Applier
from ingest_worker.sources.store import delete_document
from shared.database import Pool, reachable

MOST_ASKED = 500
"""Of so many things that did not come in a listing each is asked for before its document goes; more are taken as said, but for
those below something below which not all could be listed."""


def missing(pool: Pool, source: Source, applier: Applier, *, listing: int) -> None:
    """After a whole listing: what was known and did not come is gone. What moved about while it was listed may be there still.

    Raises: as `Applier.apply`.
    """
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
        found = remote_items.not_in_listing(connection, source.source_id, listing)
        keys = [key for key in found if remote_items.is_below(key) is None]
        # What could not be listed once, and did not fail in this listing, was listed.
        remote_items.forget(connection, source.source_id, [key for key in found if remote_items.is_below(key) is not None])
        unsure = set(keys) if len(keys) <= MOST_ASKED else remote_items.unsure(connection, source.source_id, keys)
    for key in keys:
        if key in unsure:
            applier.look_at(key)
    applier.note_gone([key for key in keys if key not in unsure])


def settle(pool: Pool, source: Source, applier: Applier) -> str | None:
    """Delete the documents of what is gone, or hold them; returns why they are held.

    Raises:
        ServiceUnavailable: PostgreSQL is away.
    """
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
        leaving = {one.document_id: one for one in remote_items.leaving(connection, source.source_id)}
        total = count_documents(connection, source.source_id)
        approved: set[uuid.UUID] = set()
        if source.approved_at is not None:
            approved = held.approved(connection, source.source_id)
    verdict = judge(
        [Remove(document_id=one.document_id, path=one.path, sure=True) for one in leaving.values()],
        approved,
        total=total,
        source=source.name,
        root=source.root or source.name,
        moved_device=False,
        why="since the source no longer has them, or no longer shows them",
        check="Check that its account still sees everything it should",
    )
    for order in verdict.go:
        _delete(pool, source, leaving[order.document_id], applier)
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection, connection.transaction():
        held.replace_held(connection, source.source_id, [order.document_id for order in verdict.held])
        record_walk(connection, source.source_id, left_out=0, held=len(verdict.held), approved=source.approved_at)
    applier.counts["held"] = len(verdict.held)
    return verdict.reason


def _delete(pool: Pool, source: Source, item: GoneItem, applier: Applier) -> None:
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
        if delete_document(connection, item.document_id, source=source.name):
            applier.counts["gone"] += 1
