"""Entries of a source that are not taken, and why, as its newest sweep found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, LiteralString, NamedTuple

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.asking import Page, cut, read_cursor, write_cursor


class Cause(StrEnum):
    """Why an entry is not taken."""

    IGNORED = "ignored"
    EMPTY = "empty"
    LINK = "link"
    SPECIAL = "special"
    """A named pipe, a socket or a device."""
    UNREADABLE = "unreadable"
    SAME_NAME = "same_name"
    LONG_PATH = "long_path"


class Why(NamedTuple):
    """The cause, and the pattern or reason in words that a person can act on."""

    cause: Cause
    rule: str


_KNOWN: LiteralString = "SELECT path, cause, rule FROM docwell.left_out WHERE source_id = %s"
_FORGET: LiteralString = "DELETE FROM docwell.left_out WHERE source_id = %s AND path = ANY (%s)"
_REMEMBER: LiteralString = """
    INSERT INTO docwell.left_out (source_id, path, cause, rule)
    SELECT %(source)s, * FROM unnest(%(paths)s::text[], %(causes)s::text[], %(rules)s::text[])
    ON CONFLICT (source_id, path) DO UPDATE SET cause = excluded.cause, rule = excluded.rule
"""


def replace_left_out(connection: Connection[Any], source_id: int, entries: Mapping[str, Why]) -> None:
    """Keep these entries, by path, instead of those of the sweep before; only differences are written.

    An entry that is left out as before keeps the time at which it was found first.
    """
    known = {path: (cause, rule) for path, cause, rule in connection.execute(_KNOWN, (source_id,)).fetchall()}
    gone = [path for path in known if path not in entries]
    new = {path: why for path, why in entries.items() if known.get(path) != (why.cause.value, why.rule)}
    if gone:
        connection.execute(_FORGET, (source_id, gone))
    if new:
        values = {
            "source": source_id,
            "paths": list(new),
            "causes": [why.cause.value for why in new.values()],
            "rules": [why.rule for why in new.values()],
        }
        connection.execute(_REMEMBER, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRow:
    """An entry that is not taken. The path of a folder ends with `/` and stands for all below it."""

    path: str
    cause: str
    rule: str
    found_at: datetime


_LIST: LiteralString = """
    SELECT path, cause, rule, found_at FROM docwell.left_out
    WHERE source_id = %(source)s AND (%(after)s::text IS NULL OR path > %(after)s)
    ORDER BY path LIMIT %(limit)s
"""


def list_left_out(
    connection: Connection[Any], source_id: int, *, limit: int | None = None, cursor: str | None = None
) -> Page[LeftOutRow]:
    """What a source left out, by path: all that is remembered, or `limit` after `cursor`.

    Raises:
        BadQuestion: the cursor is none of this list.
    """
    values = {
        "source": source_id,
        "after": None if cursor is None else read_cursor(cursor, 1)[0],
        "limit": None if limit is None else limit + 1,
    }
    with connection.cursor(row_factory=class_row(LeftOutRow)) as rows:
        found, more = cut(rows.execute(_LIST, values).fetchall(), limit)
    return Page(rows=found, next_cursor=write_cursor(found[-1].path) if more else None)
