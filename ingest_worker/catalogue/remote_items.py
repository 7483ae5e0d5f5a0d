"""What remote sources have, by its key there, and what of it is stored here. All SQL of that table stands here."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

_BELOW = "below\x1f"


def below(key: str) -> str:
    """The key of the row that remembers that what stands below `key` could not be listed. It is no thing, and has no document."""
    return _BELOW + key


def is_below(key: str) -> str | None:
    """The other way round: of which key it is such a row; None: it is that of a thing."""
    return key.removeprefix(_BELOW) if key.startswith(_BELOW) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItem:
    """A thing as it is known: `path` is where its source says that it is, `document_path` where its document stands.

    `content` and `facts` are the revisions that are stored. `state` is the document's, None without one.
    """

    key: str
    document_id: uuid.UUID | None
    path: str
    content: str | None
    facts: str | None
    gone: bool
    error_code: str | None
    attempts: int
    retry_at: datetime | None
    document_path: str | None
    state: str | None


_KNOWN: LiteralString = """
    SELECT i.key, i.document_id, i.path, i.content, i.facts, i.gone_at IS NOT NULL AS gone, i.error_code, i.attempts,
           i.retry_at, d.path AS document_path, d.state
    FROM docwell.remote_item i LEFT JOIN docwell.document d USING (document_id)
    WHERE i.source_id = %s AND i.key = ANY (%s)
"""


def known(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> dict[str, KnownItem]:
    """What is known of these keys."""
    with connection.cursor(row_factory=class_row(KnownItem)) as cursor:
        return {one.key: one for one in cursor.execute(_KNOWN, (source_id, list(keys))).fetchall()}


_SAW: LiteralString = """
    UPDATE docwell.remote_item SET listing = %(listing)s WHERE source_id = %(source)s AND key = ANY (%(keys)s)
"""
_MENDED: LiteralString = """
    UPDATE docwell.remote_item SET error_code = NULL, error = NULL, attempts = 0, retry_at = NULL
    WHERE source_id = %(source)s AND key = ANY (%(keys)s) AND retry_at IS NOT NULL
"""


def saw(connection: Connection[Any], source_id: int, keys: Sequence[str], listing: int) -> None:
    """These came, and nothing is done about them now."""
    if keys:
        connection.execute(_SAW, {"source": source_id, "keys": list(keys), "listing": listing})


def saw_unchanged(connection: Connection[Any], source_id: int, keys: Sequence[str], listing: int) -> None:
    """These came, and are as they are stored; what failed when somebody asked for them is over."""
    if keys:
        saw(connection, source_id, keys, listing)
        connection.execute(_MENDED, {"source": source_id, "keys": list(keys)})


_STORED: LiteralString = """
    INSERT INTO docwell.remote_item AS i (source_id, key, document_id, path, content, facts, listing)
    VALUES (%(source)s, %(key)s, %(document)s, %(path)s, %(content)s, %(facts)s, %(listing)s)
    ON CONFLICT (source_id, key) DO UPDATE SET
        document_id = excluded.document_id, path = excluded.path, content = coalesce(excluded.content, i.content),
        facts = excluded.facts, listing = greatest(i.listing, excluded.listing), gone_at = NULL,
        error_code = CASE WHEN excluded.content IS NULL THEN i.error_code END,
        error = CASE WHEN excluded.content IS NULL THEN i.error END,
        attempts = CASE WHEN excluded.content IS NULL THEN i.attempts ELSE 0 END,
        retry_at = CASE WHEN excluded.content IS NULL THEN i.retry_at END
"""
# One document is that of one thing: of another one that is gone it is no longer.
_DETACH: LiteralString = """
    DELETE FROM docwell.remote_item WHERE document_id = %(document)s AND (source_id, key) <> (%(source)s, %(key)s)
"""


def record_stored(
    connection: Connection[Any],
    source_id: int,
    key: str,
    *,
    document_id: uuid.UUID,
    path: str,
    content: str | None,
    facts: str,
    listing: int,
) -> None:
    """This thing is stored with these revisions, in the caller's transaction; with `content` None only what is said of it."""
    values = {
        "source": source_id,
        "key": key,
        "document": document_id,
        "path": path,
        "content": content,
        "facts": facts,
        "listing": listing,
    }
    connection.execute(_DETACH, values)
    connection.execute(_STORED, values)


_FAILED: LiteralString = """
    INSERT INTO docwell.remote_item AS i
        (source_id, key, document_id, path, content, facts, listing, error_code, error, attempts, retry_at)
    VALUES (%(source)s, %(key)s, %(document)s, %(path)s, %(content)s, %(facts)s, %(listing)s, %(code)s, %(error)s, 1, %(retry)s)
    ON CONFLICT (source_id, key) DO UPDATE SET
        document_id = coalesce(excluded.document_id, i.document_id), path = excluded.path,
        content = CASE WHEN %(final)s THEN excluded.content ELSE i.content END,
        facts = CASE WHEN %(final)s THEN excluded.facts ELSE i.facts END,
        listing = greatest(i.listing, excluded.listing), gone_at = NULL,
        error_code = excluded.error_code, error = excluded.error, attempts = i.attempts + 1, retry_at = excluded.retry_at
"""


def record_refused(
    connection: Connection[Any],
    source_id: int,
    key: str,
    *,
    document_id: uuid.UUID | None,
    path: str,
    content: str,
    facts: str,
    listing: int,
    code: str,
    error: str,
    retry_at: datetime | None = None,
) -> None:
    """This thing is not taken as it is: it is looked at again when its revisions change, or at `retry_at`."""
    values = {"document": document_id, "path": path, "content": content, "facts": facts, "listing": listing, "final": True}
    more = {"source": source_id, "key": key, "code": code, "error": error, "retry": retry_at}
    connection.execute(_FAILED, values | more)


def record_failed(
    connection: Connection[Any], source_id: int, key: str, *, path: str, listing: int, code: str, error: str, retry_at: datetime
) -> None:
    """This thing could not be taken: it is tried again at `retry_at`. What is stored of it stays."""
    values = {"document": None, "path": path, "content": None, "facts": None, "listing": listing, "final": False}
    more = {"source": source_id, "key": key, "code": code, "error": error[:2000], "retry": retry_at}
    connection.execute(_FAILED, values | more)


_SAW_BELOW: LiteralString = """
    UPDATE docwell.remote_item SET listing = greatest(listing, %(listing)s)
    WHERE source_id = %(source)s AND starts_with(path, %(path)s)
"""


def saw_below(connection: Connection[Any], source_id: int, path: str, listing: int) -> None:
    """What stands below this path was not listed: nobody knows whether it is there, so it counts as if it had come."""
    connection.execute(_SAW_BELOW, {"source": source_id, "path": path.rstrip("/") + "/", "listing": listing})


def forget(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> None:
    """These need not be remembered any more. Not for things that have a document."""
    connection.execute(
        "DELETE FROM docwell.remote_item WHERE source_id = %s AND key = ANY (%s) AND document_id IS NULL", (source_id, list(keys))
    )


_FORGET_TROUBLE: LiteralString = """
    DELETE FROM docwell.remote_item WHERE source_id = %(source)s AND document_id IS NULL AND starts_with(key, %(below)s)
      AND (path = ANY (%(paths)s) OR split_part(reverse(key), '/', 1) = reverse(%(key)s) OR key = %(below)s || %(key)s)
"""


def forget_trouble(connection: Connection[Any], source_id: int, key: str, *, paths: Sequence[str]) -> None:
    """Forget that what stands below this thing could not be listed: its path, and the reason, may hold the thing's name."""
    bare = [re.sub(r"[.][^./]*$", "", path) for path in paths]
    values = {"source": source_id, "below": _BELOW, "key": key, "paths": [path for path in (*paths, *bare) if path]}
    connection.execute(_FORGET_TROUBLE, values)


_SOUND: LiteralString = """
    SELECT i.key FROM docwell.remote_item i JOIN docwell.document d USING (document_id)
    WHERE i.source_id = %s AND i.error IS NULL AND i.gone_at IS NULL AND i.content IS NOT NULL
      AND d.state NOT IN ('deleted', 'excluded')
    ORDER BY hashtext(i.key) LIMIT %s
"""


def sound(connection: Connection[Any], source_id: int, *, limit: int) -> list[str]:
    """Keys of some things that could be taken, from all over the source."""
    return [row[0] for row in connection.execute(_SOUND, (source_id, limit)).fetchall()]


def saw_gone(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> None:
    """The source says that these are gone. Those of which nothing is stored are forgotten."""
    values = {"source": source_id, "keys": list(keys)}
    connection.execute(
        "DELETE FROM docwell.remote_item WHERE source_id = %(source)s AND key = ANY (%(keys)s) AND document_id IS NULL", values
    )
    connection.execute(
        "UPDATE docwell.remote_item SET gone_at = now(), error_code = NULL, error = NULL, retry_at = NULL"
        " WHERE source_id = %(source)s AND key = ANY (%(keys)s) AND gone_at IS NULL",
        values,
    )


_KNOWN_BELOW: LiteralString = """
    SELECT t.key AS tree, o.key FROM docwell.remote_item t
    JOIN docwell.remote_item o ON o.source_id = t.source_id AND o.key <> t.key AND o.gone_at IS NULL
         AND starts_with(o.path, regexp_replace(t.path, '[.][^./]*$', '') || '/')
    WHERE t.source_id = %s AND t.key = ANY (%s) AND t.path <> '' ORDER BY o.path
"""


def known_below(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> dict[str, list[str]]:
    """What is known to stand below each of these: its path begins with theirs, without their ending. Without what has nothing."""
    found: dict[str, list[str]] = {}
    for tree, key in connection.execute(_KNOWN_BELOW, (source_id, list(keys))).fetchall():
        found.setdefault(tree, []).append(key)
    return found


def paths(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> dict[str, str]:
    """Where their source says that these are."""
    rows = connection.execute(
        "SELECT key, path FROM docwell.remote_item WHERE source_id = %s AND key = ANY (%s)", (source_id, list(keys))
    )
    return dict(rows.fetchall())


def not_in_listing(connection: Connection[Any], source_id: int, listing: int) -> list[str]:
    """Keys that are known and did not come in this whole listing."""
    rows = connection.execute(
        "SELECT key FROM docwell.remote_item WHERE source_id = %s AND listing < %s AND gone_at IS NULL ORDER BY key",
        (source_id, listing),
    )
    return [row[0] for row in rows]


_UNSURE: LiteralString = """
    SELECT i.key FROM docwell.remote_item i
    WHERE i.source_id = %(source)s AND i.key = ANY (%(keys)s) AND EXISTS (
        SELECT 1 FROM docwell.remote_item f WHERE f.source_id = i.source_id AND starts_with(f.key, %(below)s) AND f.path <> ''
        AND f.error IS NOT NULL AND starts_with(i.path, f.path || '/'))
"""


def unsure(connection: Connection[Any], source_id: int, keys: Sequence[str]) -> set[str]:
    """Those of these keys that stand below something below which not all could be listed."""
    rows = connection.execute(_UNSURE, {"source": source_id, "keys": list(keys), "below": _BELOW})
    return {row[0] for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneItem:
    """A thing that is gone, whose document is still served or waits."""

    key: str
    document_id: uuid.UUID
    path: str


_LEAVING: LiteralString = """
    SELECT i.key, i.document_id, d.path FROM docwell.remote_item i JOIN docwell.document d USING (document_id)
    WHERE i.source_id = %s AND i.gone_at IS NOT NULL AND d.state NOT IN ('deleted', 'excluded') ORDER BY d.path
"""


def leaving(connection: Connection[Any], source_id: int) -> list[GoneItem]:
    """Things that are gone and whose documents are not deleted yet."""
    with connection.cursor(row_factory=class_row(GoneItem)) as cursor:
        return cursor.execute(_LEAVING, (source_id,)).fetchall()


def due(connection: Connection[Any], source_id: int, now: datetime, *, limit: int) -> list[str]:
    """Keys that could not be taken and are to be tried again."""
    rows = connection.execute(
        "SELECT key FROM docwell.remote_item WHERE source_id = %s AND retry_at <= %s ORDER BY retry_at LIMIT %s",
        (source_id, now, limit),
    )
    return [row[0] for row in rows]


_DISPLACED: LiteralString = """
    SELECT i.document_id, i.path FROM docwell.remote_item i JOIN docwell.document d USING (document_id)
    WHERE i.source_id = %(source)s AND i.path <> d.path AND i.gone_at IS NULL AND d.state NOT IN ('deleted', 'excluded')
      AND NOT EXISTS (SELECT 1 FROM docwell.document o
                      WHERE o.source_id = %(source)s AND o.path = i.path AND o.state <> 'deleted')
    ORDER BY i.path
"""


def displaced(connection: Connection[Any], source_id: int) -> dict[uuid.UUID, str]:
    """Documents with a suffix whose own path has become free, and that path. Of several for one path the first."""
    found: dict[uuid.UUID, str] = {}
    for document_id, path in connection.execute(_DISPLACED, {"source": source_id}).fetchall():
        if path not in found.values():
            found[document_id] = path
    return found


def forget_facts(connection: Connection[Any], source_id: int, *, too_large: bool) -> None:
    """The source's settings changed: what is said of each thing is told anew, and `too_large` ones are judged anew."""
    connection.execute("UPDATE docwell.remote_item SET facts = NULL WHERE source_id = %s", (source_id,))
    if too_large:
        connection.execute(
            "UPDATE docwell.remote_item SET content = NULL WHERE source_id = %s AND error_code = 'too_large'", (source_id,)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedItem:
    """A thing that could not be taken, for people. A path that ends with `/…` stands for all that is below it."""

    key: str
    path: str
    code: str
    error: str
    attempts: int
    retry_at: datetime | None


_FAILURES: LiteralString = """
    SELECT CASE WHEN starts_with(key, %(below)s) THEN substr(key, length(%(below)s) + 1) ELSE key END AS key,
           CASE WHEN starts_with(key, %(below)s) THEN path || '/…' ELSE path END AS path,
           error_code AS code, error, attempts, retry_at
    FROM docwell.remote_item WHERE source_id = %(source)s AND error IS NOT NULL ORDER BY path, key
"""


def failures(connection: Connection[Any], source_id: int) -> list[FailedItem]:
    """What could not be taken, and why."""
    with connection.cursor(row_factory=class_row(FailedItem)) as cursor:
        return cursor.execute(_FAILURES, {"source": source_id, "below": _BELOW}).fetchall()


def count(connection: Connection[Any], source_id: int) -> Mapping[str, int]:
    """How many things are known, and how many of them could not be taken."""
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE gone_at IS NULL AND NOT starts_with(key, %s)), count(*) FILTER (WHERE error IS NOT NULL)"
        " FROM docwell.remote_item WHERE source_id = %s",
        (_BELOW, source_id),
    ).fetchone()
    return {"known": row[0], "failed": row[1]} if row else {}
