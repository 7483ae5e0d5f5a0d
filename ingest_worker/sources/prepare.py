"""A source's row brought up to date with its settings; when these say that other things are there, all is looked at again."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson
from psycopg import Connection

from ingest_worker.catalogue import remote_items, remotes
from ingest_worker.catalogue.sources import Source, ensure_source, get_source
from ingest_worker.catalogue.whereabouts import live_documents
from ingest_worker.jobs import table as jobs
from shared.config import ConnectionSettings, OtherSettings, Settings

_SECRET = re.compile(r"secret|token|password|key", re.IGNORECASE)


def prepare_remote(connection: Connection[Any], settings: ConnectionSettings, general: Settings) -> Source:
    """Make or update the row of a source, in a transaction; one that was taken out is back.

    Raises:
        PermanentError: the name belongs to a source of another type or namespace.
    """
    with connection.transaction():
        before = get_source(connection, settings.name)
        # With permissions each document tells its readers, and one that tells none is open to those of the source, or nobody.
        readers = settings.readers if settings.readers is not None or not settings.permissions else ()
        source = ensure_source(
            connection,
            settings.name,
            kind=settings.type,
            namespace=settings.namespace,
            tags=settings.tags,
            readers=readers,
            max_bytes=settings.max_bytes,
            enrich=settings.enrich,
            embed_anyway=settings.embed == "anyway",
        )
        anew = remotes.prepare(
            connection,
            source.source_id,
            limiter=settings.limiter,
            settings_sha256=settings_digest(settings, general),
            anew=before is not None and before.removed_at is not None,
        )
        if before is not None and before.readers != source.readers:
            # Who may see them must not wait for a listing: a job gives each document the readers that are known of it.
            documents = live_documents(connection, source.source_id)
            jobs.enqueue(connection, documents, max_attempts=general.job_attempts, bulk=True)
        if anew:
            remote_items.forget_facts(connection, source.source_id, too_large=True)
    return source


def settings_digest(settings: ConnectionSettings, general: Settings) -> bytes:
    """A hash of what decides which documents there are and what is said of them. Secrets are no part of it."""
    if isinstance(settings, OtherSettings):
        scope = {key: value for key, value in settings.options.items() if not _SECRET.search(key)}
    else:
        scope = {key: getattr(settings, key) for key in settings.scope}
    said = {
        "type": settings.type,
        "scope": scope,
        "tags": settings.tags,
        "readers": settings.readers,
        "permissions": settings.permissions,
        "max_bytes": settings.max_bytes or general.max_bytes,
    }
    return hashlib.sha256(orjson.dumps(said, default=str, option=orjson.OPT_SORT_KEYS)).digest()
