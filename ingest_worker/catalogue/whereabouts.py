"""What intake asks the catalogue about files that came, went or moved."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import Connection
from psycopg.rows import args_row, class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A document and what its file was when it was read last. `locator` is the name on disk where it is not the path."""

    document_id: uuid.UUID
    path: str
    locator: bytes | None
    size: int | None
    modified_ns: int | None
    sha256: bytes | None
    state: str


_PLACED = "SELECT document_id, path, locator, size, modified_ns, sha256, state FROM docwell.document"


class Known(NamedTuple):
    """What a sweep compares a file with; a tuple, since a sweep makes one for every document."""

    document_id: uuid.UUID
    path: str
    size: int | None
    modified_ns: int | None
    state: str


_KNOWN = """
    SELECT document_id, path, size, modified_ns, state FROM docwell.document
    WHERE source_id = %s AND state <> 'deleted'
    ORDER BY path COLLATE "C"
"""


def stream_known(connection: Connection[Any], source_id: int) -> Generator[Known]:
    """The source's documents in the byte order of their paths, streamed."""
    with connection.transaction(), connection.cursor(name="stream_known", row_factory=args_row(Known)) as cursor:
        cursor.itersize = 5000
        cursor.execute(_KNOWN, (source_id,), binary=True)
        yield from cursor


def placed_at(connection: Connection[Any], source_id: int, paths: Sequence[str]) -> dict[str, Placed]:
    """The live documents of the source at these paths."""
    with connection.cursor(row_factory=class_row(Placed)) as cursor:
        rows = cursor.execute(
            _PLACED + " WHERE source_id = %s AND path = ANY (%s) AND state NOT IN ('deleted', 'excluded')",
            (source_id, list(paths)),
        ).fetchall()
    return {row.path: row for row in rows}


def placed_by_id(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> list[Placed]:
    """These documents, if they are live."""
    with connection.cursor(row_factory=class_row(Placed)) as cursor:
        return cursor.execute(
            _PLACED + " WHERE document_id = ANY (%s) AND state NOT IN ('deleted', 'excluded')", (list(documents),)
        ).fetchall()


def placed_with_content(connection: Connection[Any], source_id: int, digests: Sequence[bytes]) -> list[Placed]:
    """The live documents of the source whose content, when it was read last, had one of these sha256."""
    with connection.cursor(row_factory=class_row(Placed)) as cursor:
        return cursor.execute(
            _PLACED + " WHERE source_id = %s AND sha256 = ANY (%s) AND state NOT IN ('deleted', 'excluded')",
            (source_id, list(digests)),
        ).fetchall()


def known_sizes(connection: Connection[Any], source_id: int, sizes: Sequence[int]) -> set[int]:
    """Those of the sizes that a document of the source, which was read, has."""
    rows = connection.execute(
        "SELECT DISTINCT size FROM docwell.document WHERE source_id = %s AND size = ANY (%s) AND sha256 IS NOT NULL",
        (source_id, list(sizes)),
    ).fetchall()
    return {row[0] for row in rows}


def count_documents(connection: Connection[Any], source_id: int) -> int:
    """How many live documents the source has."""
    row = connection.execute(
        "SELECT count(*) FROM docwell.document WHERE source_id = %s AND state NOT IN ('deleted', 'excluded')", (source_id,)
    ).fetchone()
    return int(row[0]) if row else 0


def has_read_content(connection: Connection[Any], source_id: int) -> bool:
    """Whether any document of the source was read, so that a new file may be one that moved."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM docwell.document WHERE source_id = %s AND sha256 IS NOT NULL)", (source_id,)
    ).fetchone()
    return bool(row and row[0])


_IDLE = """
    SELECT d.document_id, d.changed_at FROM docwell.document d
    WHERE d.document_id = ANY (%s) AND NOT EXISTS (
        SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id AND j.state IN ('queued', 'running', 'retrying'))
"""


def without_live_job(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """Those of the documents that no job is going to look at, and when each changed last."""
    return dict(connection.execute(_IDLE, (list(documents),)).fetchall())


def live_names(connection: Connection[Any], source_id: int) -> Iterator[tuple[str, bytes | None]]:
    """The path and locator of every live document of the source, streamed."""
    with connection.transaction(), connection.cursor(name="live_names") as cursor:
        cursor.itersize = 2000
        cursor.execute(
            "SELECT path, locator FROM docwell.document WHERE source_id = %s AND state NOT IN ('deleted', 'excluded')",
            (source_id,),
        )
        yield from cursor
