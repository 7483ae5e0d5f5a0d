"""Fills the second space, batch by batch, where a worker has nothing else to do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from ingest_worker.catalogue.vectors import insert_vectors
from ingest_worker.embedding import Vectors, embed, record_embedding, shares_of
from ingest_worker.reindexing import table
from ingest_worker.reindexing.table import Filling, Lacking
from ingest_worker.spaces import Models, SpaceChanged, Target, hold_beside
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk
from shared.embedding.protocol import Embedder
from shared.embedding.spaces import read_models
from shared.errors import ConfigurationError, DocwellError, PermanentError
from shared.prices import TokenUse

log = structlog.get_logger(__name__)

REST_SECONDS = 60.0
"""So long a space that is complete is not looked through again."""

FAILURE_SECONDS = 30.0


def fill_some(
    pool: Pool, models: Models, own: Callable[[], Embedder], settings: Settings, work: Work, *, rest_seconds: float = REST_SECONDS
) -> bool:
    """Embed the next passages that lack a vector, in one process at a time; False when there is nothing to do now.

    Nothing is lost by an interruption: what a round has missed the next one finds.
    """
    with pool.connection() as connection:
        found = table.filling(connection)
    if found is None or found.paused or not found.is_due:
        return False
    with _alone(pool) as is_ours:
        if not is_ours:
            return False
        try:
            return _fill(found, pool, models, own, settings, work, rest_seconds)
        except SpaceChanged:
            return False
        except DocwellError as error:
            log.warning("reindex_failed", code=error.code, error=str(error), cure="It is tried again; `docwell reindex status`.")
            with pool.connection() as connection:
                rest = max(FAILURE_SECONDS, getattr(error, "retry_after", None) or 0.0)
                table.fail(connection, found.space_id, str(error), rest_seconds=rest)
            return False


@contextmanager
def _alone(pool: Pool) -> Iterator[bool]:
    """Whether nobody else fills. The lock ends with its session, however that ends; no transaction is open meanwhile."""
    with pool.connection() as connection:
        row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended('docwell.reindex', 0))").fetchone()
        is_ours = bool(row and row[0])
        try:
            yield is_ours
        finally:
            if is_ours and not connection.broken:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended('docwell.reindex', 0))")


def _fill(
    found: Filling,
    pool: Pool,
    models: Models,
    own: Callable[[], Embedder],
    settings: Settings,
    work: Work,
    rest_seconds: float,
) -> bool:
    with pool.connection() as connection:
        # The one before us may have gone on meanwhile.
        now = table.filling(connection)
        if now is None or now.space_id != found.space_id or now.paused or not now.is_due:
            return False
        page = table.look(connection, now.space_id, now.filled_to)
        if page.filled_to is None:
            return not table.end_round(connection, now.space_id, rest_seconds=rest_seconds)
        if not page.lacking:
            table.advance(connection, now.space_id, page.filled_to, empty=True)
            return True
        known = read_models(connection)
    wanted = next(one for one in known if one.space_id == now.space_id)
    target = models.target(pool, wanted, known, own, settings)
    pay = partial(_pay, page.lacking, pool, settings, target.model)
    vectors, refused = _embed(target.embedder, {one.input_id: one.chunk for one in page.lacking}, work, pay)
    _write(pool, target, page.lacking, vectors)
    with pool.connection() as connection:
        table.advance(connection, now.space_id, page.filled_to, empty=False)
        if refused is not None:
            table.fail(connection, now.space_id, f"A passage was refused: {refused}", rest_seconds=0.0)
    return True


def _embed(
    embedder: Embedder, chunks: Mapping[uuid.UUID, Chunk], work: Work, pay: Callable[[TokenUse, Mapping[uuid.UUID, Chunk]], None]
) -> tuple[Vectors, PermanentError | None]:
    """The vectors of these, and the error of those that the model takes in no way."""
    try:
        return embed(embedder, chunks, work=work, pay=pay), None
    except ConfigurationError:
        raise
    except PermanentError as error:
        if len(chunks) == 1:
            return {}, error
        items = list(chunks.items())
        vectors: Vectors = {}
        refused: PermanentError | None = None
        for half in (items[: len(items) // 2], items[len(items) // 2 :]):
            made, problem = _embed(embedder, dict(half), work, pay)
            vectors |= made
            refused = refused or problem
        return vectors, refused


def _write(pool: Pool, target: Target, lacking: Sequence[Lacking], vectors: Vectors) -> None:
    owners = [(one.audience_id, one.input_id) for one in lacking if one.input_id in vectors]
    if not owners:
        return
    with pool.connection() as connection, connection.transaction():
        hold_beside(connection, target.space)
        insert_vectors(connection, target.space, table.hold_served(connection, owners), vectors)


def _pay(
    lacking: Sequence[Lacking],
    pool: Pool,
    settings: Settings,
    model: str,
    use: TokenUse,
    embedded: Mapping[uuid.UUID, Chunk],
) -> None:
    documents: dict[uuid.UUID, list[Chunk]] = {}
    for one in lacking:
        if one.document_id is not None:
            documents.setdefault(one.document_id, []).append(one.chunk)
    with pool.connection() as connection:
        record_embedding(connection, shares_of(use, documents, embedded), model, settings.prices)
