"""What the question is about: a document, a file on disk, or a name that nothing answers to."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import listing, overview
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.catalogue.listing import DocumentRow
from ingest_worker.catalogue.naming import Ambiguous, resolve
from ingest_worker.catalogue.overview import SourceRow
from ingest_worker.catalogue.sources import MANUAL
from ingest_worker.intake.observe import disk_name
from shared.paths import document_path, readable
from shared.text import normalise_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """`document` when there is one, else `source` and `name` when a source's folder holds, or left out, such a file.

    `name` is the file's name on disk, relative to its source's folder; absolute for a file that was named by hand, and for one
    that lies in no source's folder.
    """

    asked: str
    document: DocumentRow | None = None
    source: SourceRow | None = None
    name: str | None = None
    hint: str = ""

    @property
    def file(self) -> Path | None:
        """Where the file stands, or should."""
        if self.name is None:
            return None
        if self.source is not None and self.source.root is not None:
            return Path(self.source.root) / self.name
        return Path(self.name)

    @property
    def path(self) -> str | None:
        """The document's path."""
        if self.document is not None:
            return self.document.path
        return None if self.name is None else document_path(self.name)


_BY_FILE_NAME: LiteralString = """
    SELECT d.document_id, concat_ws(':', s.name, n.name, d.path)
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE right(d.path, length(%(ending)s)) = %(ending)s AND d.state <> 'deleted'
    ORDER BY d.path LIMIT 21
"""
_AT: LiteralString = """
    SELECT d.document_id FROM docwell.document d JOIN docwell.source s USING (source_id)
    WHERE s.name = %(source)s AND d.path = %(path)s
"""
_LEFT_OUT: LiteralString = """
    SELECT s.name, l.path FROM docwell.left_out l JOIN docwell.source s USING (source_id)
    WHERE l.path = %(path)s OR right(l.path, length(%(ending)s)) = %(ending)s
    ORDER BY l.path = %(path)s DESC, s.name, l.path LIMIT 1
"""
_LOCATOR: LiteralString = "SELECT locator FROM docwell.document WHERE document_id = %s"


def find_subject(connection: Connection[Any], name: str, *, directory: Path) -> Subject:
    """What `name` means: an id, a path, a URL, a file on disk (relative to `directory`, or to a source's folder), or the bare
    name of a file.

    Raises:
        Ambiguous: several documents answer to it; the message lists them.
    """
    sources = overview.list_sources(connection)
    try:
        return _of_document(connection, name, resolve(connection, name, directory=directory), sources)
    except Unknown as error:
        hint = str(error).partition("\n")[2]
    found = _on_disk(name, directory, sources)
    if found is not None and found.source is not None:
        # The way there may have gone through a link: its document is called by where its source's folder is.
        document_id = _in_source(connection, found)
        return found if document_id is None else _of_document(connection, name, document_id, sources)
    by_name = _by_file_name(connection, name)
    if by_name is not None:
        return _of_document(connection, name, by_name, sources)
    if found is not None:
        return found
    return _left_out(connection, name, sources) or Subject(asked=name, hint=hint)


def _of_document(connection: Connection[Any], asked: str, document_id: uuid.UUID, sources: Sequence[SourceRow]) -> Subject:
    document = listing.get_document(connection, document_id)
    source = next(source for source in sources if source.name == document.source)
    row = connection.execute(_LOCATOR, (document_id,)).fetchone()
    on_disk = source.type in {"folder", MANUAL}
    name = disk_name(document.path, row[0] if row is not None else None) if on_disk else None
    return Subject(asked=asked, document=document, source=source, name=name)


def _on_disk(name: str, directory: Path, sources: Sequence[SourceRow]) -> Subject | None:
    if "\0" in name or not name:
        return None
    # Not resolve(): a link is a document of its own name.
    absolute = os.path.normpath(directory / name)
    folders = sorted(
        (source for source in sources if source.type == "folder" and source.root), key=lambda one: -len(one.root or "")
    )
    for source in folders:
        root = str(source.root).rstrip("/")
        for lead in dict.fromkeys((root, os.path.realpath(root))):
            for file in (absolute, os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))):  # noqa: PTH118, PTH119, PTH120
                if file.startswith(lead + "/") and os.path.lexists(file):
                    return Subject(asked=name, source=source, name=file[len(lead) + 1 :])
    for source in folders:
        inside = os.path.normpath(name)
        if not inside.startswith(("/", "..")) and os.path.lexists(f"{source.root}/{inside}"):
            return Subject(asked=name, source=source, name=inside)
    return Subject(asked=name, name=absolute) if os.path.lexists(absolute) else None


def _in_source(connection: Connection[Any], found: Subject) -> uuid.UUID | None:
    row = connection.execute(_AT, {"source": found.source and found.source.name, "path": found.path}).fetchone()
    return None if row is None else row[0]


def _by_file_name(connection: Connection[Any], name: str) -> uuid.UUID | None:
    ending = "/" + normalise_path(readable(name.replace("\0", ""))).strip("/")
    if ending == "/":
        return None
    rows = connection.execute(_BY_FILE_NAME, {"ending": ending}).fetchall()
    if len(rows) > 1:
        listed = "\n".join(f"  {row[1]}" for row in rows[:20])
        raise Ambiguous(
            f"Several documents are called {name!r}. Name one of them in full, or by its id:\n{listed}", code="ambiguous"
        )
    return rows[0][0] if rows else None


def _left_out(connection: Connection[Any], name: str, sources: Sequence[SourceRow]) -> Subject | None:
    path = normalise_path(readable(name.replace("\0", "")))
    row = connection.execute(_LEFT_OUT, {"path": path, "ending": "/" + path}).fetchone() if path else None
    if row is None:
        return None
    return Subject(asked=name, source=next(source for source in sources if source.name == row[0]), name=row[1])
