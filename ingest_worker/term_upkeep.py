"""What keyword search needs beside publishing: terms of older rules are made again, common terms of large audiences counted."""

from __future__ import annotations

from typing import Any

import structlog
from psycopg import Connection

from ingest_worker.catalogue.chunks import raise_version
from ingest_worker.catalogue.common_terms import sample_overdue
from ingest_worker.catalogue.terms import remake_terms, terms_are_outdated

log = structlog.get_logger(__name__)

BATCH = 200
"""Chunks of one transaction: it holds them for a third of a second."""


def keep_terms(connection: Connection[Any]) -> int:
    """One batch of each kind of work, in transactions of its own; returns how much was done, 0 when nothing is left.

    After an upgrade that changed the terms, searches find old and new ones side by side until all are made again: what both rules
    share is found in every chunk. No file is read, chunked or embedded again.
    """
    remade = _remake(connection) if terms_are_outdated(connection) else 0
    return remade or (0 if sample_overdue(connection) is None else 1)


def _remake(connection: Connection[Any]) -> int:
    with connection.transaction():
        changed, chunks = remake_terms(connection, batch=BATCH)
        for audience, weight in sorted(changed.items()):
            raise_version(connection, audience, weight)
    if chunks and not terms_are_outdated(connection):
        log.info("terms_made_again", reason="The rules by which texts become terms have changed; now all chunks follow them.")
    return chunks
