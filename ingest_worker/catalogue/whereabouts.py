"""What intake asks the catalogue about files that came, went or moved."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row


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


Known = tuple[str, int | None, int | None, str]
"""What a sweep compares a file with: path, size, mtime in nanoseconds, state. A sweep reads one for every document."""

_KNOWN = """
    SELECT path, size, modified_ns, state FROM docwell.document
    WHERE source_id = %s AND state <> 'deleted'
    ORDER BY path COLLATE "C"
"""
_AT_A_TIME = 5000


def stream_known(connection: Connection[Any], source_id: int) -> Generator[Known]:
    """The source's documents in the byte order of their paths, streamed."""
    with connection.transaction(), connection.cursor(name="stream_known") as cursor:
        cursor.execute(_KNOWN, (source_id,), binary=True)
        while rows := cursor.fetchmany(_AT_A_TIME):
            yield from rows


def placed_at(connection: Connection[Any], source_id: int, paths: Sequence[str]) -> dict[str, Placed]:
    """The live documents of the source at these paths."""
    with connection.cursor(row_factory=class_row(Placed)) as cursor:
        rows = cursor.execute(
            _PLACED + " WHERE source_id = %s AND path = ANY (%s) AND state NOT IN ('deleted', 'excluded')",
            (source_id, list(paths)),
        ).fetchall()
    return {row.path: row for row in rows}


def placed_under(connection: Connection[Any], source_id: int, folder: str) -> list[Placed]:
    """The live documents of the source below a folder (`docs`)."""
    lead = folder.rstrip("/")
    with connection.cursor(row_factory=class_row(Placed)) as cursor:
        return cursor.execute(
            # A range, which an index answers; `0` comes right after `/`.
            _PLACED + " WHERE source_id = %s AND path ~>=~ %s AND path ~<~ %s AND state NOT IN ('deleted', 'excluded')",
            (source_id, lead + "/", lead + "0"),
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


def live_documents(connection: Connection[Any], source_id: int) -> list[uuid.UUID]:
    """The documents of the source that are neither deleted nor excluded."""
    rows = connection.execute(
        "SELECT document_id FROM docwell.document WHERE source_id = %s AND state NOT IN ('deleted', 'excluded')", (source_id,)
    )
    return [row[0] for row in rows]


def has_read_content(connection: Connection[Any], source_id: int) -> bool:
    """Whether any document of the source was read, so that a new file may be one that moved."""
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM docwell.document WHERE source_id = %s AND sha256 IS NOT NULL)", (source_id,)
    ).fetchone()
    return bool(row and row[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A document that no job is going to look at: its state, and when its row changed last."""

    path: str
    state: str
    reason_code: str | None
    changed_at: datetime


_IDLE = """
    SELECT d.path, d.state, d.reason_code, d.changed_at FROM docwell.document d
    WHERE d.source_id = %s AND d.path = ANY (%s) AND NOT EXISTS (
        SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id AND j.state IN ('queued', 'running', 'retrying'))
"""


def without_live_job(connection: Connection[Any], source_id: int, paths: Sequence[str]) -> dict[str, Idle]:
    """Those of the source's documents at these paths that no job is going to look at, by path."""
    with connection.cursor(row_factory=class_row(Idle)) as cursor:
        return {one.path: one for one in cursor.execute(_IDLE, (source_id, list(paths))).fetchall()}


def live_names(connection: Connection[Any], source_id: int) -> Iterator[tuple[str, bytes | None]]:
    """The path and locator of every live document of the source, streamed."""
    with connection.transaction(), connection.cursor(name="live_names") as cursor:
        cursor.itersize = 2000
        cursor.execute(
            "SELECT path, locator FROM docwell.document WHERE source_id = %s AND state NOT IN ('deleted', 'excluded')",
            (source_id,),
        )
        yield from cursor


def too_large_before(connection: Connection[Any], source_id: int, limit: int) -> list[tuple[str, bytes | None]]:
    """The path and locator of documents that were skipped as too large and have at most `limit` bytes."""
    return connection.execute(
        "SELECT path, locator FROM docwell.document"
        " WHERE source_id = %s AND state = 'skipped' AND reason_code = 'too_large' AND size <= %s",
        (source_id, limit),
    ).fetchall()
