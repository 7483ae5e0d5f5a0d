"""Documents whose embedding takes minutes: never so many at once that no process is left for the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg import Connection

from shared.database import Pool
from shared.errors import Postponed

LONG_SECONDS = 60.0
"""A document whose passages take longer than this to embed goes through the lane."""

AGAIN_SECONDS = 30.0
"""After this long a document that found the lane full is tried again."""

_MOST_KNOWN = 1_000

_ENTER: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended('docwell.lane', %s))"
_LEAVE: LiteralString = "SELECT pg_advisory_unlock(hashtextextended('docwell.lane', %s))"


def full(path: str) -> Postponed:
    """Why the document at `path` has to wait."""
    return Postponed(
        f"{path} takes minutes to embed, and others that do are under way: it waits, so that small documents need not. It is"
        " taken up again by itself.",
        code="others_take_long",
        retry_after=AGAIN_SECONDS,
    )


class Lane:
    """Room for all but one of `processes`, in all workers of this database together. For one thread.

    It remembers which documents were found to take long, so that they need not be parsed to find the lane full once more.
    """

    def __init__(self, pool: Pool, *, processes: int) -> None:
        self._pool = pool
        self._places = max(1, processes - 1)
        self._long: dict[tuple[uuid.UUID, bytes], None] = {}

    def note(self, document_id: uuid.UUID, sha256: bytes) -> None:
        """These bytes of the document take long."""
        self._long[document_id, sha256] = None
        if len(self._long) > _MOST_KNOWN:
            del self._long[next(iter(self._long))]

    def is_long(self, document_id: uuid.UUID, sha256: bytes) -> bool:
        """Whether these bytes are known to take long."""
        return (document_id, sha256) in self._long

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Whether there is a place, which is held meanwhile; it ends with its session. No transaction is open."""
        with self._pool.connection() as connection:
            place = next((one for one in range(self._places) if _enter(connection, one)), None)
            try:
                yield place is not None
            finally:
                if place is not None:
                    with suppress(psycopg.OperationalError):  # a session that is gone has let go of it
                        connection.execute(_LEAVE, (place,))


def _enter(connection: Connection[Any], place: int) -> bool:
    row = connection.execute(_ENTER, (place,)).fetchone()
    return bool(row and row[0])
