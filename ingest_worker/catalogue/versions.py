"""Versions that are kept: which can be served again, and all that serving one takes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row, dict_row

from shared.documents import Chunk, ChunkKind, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """A version with its facts, as it was published. It can be served again when it has chunks."""

    version_id: int
    number: int
    state: str
    reason_code: str | None
    reason: str | None
    media_type: str | None
    title: str | None
    encoding: str | None
    page_count: int | None
    pages_with_text: int | None
    warnings: list[str]
    modified: datetime | None
    chunk_count: int

    @property
    def has_text(self) -> bool:
        """Whether there is anything to serve."""
        return self.chunk_count > 0


_KEPT: LiteralString = """
    SELECT version_id, number, state, reason_code, reason, media_type, title, encoding, page_count, pages_with_text, warnings,
           source_modified AS modified, chunk_count
    FROM docwell.version WHERE document_id = %s ORDER BY number DESC
"""


def kept_versions(connection: Connection[Any], document_id: uuid.UUID) -> list[KeptVersion]:
    """The versions of a document that are kept, newest first."""
    with connection.cursor(row_factory=class_row(KeptVersion)) as cursor:
        return cursor.execute(_KEPT, (document_id,)).fetchall()


_PLACE_COLUMNS = tuple(field.name for field in fields(Span))
_CHUNKS: LiteralString = """
    SELECT place.*, c.kind, c.text, c.section, c.symbol, c.language, c.tokens, c.context
    FROM docwell.version_chunk place JOIN docwell.chunk c USING (audience_id, chunk_id)
    WHERE place.version_id = %s ORDER BY place.ordinal
"""


def load_chunks(connection: Connection[Any], version_id: int) -> tuple[Chunk, ...]:
    """The chunks of a version in reading order, as they were published."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return tuple(_chunk(row) for row in cursor.execute(_CHUNKS, (version_id,)))


def _chunk(row: dict[str, Any]) -> Chunk:
    return Chunk(
        kind=ChunkKind(row["kind"]),
        text=row["text"],
        tokens=row["tokens"],
        section=tuple(row["section"].split(" > ")) if row["section"] else (),
        symbol=row["symbol"],
        language=row["language"],
        span=Span(**{name: row[name] for name in _PLACE_COLUMNS}),
        context=row["context"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a document serves, what a person wants it to serve, and the job that is under way for it."""

    state: str
    path: str
    served_version: int | None
    latest_version: int | None
    pinned_version: int | None
    live_job: uuid.UUID | None
    live_kind: str | None
    live_state: str | None


# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOB: LiteralString = """
    SELECT job_id FROM docwell.job WHERE document_id = %s AND state IN ('queued', 'running', 'retrying') FOR UPDATE
"""
_HOLD: LiteralString = """
    SELECT d.state, d.path, d.served_version, d.latest_version, d.pinned_version, job.job_id AS live_job, job.kind AS live_kind,
           job.state AS live_state
    FROM docwell.document d
    LEFT JOIN docwell.job ON job.document_id = d.document_id AND job.state IN ('queued', 'running', 'retrying')
    WHERE d.document_id = %s
    FOR UPDATE OF d
"""


def hold_standing(connection: Connection[Any], document_id: uuid.UUID) -> Standing | None:
    """Hold a document and its live job for this transaction, and say how it stands; None when there is none."""
    connection.execute(_HOLD_JOB, (document_id,))
    with connection.cursor(row_factory=class_row(Standing)) as cursor:
        return cursor.execute(_HOLD, (document_id,)).fetchone()


def pin(connection: Connection[Any], document_id: uuid.UUID, number: int) -> None:
    """A person wants this version served. Bytes that are asked for later, and differ, let it go."""
    connection.execute(
        "UPDATE docwell.document SET pinned_version = %s, pin_yields = false, changed_at = now(),"
        " state = CASE WHEN state = 'indexing' THEN state ELSE 'queued' END WHERE document_id = %s",
        (number, document_id),
    )


def unpin(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """The version that a person wanted is not kept any more."""
    connection.execute("UPDATE docwell.document SET pinned_version = NULL WHERE document_id = ANY (%s)", (list(documents),))
