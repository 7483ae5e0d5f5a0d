"""Document and version rows: asked for, read, moved, deleted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, LiteralString

import orjson
from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Json

from ingest_worker.catalogue.settling import ROLLED_BACK, supersede
from ingest_worker.catalogue.sources import Source, ensure_audience
from ingest_worker.jobs import table as jobs
from shared.paths import document_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A file as somebody saw it: its name under the source's root, its size in bytes and its mtime in nanoseconds."""

    name: str
    size: int | None = None
    modified_ns: int | None = None

    @property
    def path(self) -> str:
        """The document's path: NFC, `/`, bytes that are no UTF-8 as `%E9`."""
        return document_path(self.name)

    @property
    def locator(self) -> bytes | None:
        """The name on disk where it differs from the path's UTF-8, else None."""
        raw = os.fsencode(self.name)
        return None if raw == self.path.encode("utf-8") else raw


_UPSERT = """
    INSERT INTO docwell.document AS d
        (source_id, namespace_id, audience_id, path, locator, tags)
    SELECT %(source)s, %(namespace)s, %(audience)s, path, locator, %(tags)s
    FROM unnest(%(paths)s::text[], %(locators)s::bytea[]) AS seen (path, locator)
    ORDER BY path
    ON CONFLICT (source_id, namespace_id, path) DO UPDATE SET
        state = CASE WHEN d.state = 'indexing' THEN d.state ELSE 'queued' END,
        locator = excluded.locator, tags = excluded.tags, pin_yields = true, changed_at = now()
    WHERE d.state <> 'excluded'
    RETURNING path, document_id
"""


# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOBS = """
    SELECT 1 FROM docwell.job j JOIN docwell.document d USING (document_id)
    WHERE d.source_id = %(source)s AND d.namespace_id = %(namespace)s AND d.path = ANY (%(paths)s)
      AND j.state IN ('queued', 'running', 'retrying')
    ORDER BY j.job_id
    FOR UPDATE OF j
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a request to take files in came to: the document and the job of each path."""

    documents: dict[str, uuid.UUID] = field(default_factory=dict)
    jobs: dict[uuid.UUID, uuid.UUID] = field(default_factory=dict)


def request_ingest(
    connection: Connection[Any],
    source: Source,
    namespace_id: int,
    seen: Sequence[Observed],
    *,
    tags: Sequence[str] = (),
    max_attempts: int = 5,
) -> Requested:
    """Make the documents known and give each one live job, in the caller's transaction. Excluded ones are left out.

    The size and time are kept only for a new document: a known one keeps those of the bytes that were read last, so that
    a job that is lost on the way is asked for again by the next sweep.
    """
    by_path = {one.path: one for one in seen}
    ordered = [by_path[path] for path in sorted(by_path)]
    audience = ensure_audience(connection, namespace_id, source.readers, restricted=source.readers is not None)
    values = {
        "source": source.source_id,
        "namespace": namespace_id,
        "audience": audience,
        "tags": sorted({*source.tags, *tags}),
        "paths": [one.path for one in ordered],
        "locators": [one.locator for one in ordered],
    }
    connection.execute(_HOLD_JOBS, values)
    rows = connection.execute(_UPSERT, values).fetchall()
    documents = {str(path): document for path, document in rows}
    return Requested(documents=documents, jobs=jobs.enqueue(connection, list(documents.values()), max_attempts=max_attempts))


def request_delete(
    connection: Connection[Any], documents: Sequence[uuid.UUID], *, look_again: bool = True, max_attempts: int = 5
) -> int:
    """Queue the deletion of these documents; returns how many.

    `look_again`: a watcher missed the file, and the job looks whether it is really gone. Otherwise a person has asked.
    """
    kind = "ingest" if look_again else "delete"
    live = [
        row[0]
        for row in connection.execute(
            "SELECT document_id FROM docwell.document WHERE document_id = ANY (%s) AND state NOT IN ('deleted', 'excluded')",
            (list(documents),),
        ).fetchall()
    ]
    return len(jobs.enqueue(connection, live, kind=kind, max_attempts=max_attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDocument:
    """What a sweep compares a file with."""

    document_id: uuid.UUID
    path: str
    size: int | None
    modified_ns: int | None
    sha256: bytes | None
    state: str


def find_documents(connection: Connection[Any], source_id: int, paths: Sequence[str]) -> dict[str, KnownDocument]:
    """The documents at these paths of the source, deleted ones left out."""
    with connection.cursor(row_factory=class_row(KnownDocument)) as cursor:
        rows = cursor.execute(
            "SELECT document_id, path, size, modified_ns, sha256, state FROM docwell.document"
            " WHERE source_id = %s AND path = ANY (%s) AND state <> 'deleted'",
            (source_id, list(paths)),
        ).fetchall()
    return {row.path: row for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument:
    """All that a job needs to know of its document.

    `only_captions`: its latest version has no text of its own. `enrich`: its source lets it go to a paid service.
    """

    document_id: uuid.UUID
    source_id: int
    source: str
    source_type: str
    root: str | None
    namespace_id: int
    namespace: str
    audience_id: int
    readers: list[str] | None
    source_readers: list[str] | None
    max_bytes: int | None
    path: str
    locator: bytes | None
    state: str
    sha256: bytes | None
    latest_version: int | None
    latest_state: str | None
    latest_fingerprint: str | None
    served_version: int | None
    pinned_version: int | None
    contexts_asked: bool = False
    reprocess: bool = False
    enrich: bool = True
    captions_asked: bool = False
    has_captions: bool = False
    only_captions: bool = False


_FOR_JOBS = """
    SELECT d.document_id, d.source_id, s.name AS source, s.type AS source_type, s.root, d.namespace_id, n.name AS namespace,
           d.audience_id, d.readers, s.readers AS source_readers, s.max_bytes, d.path, d.locator, d.state, d.sha256,
           d.latest_version, v.state AS latest_state, v.fingerprint AS latest_fingerprint, d.served_version, d.pinned_version,
           coalesce(e.asked, false) AS contexts_asked, d.reprocess, s.enrich, coalesce(c.asked, false) AS captions_asked,
           EXISTS (SELECT FROM docwell.caption k WHERE k.document_id = d.document_id AND k.caption IS NOT NULL) AS has_captions,
           coalesce(v.reason_code = 'captions_only', false) AS only_captions
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    LEFT JOIN docwell.version v ON v.document_id = d.document_id AND v.number = d.latest_version
    LEFT JOIN docwell.enrichment e ON e.document_id = d.document_id
    LEFT JOIN docwell.captioning c ON c.document_id = d.document_id
    WHERE d.document_id = ANY (%s)
"""


def for_jobs(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> dict[uuid.UUID, JobDocument]:
    """The documents of these jobs; those that were erased are not there."""
    with connection.cursor(row_factory=class_row(JobDocument)) as cursor:
        rows = cursor.execute(_FOR_JOBS, (list(documents),)).fetchall()
    return {row.document_id: row for row in rows}


def for_job(connection: Connection[Any], document_id: uuid.UUID) -> JobDocument | None:
    """The document of a job, or None when it was erased."""
    return for_jobs(connection, [document_id]).get(document_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file's bytes as they were read, with the facts that prove that nobody wrote meanwhile.

    `ending` (`.md`) tells the format where the path has none, as a sender said it. `heading` is what it stands under at its
    source, from the outermost in.
    """

    data: bytes
    sha256: bytes
    size: int
    modified_ns: int | None = None
    ending: str = ""
    heading: tuple[str, ...] = ()

    @property
    def modified(self) -> datetime | None:
        """When the source last changed it."""
        return None if self.modified_ns is None else datetime.fromtimestamp(self.modified_ns / 1e9, UTC)


_BEGIN_VERSIONS = """
    WITH new AS (
        SELECT document_id, audience_id, number, decode(sha256, 'hex') AS sha256, size, modified_ns, source_modified, fingerprint
        FROM json_to_recordset(%s) AS new (document_id uuid, audience_id integer, number integer, sha256 text, size bigint,
            modified_ns bigint, source_modified timestamptz, fingerprint text)
    ), documents AS (
        UPDATE docwell.document d SET
            -- A rollback that came before this request to read, and whose bytes these are not, is over.
            pinned_version = CASE WHEN d.pin_yields AND d.sha256 IS DISTINCT FROM new.sha256 THEN NULL
                                  ELSE d.pinned_version END,
            reprocess = false, state = 'indexing', latest_version = new.number, sha256 = new.sha256, size = new.size,
            modified_ns = new.modified_ns, source_modified = new.source_modified, changed_at = now()
        FROM new WHERE d.document_id = new.document_id
    )
    INSERT INTO docwell.version (document_id, audience_id, number, sha256, size, source_modified, fingerprint)
    SELECT document_id, audience_id, number, sha256, size, source_modified, fingerprint FROM new
    ON CONFLICT (document_id, number) DO UPDATE SET
        audience_id = excluded.audience_id, state = 'indexing', reason_code = NULL, reason = NULL,
        fingerprint = excluded.fingerprint
    RETURNING document_id, version_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Bytes that become a version of their document."""

    document: JobDocument
    content: Content
    audience_id: int
    fingerprint: str

    @property
    def number(self) -> int:
        """The version's number. The same bytes tried again keep theirs."""
        document = self.document
        latest = document.latest_version
        if latest is None:
            return 1
        fresh = document.sha256 != self.content.sha256 or document.latest_state in {"indexed", "partial"}
        return latest + fresh


def begin_versions(connection: Connection[Any], beginnings: Sequence[Beginning]) -> dict[uuid.UUID, int]:
    """The versions that these bytes become: `{document_id: version_id}`."""
    new = [
        {
            "document_id": one.document.document_id,
            "audience_id": one.audience_id,
            "number": one.number,
            "sha256": one.content.sha256.hex(),
            "size": one.content.size,
            "modified_ns": one.content.modified_ns,
            "source_modified": one.content.modified,
            "fingerprint": one.fingerprint,
        }
        for one in beginnings
    ]
    unfinished = [one.document for one in beginnings if one.document.latest_state == "indexing"]
    supersede(connection, [document.document_id for document in unfinished])
    return dict(connection.execute(_BEGIN_VERSIONS, (Json(new, dumps=orjson.dumps),)).fetchall())


_UNCHANGED: LiteralString = f"""
    UPDATE docwell.document d SET
        state = CASE WHEN seen.again THEN 'queued' ELSE v.state END,
        reason_code = CASE WHEN d.served_version < d.latest_version THEN 'rolled_back' ELSE v.reason_code END,
        reason = CASE WHEN d.served_version < d.latest_version THEN concat_ws(' ', {ROLLED_BACK}, v.reason) ELSE v.reason END,
        size = seen.size, modified_ns = seen.modified_ns, changed_at = now(),
        source_modified = CASE WHEN d.served_version < d.latest_version THEN d.source_modified ELSE seen.modified END
    FROM unnest(%(documents)s::uuid[], %(sizes)s::bigint[], %(times)s::bigint[], %(modified)s::timestamptz[],
        %(again)s::boolean[]) AS seen (document_id, size, modified_ns, modified, again)
    JOIN docwell.version v USING (document_id)
    WHERE d.document_id = seen.document_id AND v.number = coalesce(d.served_version, d.latest_version)
"""  # noqa: S608 - a LiteralString, as the type checker proves


def record_unchanged(connection: Connection[Any], contents: Mapping[uuid.UUID, Content], *, again: Collection[uuid.UUID]) -> None:
    """The bytes are those of the latest versions: only the facts of the files are brought up to date. `again` run once more."""
    connection.execute(
        _UNCHANGED,
        {
            "documents": list(contents),
            "sizes": [content.size for content in contents.values()],
            "times": [content.modified_ns for content in contents.values()],
            "modified": [content.modified for content in contents.values()],
            "again": [document_id in again for document_id in contents],
        },
    )


def record_seen(connection: Connection[Any], document_id: uuid.UUID, *, size: int | None, modified_ns: int | None) -> None:
    """Keep size (bytes) and time (ns) of a file that was seen and not read: a sweep asks again only after a change."""
    connection.execute(
        "UPDATE docwell.document SET size = %s, modified_ns = %s WHERE document_id = %s", (size, modified_ns, document_id)
    )


def record_queued(connection: Connection[Any], *documents: uuid.UUID) -> None:
    """The jobs of these documents are queued to run again."""
    if documents:
        connection.execute("UPDATE docwell.document SET state = 'queued' WHERE document_id = ANY (%s)", (list(documents),))


_FAILED_DOCUMENT = """
    UPDATE docwell.document SET
        state = %(state)s, reason_code = %(code)s, reason = %(reason)s,
        modified_ns = CASE WHEN %(forget)s THEN NULL ELSE modified_ns END, changed_at = now()
    WHERE document_id = %(document)s AND state NOT IN ('deleted', 'excluded')
"""
_FAILED_VERSION = """
    UPDATE docwell.version v SET state = 'failed', reason_code = %(code)s, reason = %(reason)s
    FROM docwell.document d
    WHERE d.document_id = %(document)s AND v.document_id = d.document_id AND v.number = d.latest_version
      AND v.state = 'indexing'
"""


def record_failure(
    connection: Connection[Any], document_id: uuid.UUID, *, state: str, code: str, reason: str, permanent: bool
) -> None:
    """A job of the document failed: `queued` when it is tried again, `failed` when not. What was served stays served.

    After a failure that was not the bytes' fault the time of the file is forgotten, so that the next sweep asks again.
    """
    forget = state == "failed" and not permanent
    values = {"document": document_id, "state": state, "code": code, "reason": reason[:2000], "forget": forget}
    connection.execute(_FAILED_DOCUMENT, values)
    if state == "failed":
        connection.execute(_FAILED_VERSION, values)
