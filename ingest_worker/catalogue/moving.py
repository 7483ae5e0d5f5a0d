"""Documents whose files have moved: a new path, the same identity, history and vectors."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue.documents import Observed
from ingest_worker.catalogue.erasures import erased_paths

# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOBS: LiteralString = """
    SELECT 1 FROM docwell.job
    WHERE document_id = ANY (%(documents)s) AND state IN ('queued', 'running', 'retrying')
    ORDER BY job_id FOR UPDATE
"""
_HOLD: LiteralString = """
    SELECT document_id, path FROM docwell.document
    WHERE source_id = %(source)s AND document_id = ANY (%(documents)s) AND state NOT IN ('deleted', 'excluded')
    ORDER BY document_id FOR UPDATE
"""
_MAKE_ROOM: LiteralString = (
    "DELETE FROM docwell.document WHERE source_id = %(source)s AND path = ANY (%(paths)s) AND state = 'deleted'"
)
_THERE: LiteralString = "SELECT path, document_id FROM docwell.document WHERE source_id = %(source)s AND path = ANY (%(paths)s)"
# Nothing is called so, and it is out of the way of all that is moved in the same transaction.
_ASIDE: LiteralString = """
    UPDATE docwell.document SET path = chr(1) || document_id WHERE document_id = ANY (%(documents)s)
"""
_MOVE: LiteralString = """
    UPDATE docwell.document d SET path = moved.path, locator = moved.locator, changed_at = now()
    FROM unnest(%(documents)s::uuid[], %(paths)s::text[], %(locators)s::bytea[]) AS moved (document_id, path, locator)
    WHERE d.document_id = moved.document_id
"""
# Readers of the index notice new paths, as they notice new text.
_RAISE: LiteralString = """
    UPDATE docwell.audience SET version = version + 1 WHERE audience_id IN (
        SELECT a.audience_id FROM docwell.audience a
        WHERE a.audience_id IN (SELECT d.audience_id FROM docwell.document d WHERE d.document_id = ANY (%(documents)s))
        ORDER BY a.audience_id FOR UPDATE)
"""


def move_documents(connection: Connection[Any], source_id: int, places: Mapping[uuid.UUID, Observed]) -> set[uuid.UUID]:
    """Give documents of a source their new paths, in the caller's transaction; returns those that moved.

    A document that is gone stays, and one whose new place another one holds and keeps, or was erased. A deleted one gives way.
    Documents may change places with each other.
    """
    if not places:
        return set()
    erased = erased_paths(connection, source_id, [place.path for place in places.values()])
    wanted = {document: place.path for document, place in places.items() if place.path not in erased}
    connection.execute(_HOLD_JOBS, {"documents": list(wanted)})
    held = dict(connection.execute(_HOLD, {"source": source_id, "documents": list(wanted)}).fetchall())
    paths = {"source": source_id, "paths": list(wanted.values())}
    connection.execute(_MAKE_ROOM, paths)
    there = dict(connection.execute(_THERE, paths).fetchall())
    moving = _movable({document: path for document, path in wanted.items() if document in held}, there)
    if not moving:
        return set()
    # A place that another of them leaves is free only when that one is out of the way.
    aside = [there[wanted[document]] for document in moving if wanted[document] in there]
    if aside:
        connection.execute(_ASIDE, {"documents": aside})
    ordered = sorted(moving)
    values = {
        "documents": ordered,
        "paths": [wanted[document] for document in ordered],
        "locators": [places[document].locator for document in ordered],
    }
    connection.execute(_MOVE, values)
    connection.execute(_RAISE, {"documents": ordered})
    return moving


def _movable(wanted: Mapping[uuid.UUID, str], there: Mapping[str, uuid.UUID]) -> set[uuid.UUID]:
    """Those of the documents that can move at once: to a place that is free, or that one of them leaves."""
    moving = set(_first_for_each_place(wanted))
    while True:
        blocked = {one for one in moving if there.get(wanted[one], one) not in moving}
        if not blocked:
            return moving
        moving -= blocked


def _first_for_each_place(wanted: Mapping[uuid.UUID, str]) -> Collection[uuid.UUID]:
    by_place: dict[str, uuid.UUID] = {}
    for document, path in wanted.items():
        by_place.setdefault(path, document)
    return by_place.values()
