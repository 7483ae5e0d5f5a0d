"""What was erased and may not come back: by the hash of its place, and by the hash of its bytes."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue.asking import Conflict

ERASED = "erased"
"""The reason code of what is skipped because it was erased."""

_BLOCKED: LiteralString = """
    SELECT erasure_id FROM docwell.erased_content WHERE sha256 = %(sha256)s
    UNION ALL
    SELECT erasure_id FROM docwell.erased_path WHERE place_sha256 = %(place)s
    LIMIT 1
"""


def place_sha256(source: str, namespace: str, path: str) -> bytes:
    """The hash that stands for a place; neither name may hold a line end."""
    return hashlib.sha256(f"{source}\n{namespace}\n{path}".encode()).digest()


def erased_reason(erasure_id: uuid.UUID) -> str:
    """Why something is not taken in, and the cure."""
    return f"What stood here, or had these bytes, was erased. Let it in again with `docwell erase --lift {erasure_id}`."


def find_erasure(
    connection: Connection[Any], *, source: str, namespace: str, path: str, sha256: bytes | None = None
) -> uuid.UUID | None:
    """The erasure that keeps these bytes out, or whatever stands at this path of the source; None: they may come in."""
    values = {"sha256": sha256, "place": place_sha256(source, namespace, path)}
    row = connection.execute(_BLOCKED, values).fetchone()
    return None if row is None else row[0]


def refuse_erased(connection: Connection[Any], *, source: str, namespace: str, path: str, sha256: bytes) -> None:
    """For those who bring bytes and wait for an answer.

    Raises:
        Conflict: the path or the bytes were erased.
    """
    erasure_id = find_erasure(connection, source=source, namespace=namespace, path=path, sha256=sha256)
    if erasure_id is not None:
        raise Conflict(f"{path} was not stored. {erased_reason(erasure_id)}", code=ERASED)
