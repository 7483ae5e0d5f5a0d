"""Before jobs read their documents: what has to be fetched from an address is fetched and kept like pushed bytes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import fetches
from ingest_worker.catalogue.chunks import raise_version
from ingest_worker.catalogue.erasures import ERASED, erased_reason, find_erasure
from ingest_worker.catalogue.fetches import Fetch
from ingest_worker.catalogue.sources import PUSH
from ingest_worker.catalogue.terms import Weight
from ingest_worker.intake.fetch import Fetched, Fetcher, make_fetcher
from ingest_worker.intake.push import Facts, Pushed, keep_bytes
from ingest_worker.intake.read import Refused
from ingest_worker.jobs.table import ClaimedJob
from shared.config import Settings
from shared.database import Pool
from shared.errors import DocwellError

_AT_ONCE = 4


def fetch_pending(
    jobs: Sequence[ClaimedJob], pool: Pool, settings: Settings, *, fetcher: Fetcher | None = None
) -> dict[uuid.UUID, DocwellError]:
    """Fetch what these jobs need; returns what stopped those that could not be fetched, by document.

    No connection to the database is held while others are asked. Another job of the same document may fetch it too; the
    first that is done counts.
    """
    wanted = [job.document_id for job in jobs if job.kind != "delete"]
    with pool.connection() as connection:
        pending = fetches.pending(connection, wanted)
    if not pending:
        return {}
    fetcher = fetcher or make_fetcher(settings)
    stopped: dict[uuid.UUID, DocwellError] = {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(pending)), thread_name_prefix="fetch") as threads:
        for one, outcome in zip(pending, threads.map(lambda one: _fetch(fetcher, one), pending), strict=True):
            if isinstance(outcome, Fetched):
                try:
                    with pool.connection() as connection:
                        _keep(connection, one, outcome)
                except Refused as error:
                    stopped[one.document_id] = error
            else:
                stopped[one.document_id] = outcome
    return stopped


def _fetch(fetcher: Fetcher, one: Fetch) -> Fetched | DocwellError:
    try:
        return fetcher.fetch(one.url, path=one.path)
    except DocwellError as error:
        return error


def _keep(connection: Connection[Any], one: Fetch, fetched: Fetched) -> None:
    body = fetched.body
    media_type = one.media_type
    if media_type is None and not PurePosixPath(one.path).suffix and fetched.media_type != "application/octet-stream":
        media_type = fetched.media_type or None
    with connection.transaction():
        # Reading this table keeps an erasure from beginning until we have committed; see `erasure.py`.
        erasure_id = find_erasure(connection, source=PUSH, namespace=one.namespace, path=one.path, sha256=body.sha256)
        if erasure_id is not None:
            raise Refused(erased_reason(erasure_id), code=ERASED, size=body.size)
        if not fetches.take(connection, one):
            return
        facts = Facts(title=one.title, media_type=media_type, source_modified=one.source_modified)
        pushed = Pushed(namespace=one.namespace, path=one.path, content=body.content, sha256=body.sha256, size=body.size)
        keep_bytes(connection, one.document_id, pushed, facts)
        audience_id = fetches.retitle(connection, one, body.sha256)
        if audience_id is not None:
            raise_version(connection, audience_id, Weight())
