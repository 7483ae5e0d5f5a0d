"""What people call a document: its id, its path, its file, its URL, or `source:namespace:path` where that is not enough."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.listing import unknown_document
from shared.paths import readable
from shared.text import normalise_path

MOST_CANDIDATES = 20


class Ambiguous(Conflict):
    """A name that several documents answer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    document_id: uuid.UUID
    state: str
    name: str


_CANDIDATES: LiteralString = """
    SELECT d.document_id, d.state, concat_ws(':', s.name, n.name, d.path) AS name
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
"""
_BY_NAME: LiteralString = (
    _CANDIDATES
    + """
    WHERE d.path = %(path)s OR d.url = %(name)s
       OR (d.path = %(file)s AND s.type = 'manual')
       OR (s.root IS NOT NULL AND starts_with(%(file)s, rtrim(s.root, '/') || '/')
           AND d.path = substr(%(file)s, length(rtrim(s.root, '/')) + 2))
       OR (s.name = %(source)s AND n.name = %(namespace)s AND d.path = %(rest)s)
    ORDER BY name LIMIT %(limit)s
"""
)
_SIMILAR: LiteralString = (
    _CANDIDATES + " WHERE d.state <> 'deleted' AND right(d.path, length(%(ending)s)) = %(ending)s ORDER BY name LIMIT 3"
)


def resolve(connection: Connection[Any], name: str, *, directory: Path | None = None) -> uuid.UUID:
    """The id of the one document of this name; a relative file name is taken from `directory` too.

    A deleted document is meant only when no other answers to the name.

    Raises:
        Unknown: none answers to it.
        Ambiguous: several do; the message lists them as `source:namespace:path`, which names one alone.
    """
    try:
        return _by_id(connection, uuid.UUID(name))
    except ValueError:
        pass
    found = _by_name(connection, name, directory)
    living = [one for one in found if one.state != "deleted"] or found
    if len(living) == 1:
        return living[0].document_id
    if not living:
        raise unknown_document(name, _hint(connection, name))
    listed = "\n".join(f"  {one.name}" for one in living[:MOST_CANDIDATES])
    raise Ambiguous(f"Several documents are called {name!r}. Name one of them in full, or by its id:\n{listed}", code="ambiguous")


def _by_id(connection: Connection[Any], document_id: uuid.UUID) -> uuid.UUID:
    if connection.execute("SELECT 1 FROM docwell.document WHERE document_id = %s", (document_id,)).fetchone() is None:
        raise unknown_document(str(document_id))
    return document_id


def _by_name(connection: Connection[Any], name: str, directory: Path | None) -> Sequence[_Candidate]:
    name = readable(name.replace("\0", ""))
    file = os.path.normpath(readable(str(directory / name))) if directory is not None else name
    source, namespace, rest = [*name.split(":", 2), None, None][:3]
    values = {
        "name": name,
        "path": normalise_path(name),
        "file": normalise_path(file),
        "source": source,
        "namespace": namespace,
        "rest": None if rest is None else normalise_path(rest),
        "limit": MOST_CANDIDATES + 1,
    }
    with connection.cursor(row_factory=class_row(_Candidate)) as cursor:
        return cursor.execute(_BY_NAME, values).fetchall()


def _hint(connection: Connection[Any], name: str) -> str:
    ending = normalise_path(readable(name.replace("\0", ""))).rsplit("/", 1)[-1]
    with connection.cursor(row_factory=class_row(_Candidate)) as cursor:
        similar = cursor.execute(_SIMILAR, {"ending": ending}).fetchall() if ending else []
    return "".join([" Did you mean:", *(f"\n  {one.name}" for one in similar)]) if similar else ""
