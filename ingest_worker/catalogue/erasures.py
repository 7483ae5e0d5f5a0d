"""What was erased and may not come back: by the hash of its place, and by the hash of its bytes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

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


_ERASED_PATHS: LiteralString = """
    SELECT wanted.path FROM docwell.source s JOIN docwell.namespace n USING (namespace_id)
    CROSS JOIN unnest(%s::text[]) AS wanted (path)
    JOIN docwell.erased_path e ON e.place_sha256 = sha256(convert_to(concat_ws(chr(10), s.name, n.name, wanted.path), 'UTF8'))
    WHERE s.source_id = %s
"""


def erased_paths(connection: Connection[Any], source_id: int, paths: Collection[str]) -> set[str]:
    """Those of the paths of a source with one namespace at which nothing may stand."""
    return {row[0] for row in connection.execute(_ERASED_PATHS, (list(paths), source_id)).fetchall()}


def refuse_erased(connection: Connection[Any], *, source: str, namespace: str, path: str, sha256: bytes) -> None:
    """For those who bring bytes and wait for an answer.

    Raises:
        Conflict: the path or the bytes were erased.
    """
    erasure_id = find_erasure(connection, source=source, namespace=namespace, path=path, sha256=sha256)
    if erasure_id is not None:
        raise Conflict(f"{path} was not stored. {erased_reason(erasure_id)}", code=ERASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A document by its names."""

    document_id: uuid.UUID
    source: str
    namespace: str
    path: str


_BEGIN: LiteralString = "INSERT INTO docwell.erasure DEFAULT VALUES RETURNING erasure_id, erased_at"
_BLOCK_PLACE: LiteralString = "INSERT INTO docwell.erased_path (place_sha256, erasure_id) VALUES (%s, %s)"
_BLOCK_BYTES: LiteralString = "INSERT INTO docwell.erased_content (sha256, erasure_id) SELECT unnest(%s::bytea[]), %s"


def block(connection: Connection[Any], place: Place, digests: Collection[bytes]) -> tuple[uuid.UUID, datetime]:
    """Keep out what stands at this place, and these bytes wherever they are: the erasure's id and time."""
    row = connection.execute(_BEGIN).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING gave no row")
    erasure_id, erased_at = row
    connection.execute(_BLOCK_PLACE, (place_sha256(place.source, place.namespace, place.path), erasure_id))
    connection.execute(_BLOCK_BYTES, (list(digests), erasure_id))
    return erasure_id, erased_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure and what it keeps out; nothing more is known of it. Lifted: it keeps nothing out any more."""

    erasure_id: uuid.UUID
    erased_at: datetime
    lifted_at: datetime | None
    places: int
    contents: int


_ERASURES: LiteralString = """
    SELECT erasure_id, erased_at, lifted_at,
           (SELECT count(*) FROM docwell.erased_path p WHERE p.erasure_id = e.erasure_id) AS places,
           (SELECT count(*) FROM docwell.erased_content c WHERE c.erasure_id = e.erasure_id) AS contents
    FROM docwell.erasure e ORDER BY erased_at DESC, erasure_id
"""


def list_erasures(connection: Connection[Any]) -> list[Erasure]:
    """All erasures, newest first."""
    with connection.cursor(row_factory=class_row(Erasure)) as cursor:
        return cursor.execute(_ERASURES).fetchall()


_LIFT: LiteralString = "UPDATE docwell.erasure SET lifted_at = coalesce(lifted_at, now()) WHERE erasure_id = %s"
_KEPT_OUT: LiteralString = """
    SELECT document_id FROM docwell.document WHERE reason_code = %s AND state NOT IN ('deleted', 'excluded')
"""


def lift(connection: Connection[Any], erasure_id: uuid.UUID) -> bool:
    """Let in again what this erasure keeps out; False when there is no such erasure."""
    if connection.execute(_LIFT, (erasure_id,)).rowcount == 0:
        return False
    connection.execute("DELETE FROM docwell.erased_path WHERE erasure_id = %s", (erasure_id,))
    connection.execute("DELETE FROM docwell.erased_content WHERE erasure_id = %s", (erasure_id,))
    return True


def documents_kept_out(connection: Connection[Any]) -> list[uuid.UUID]:
    """The documents of which something was not taken in since it was erased."""
    return [row[0] for row in connection.execute(_KEPT_OUT, (ERASED,)).fetchall()]
