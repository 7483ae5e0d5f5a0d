"""A source that a person takes out: first nothing more comes from it, then its documents go."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, LiteralString

from psycopg import Connection, errors

from ingest_worker.catalogue import exclusion
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.source_state import mark_removed
from ingest_worker.catalogue.sources import MANUAL, PUSH, Source

_AT_A_TIME = 500
_ATTEMPTS = 5
"""A removal and a publisher may meet on the same rows; the loser begins again."""

_LIVE: LiteralString = """
    SELECT document_id FROM docwell.document WHERE source_id = %s AND state NOT IN ('deleted', 'excluded') LIMIT %s
"""


def remove_source(connection: Connection[Any], source: Source) -> Iterator[int]:
    """Take all documents of a source out of the index, one transaction each; yields how many are out by then.

    A watched source takes nothing more from now on, until its configuration is started again. Excluded documents stay
    excluded. What is interrupted goes on when it is called again.
    """
    with connection.transaction():
        mark_removed(connection, source.source_id, returns=source.type in {MANUAL, PUSH})
    done = 0
    while documents := [row[0] for row in connection.execute(_LIVE, (source.source_id, _AT_A_TIME)).fetchall()]:
        for document in documents:
            done += _remove(connection, document, f"Its source {source.name} was taken out.")
            yield done


def _remove(connection: Connection[Any], document: uuid.UUID, reason: str) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            return exclusion.remove(connection, document, reason=reason)
        except (errors.DeadlockDetected, errors.SerializationFailure):
            if attempt == _ATTEMPTS - 1:
                raise
        except Unknown:  # it was erased meanwhile
            return False
    raise AssertionError("unreachable")
