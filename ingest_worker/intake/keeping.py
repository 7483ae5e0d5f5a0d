"""Documents whose bytes are kept here: what somebody pushed, or what was read from a source over the network.

Bytes, facts and job are stored in one transaction, so that workers, retries and re-runs have the bytes without asking anybody.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection, errors
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from ingest_worker.catalogue import fetches
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.chunks import raise_version
from ingest_worker.catalogue.erasures import Place, refuse_erased
from ingest_worker.catalogue.sources import Source, ensure_audience
from ingest_worker.catalogue.terms import Weight
from ingest_worker.catalogue.twins import duplicate_of
from ingest_worker.jobs import table as jobs
from shared.errors import DocwellError

again_after_conflict = retry(
    retry=retry_if_exception_type((errors.DeadlockDetected, errors.SerializationFailure)),
    stop=stop_after_attempt(3),
    reraise=True,
)
"""A transaction that stores a document and a publisher may meet on the same rows; the loser begins again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the sender says of a document. `given` names the facts that it spoke of at all: the others stay as they are."""

    given: frozenset[str] = frozenset()
    title: str | None = None
    url: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    readers: tuple[str, ...] | None = None
    source_modified: datetime | None = None
    media_type: str | None = None
    heading: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A document as it was pushed or read: `content` is zlib, `sha256` and `size` are those of the bytes in it.

    With `fetch`, an address that a worker is to fetch the bytes from, there are none yet: what is served stays so until then.
    With `content` None the bytes are those that are kept, and only the facts are told.
    """

    namespace: str
    path: str
    content: bytes | None = b""
    sha256: bytes = b""
    size: int = 0
    facts: Facts = Facts()
    fetch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a push came to. `changed` is False when bytes and facts are as before; then `job_id` is that of the newest job.

    `duplicate_of`: an older document of the namespace that has the same bytes.
    """

    document_id: uuid.UUID
    job_id: uuid.UUID | None
    changed: bool
    duplicate_of: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A document as it was before the push."""

    document_id: uuid.UUID
    state: str
    url: str | None
    tags: list[str]
    metadata: dict[str, Any]
    readers: list[str] | None
    audience_id: int
    parsed_title: str | None
    served: bool
    pushed_sha256: bytes | None
    pushed_title: str | None
    pushed_media_type: str | None
    pushed_modified: datetime | None
    pushed_heading: list[str] | None
    fetching: bool


_FIND: LiteralString = "SELECT document_id FROM docwell.document WHERE source_id = %s AND namespace_id = %s AND path = %s"
# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOB: LiteralString = """
    SELECT job_id FROM docwell.job WHERE document_id = %s AND state IN ('queued', 'running', 'retrying') FOR UPDATE
"""
_HOLD: LiteralString = """
    SELECT d.document_id, d.state, d.url, d.tags, d.metadata, d.readers, d.audience_id, d.searchable AS served,
           (SELECT v.title FROM docwell.version v WHERE v.version_id = d.served_version_id) AS parsed_title,
           pushed.sha256 AS pushed_sha256, told.title AS pushed_title, told.media_type AS pushed_media_type,
           told.source_modified AS pushed_modified, pushed.heading AS pushed_heading,
           f.document_id IS NOT NULL AS fetching
    FROM docwell.document d
    LEFT JOIN docwell.pushed_content pushed USING (document_id)
    LEFT JOIN docwell.fetch f USING (document_id)
    -- What was said last: of bytes that have still to be fetched, else of those that are here.
    CROSS JOIN LATERAL (
        SELECT CASE WHEN f.document_id IS NULL THEN pushed.title ELSE f.title END AS title,
               CASE WHEN f.document_id IS NULL THEN pushed.media_type ELSE f.media_type END AS media_type,
               CASE WHEN f.document_id IS NULL THEN pushed.source_modified ELSE f.source_modified END AS source_modified
    ) AS told
    WHERE d.document_id = %s
    FOR UPDATE OF d
"""
_NEWEST_JOB: LiteralString = "SELECT job_id FROM docwell.job WHERE document_id = %s ORDER BY created_at DESC LIMIT 1"
# A title that comes with new bytes waits for them; while nothing is served there is nothing that it could be wrong for.
_UPSERT: LiteralString = """
    INSERT INTO docwell.document AS d
        (source_id, namespace_id, audience_id, path, title, url, tags, metadata, readers, source_modified)
    VALUES (%(source)s, %(namespace)s, %(audience)s, %(path)s, %(title)s, %(url)s, %(tags)s, %(metadata)s, %(readers)s,
            %(modified)s)
    ON CONFLICT (source_id, namespace_id, path) DO UPDATE SET
        state = CASE WHEN d.state = 'indexing' THEN d.state ELSE 'queued' END,
        audience_id = CASE WHEN d.state = 'deleted' THEN excluded.audience_id ELSE d.audience_id END,
        title = CASE WHEN %(keep_title)s THEN d.title ELSE excluded.title END,
        url = excluded.url, tags = excluded.tags, metadata = excluded.metadata, readers = excluded.readers,
        pin_yields = true, changed_at = now()
    RETURNING document_id
"""
_KEEP: LiteralString = """
    INSERT INTO docwell.pushed_content AS pushed
        (document_id, sha256, content, size, title, media_type, source_modified, heading)
    VALUES (%(document)s, %(sha256)s, %(content)s, %(size)s, %(title)s, %(media_type)s, %(modified)s, %(heading)s)
    ON CONFLICT (document_id) DO UPDATE SET
        sha256 = excluded.sha256, content = excluded.content, size = excluded.size, title = excluded.title,
        media_type = excluded.media_type, source_modified = excluded.source_modified, heading = excluded.heading,
        received_at = now()
"""
_TELL: LiteralString = """
    UPDATE docwell.pushed_content SET title = %(title)s, media_type = %(media_type)s, source_modified = %(modified)s,
        heading = %(heading)s
    WHERE document_id = %(document)s
"""
_SETTLED = frozenset({"indexed", "partial", "needs_ocr", "skipped"})


class NothingKept(DocwellError):
    """Facts were told of bytes that are not here: they have to be read."""


def take_in(
    connection: Connection[Any], source: Source, namespace_id: int, pushed: Pushed, *, max_attempts: int = 5, bulk: bool = False
) -> Accepted:
    """Store a document of `source` and its job in the caller's transaction. See `push.accept` for what applies when.

    Raises:
        Conflict: the document is excluded, or its path or bytes were erased.
        NothingKept: `content` is None, and no bytes of this document are here.
    """
    known, job_id = _hold(connection, source.source_id, namespace_id, pushed.path)
    if known is not None and known.state == "excluded":
        raise Conflict(
            f"{pushed.path} is excluded from the index. Take it back with `docwell documents include {known.document_id}`.",
            code="excluded",
        )
    if pushed.content is None:
        if known is None or known.pushed_sha256 is None or known.state == "deleted":
            raise NothingKept(f"No bytes of {pushed.path} are kept.", code="no_content")
        pushed = replace(pushed, sha256=bytes(known.pushed_sha256))
    # Reading this table keeps an erasure from beginning until we have committed; see `erasure.py`.
    refuse_erased(connection, source=source.name, namespace=pushed.namespace, path=pushed.path, sha256=pushed.sha256)
    same_bytes = known is not None and not known.fetching and pushed.fetch is None and _are_its_bytes(known, pushed.sha256)
    facts = _merged(pushed.facts, known, same_bytes=same_bytes, source=source)
    if known is not None and same_bytes and _are_as_before(facts, known) and (job_id is not None or known.state in _SETTLED):
        newest = connection.execute(_NEWEST_JOB, (known.document_id,)).fetchone()
        return Accepted(
            document_id=known.document_id,
            job_id=newest[0] if newest else None,
            changed=False,
            duplicate_of=duplicate_of(connection, known.document_id),
        )
    shown = facts.title if facts.title is not None or known is None else known.parsed_title
    readers = None if facts.readers is None else list(facts.readers)
    restricted = source.readers is not None
    values = {
        "source": source.source_id,
        "namespace": namespace_id,
        "audience": ensure_audience(
            connection, namespace_id, source.readers if readers is None else readers, restricted=restricted
        ),
        "path": pushed.path,
        "title": shown,
        "keep_title": known is not None and known.served and not same_bytes,
        "url": facts.url,
        "tags": list(facts.tags),
        "metadata": Jsonb(dict(facts.metadata)),
        "readers": readers,
        "modified": facts.source_modified,
    }
    row = connection.execute(_UPSERT, values).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING gave no row")
    document_id: uuid.UUID = row[0]
    if pushed.fetch is None:
        keep_bytes(connection, document_id, pushed, facts)
        if known is not None and known.fetching:
            fetches.forget(connection, document_id)
    else:
        fetches.ask(
            connection,
            document_id,
            pushed.fetch,
            title=facts.title,
            media_type=facts.media_type,
            source_modified=facts.source_modified,
        )
    job = jobs.enqueue(connection, [document_id], max_attempts=max_attempts, bulk=bulk)[document_id]
    if known is not None and known.served:
        raise_version(connection, known.audience_id, Weight())
    twin = duplicate_of(connection, document_id) if pushed.fetch is None else None
    return Accepted(document_id=document_id, job_id=job, changed=True, duplicate_of=twin)


def keep_bytes(connection: Connection[Any], document_id: uuid.UUID, pushed: Pushed, facts: Facts) -> None:
    """Keep the bytes of a document, and what is in force of what was said of them, in the caller's transaction."""
    kept = {
        "document": document_id,
        "sha256": pushed.sha256,
        "content": pushed.content,
        "size": pushed.size,
        "title": facts.title,
        "media_type": facts.media_type,
        "modified": facts.source_modified,
        "heading": list(facts.heading),
    }
    connection.execute(_TELL if pushed.content is None else _KEEP, kept)


def _are_its_bytes(known: _Known, sha256: bytes) -> bool:
    return known.pushed_sha256 is not None and bytes(known.pushed_sha256) == sha256


def _hold(connection: Connection[Any], source_id: int, namespace_id: int, path: str) -> tuple[_Known | None, uuid.UUID | None]:
    found = connection.execute(_FIND, (source_id, namespace_id, path)).fetchone()
    if found is None:
        return None, None
    job = connection.execute(_HOLD_JOB, found).fetchone()
    with connection.cursor(row_factory=class_row(_Known)) as cursor:
        return cursor.execute(_HOLD, found).fetchone(), job[0] if job else None


def _merged(facts: Facts, known: _Known | None, *, same_bytes: bool, source: Source) -> Facts:
    """The facts in force after the push. What the sender did not speak of stays, but for the time of other bytes."""

    def pick(name: str, before: Any, otherwise: Any) -> Any:
        return getattr(facts, name) if name in facts.given else before if known is not None else otherwise

    fresh = known is None or known.state == "deleted"
    tags = pick("tags", () if known is None or fresh else tuple(known.tags), ())
    return Facts(
        title=pick("title", None if known is None or fresh else known.pushed_title, None),
        url=pick("url", None if known is None or fresh else known.url, None),
        tags=tuple(sorted({*source.tags, *tags})),
        metadata=pick("metadata", {} if known is None or fresh else known.metadata, {}),
        # Never wider by silence: the readers of a document stay even when it was deleted in between.
        readers=pick("readers", None if known is None or known.readers is None else tuple(known.readers), None),
        source_modified=pick("source_modified", known.pushed_modified if known is not None and same_bytes else None, None),
        media_type=pick("media_type", None if known is None else known.pushed_media_type, None),
        heading=pick("heading", () if known is None else tuple(known.pushed_heading or ()), ()),
    )


def _are_as_before(facts: Facts, known: _Known) -> bool:
    readers = None if known.readers is None else tuple(known.readers)
    before = (known.pushed_title, known.url, tuple(known.tags), known.metadata, readers, known.pushed_modified)
    now = (facts.title, facts.url, facts.tags, dict(facts.metadata), facts.readers, facts.source_modified)
    return before == now and (known.pushed_media_type, tuple(known.pushed_heading or ())) == (facts.media_type, facts.heading)
