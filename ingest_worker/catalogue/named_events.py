"""What events of a source's webhook say of a document, and what is remembered of things without one, when it is erased."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, LiteralString

import orjson
from psycopg import Connection

from ingest_worker.catalogue import events, remote_items

_SHORTEST_NAME = 3
"""Characters of a title or file name that is looked for within longer texts."""

_LETTERS_AND_NUMBER = re.compile(r"[A-Za-z]+([0-9]+)")

_DOCUMENT: LiteralString = """
    SELECT i.source_id, i.key, i.path, d.path, coalesce(d.title, '') FROM docwell.remote_item i
    JOIN docwell.document d USING (document_id) WHERE d.document_id = %s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How an event may call a document: ids that stand for themselves, and names that may stand within a longer text."""

    ids: frozenset[str]
    names: frozenset[str]


def names_of(key: str, *, paths: tuple[str, ...], title: str) -> Names:
    """The names of a thing: its key, the key's last part (an item of a drive) and number (an attachment), title and file name."""
    ids = {key, key.rpartition("/")[2]}
    ids |= {found[1] for one in tuple(ids) if (found := _LETTERS_AND_NUMBER.fullmatch(one))}
    names = {title.strip(), *(PurePosixPath(path).name for path in paths), *(PurePosixPath(path).stem for path in paths)}
    return Names(ids=frozenset(ids), names=frozenset(name for name in names if len(name) >= _SHORTEST_NAME))


def is_named(body: bytes, names: Names) -> bool:
    """Whether an event's body names this document. Pure."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body.decode("utf-8", "replace")
        return any(one in said for one in (*names.ids, *names.names))
    return any(text in names.ids or any(name in text for name in names.names) for text in _texts(said))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def forget(connection: Connection[Any], document_id: uuid.UUID) -> int:
    """Empty all events that name a document, in the caller's transaction; returns of how many that is.

    What could not be listed below it, which is remembered by its name, is forgotten too.
    """
    row = connection.execute(_DOCUMENT, (document_id,)).fetchone()
    if row is None:
        return 0
    source_id, key, path, stored, title = row
    remote_items.forget_trouble(connection, source_id, key, paths=(path, stored))
    names = names_of(key, paths=(path, stored), title=title)
    found = [event_id for event_id, body in events.bodies(connection, source_id) if is_named(body, names)]
    if found:
        events.empty(connection, found)
    return len(found)
