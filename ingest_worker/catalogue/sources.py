"""Namespaces, audiences and sources: where documents belong and who may read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue import without_vector
from shared.config import FolderSettings
from shared.errors import PermanentError

MANUAL = "manual"
PUSH = "push"
INBOX = "inbox"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place that documents come from. `namespace_id` is None where each request names its own (manual, push)."""

    source_id: int
    name: str
    type: str
    namespace_id: int | None
    namespace: str | None
    root: str | None
    tags: list[str]
    readers: list[str] | None
    paused: bool
    newest_sweep: datetime | None
    sweep_error: str | None
    sweep_requested: datetime | None = None
    approved_at: datetime | None = None
    removed_at: datetime | None = None

    @property
    def rests(self) -> bool:
        """A person said that nothing is to be taken from it: for a while, or until it is configured and started again."""
        return self.paused or self.removed_at is not None

    @property
    def root_path(self) -> Path:
        """The folder of a folder source."""
        if self.root is None:
            raise PermanentError(f"Source {self.name} has no folder.", code="no_root")
        return Path(self.root)


_ENSURE_NAMESPACE = """
    WITH made AS (
        INSERT INTO docwell.namespace (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING RETURNING namespace_id
    )
    SELECT namespace_id FROM made UNION ALL SELECT namespace_id FROM docwell.namespace WHERE name = %(name)s LIMIT 1
"""


def ensure_namespace(connection: Connection[Any], name: str) -> int:
    """The namespace's number, made when it is new."""
    row = connection.execute(_ENSURE_NAMESPACE, {"name": name}).fetchone()
    if row is None:  # another transaction made it after our snapshot: it is there now
        row = connection.execute("SELECT namespace_id FROM docwell.namespace WHERE name = %s", (name,)).fetchone()
    if row is None:
        raise PermanentError(f"The namespace {name!r} could not be made.", code="bad_namespace")
    return int(row[0])


_ENSURE_AUDIENCE = """
    INSERT INTO docwell.audience AS a (namespace_id, readers, restricted)
    VALUES (%(namespace)s, %(readers)s, %(restricted)s)
    ON CONFLICT (namespace_id, readers, restricted) DO UPDATE SET readers = a.readers
    RETURNING audience_id
"""
_FIND_AUDIENCE = """
    SELECT audience_id FROM docwell.audience
    WHERE namespace_id = %(namespace)s AND readers = %(readers)s AND restricted = %(restricted)s
"""


def ensure_audience(connection: Connection[Any], namespace_id: int, readers: Sequence[str] | None, *, restricted: bool) -> int:
    """The audience's number for this set of readers in this namespace, made when it is new.

    Without readers an unrestricted audience is open to its namespace and a restricted one to nobody.
    """
    values = {"namespace": namespace_id, "readers": sorted(set(readers or ())), "restricted": restricted}
    row = connection.execute(_FIND_AUDIENCE, values).fetchone() or connection.execute(_ENSURE_AUDIENCE, values).fetchone()
    if row is None:
        raise PermanentError(f"The audience of namespace {namespace_id} could not be made.", code="bad_audience")
    return int(row[0])


_COLUMNS = """
    SELECT s.source_id, s.name, s.type, s.namespace_id, n.name AS namespace, s.root, s.tags, s.readers, s.paused,
           s.newest_sweep, s.sweep_error, s.sweep_requested, s.approved_at, s.removed_at
    FROM docwell.source s LEFT JOIN docwell.namespace n USING (namespace_id)
"""


def list_sources(connection: Connection[Any]) -> list[Source]:
    """All sources by name."""
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        return cursor.execute(_COLUMNS + " ORDER BY s.name").fetchall()


def get_source(connection: Connection[Any], name: str) -> Source | None:
    """The source of this name."""
    with connection.cursor(row_factory=class_row(Source)) as cursor:
        return cursor.execute(_COLUMNS + " WHERE s.name = %s", (name,)).fetchone()


# A source that was taken out is back, and when nothing of it is left it may be of another type or namespace.
_UPSERT_SOURCE = """
    INSERT INTO docwell.source AS s (name, type, namespace_id, root, tags, readers, max_bytes, enrich, embed_anyway)
    VALUES (%(name)s, %(type)s, %(namespace)s, %(root)s, %(tags)s, %(readers)s, %(max_bytes)s, %(enrich)s, %(embed_anyway)s)
    ON CONFLICT (name) DO UPDATE SET
        root = excluded.root, tags = excluded.tags, readers = excluded.readers, max_bytes = excluded.max_bytes,
        enrich = excluded.enrich, embed_anyway = excluded.embed_anyway,
        (type, namespace_id) = (
            SELECT CASE WHEN is_free THEN excluded.type ELSE s.type END,
                   CASE WHEN is_free THEN excluded.namespace_id ELSE s.namespace_id END
            FROM (SELECT s.removed_at IS NOT NULL AND NOT EXISTS (
                      SELECT 1 FROM docwell.document d
                      WHERE d.source_id = s.source_id AND d.state NOT IN ('deleted', 'excluded')) AS is_free) AS held),
        newest_sweep = CASE WHEN s.removed_at IS NULL THEN s.newest_sweep END,
        removed_at = NULL
    RETURNING type, namespace_id
"""


_IS_CONFINED = "SELECT FROM docwell.source WHERE name = %s AND NOT enrich AND NOT embed_anyway"


def ensure_source(
    connection: Connection[Any],
    name: str,
    *,
    kind: str,
    namespace: str | None = None,
    root: Path | None = None,
    tags: Sequence[str] = (),
    readers: Sequence[str] | None = None,
    max_bytes: int | None = None,
    enrich: bool = True,
    embed_anyway: bool = False,
) -> Source:
    """The source with these facts, made or brought up to date.

    Raises:
        PermanentError: the name belongs to a source of another type or namespace.
    """
    values = {
        "name": name,
        "type": kind,
        "namespace": None if namespace is None else ensure_namespace(connection, namespace),
        "root": None if root is None else str(root),
        "tags": list(tags),
        "readers": None if readers is None else sorted(set(readers)),
        "max_bytes": max_bytes,
        "enrich": enrich,
        "embed_anyway": embed_anyway,
    }
    was_confined = connection.execute(_IS_CONFINED, (name,)).fetchone() is not None
    row = connection.execute(_UPSERT_SOURCE, values).fetchone()
    if row is not None and (row[0], row[1]) != (kind, values["namespace"]):
        raise PermanentError(
            f"The source {name!r} exists already with another type or namespace. Give the new one another name.",
            code="source_exists",
        )
    source = get_source(connection, name)
    if source is None:
        raise PermanentError(f"The source {name!r} could not be made.", code="source_missing")
    if was_confined and (enrich or embed_anyway):
        without_vector.source_freed(connection, source.source_id)
    return source


_CONFINE = """
    UPDATE docwell.source SET enrich = %(enrich)s, embed_anyway = %(embed_anyway)s
    WHERE source_id = %(source)s AND (enrich, embed_anyway) IS DISTINCT FROM (%(enrich)s, %(embed_anyway)s)
"""


def set_confinement(connection: Connection[Any], source: Source, *, enrich: bool, embed_anyway: bool) -> None:
    """Say anew what of a source may go to paid services, in a transaction of the caller's; nothing else of it changes."""
    was_confined = connection.execute(_IS_CONFINED, (source.name,)).fetchone() is not None
    connection.execute(_CONFINE, {"source": source.source_id, "enrich": enrich, "embed_anyway": embed_anyway})
    if was_confined and (enrich or embed_anyway):
        without_vector.source_freed(connection, source.source_id)


def ensure_folder_source(connection: Connection[Any], settings: FolderSettings) -> Source:
    """A folder source as `[[sources]]` describes it."""
    return ensure_source(
        connection,
        settings.name,
        kind=settings.type,
        namespace=settings.namespace,
        root=settings.root,
        tags=settings.tags,
        readers=settings.readers,
        max_bytes=settings.max_bytes,
        enrich=settings.enrich,
        embed_anyway=settings.embed == "anyway",
    )
