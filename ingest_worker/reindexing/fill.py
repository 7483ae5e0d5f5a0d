"""Fills the second space, and gaps of the first, batch by batch, where a worker has nothing else to do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from ingest_worker.catalogue import without_vector
from ingest_worker.catalogue.vectors import inputs_with_vector, insert_vectors
from ingest_worker.catalogue.without_vector import confined_sources, kept_here, refused
from ingest_worker.embedding import Embedded, embed, record_embedding, shares_of
from ingest_worker.reindexing import table
from ingest_worker.reindexing.table import Filling, Lacking
from ingest_worker.spaces import Models, SpaceChanged, Target, hold_beside
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk
from shared.embedding.protocol import Embedder
from shared.embedding.spaces import read_models
from shared.errors import DocwellError
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
        gap = table.space_with_gap(connection)
    if gap is not None and _fill_gaps(gap, pool, models, own, settings, work):
        return True
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


def _fill_gaps(space_id: int, pool: Pool, models: Models, own: Callable[[], Embedder], settings: Settings, work: Work) -> bool:
    """Embed passages of the active space that stayed without a vector and may have one by now; one batch."""
    with _alone(pool) as is_ours:
        if not is_ours:
            return False
        with pool.connection() as connection:
            lacking = table.due(connection, space_id, confined=confined_sources(settings))
            known = read_models(connection)
        wait: float | None = None
        try:
            wanted = next(one for one in known if one.space_id == space_id)
            if lacking:
                fill_batch(lacking, models.target(pool, wanted, known, own, settings), pool, settings, work)
        except SpaceChanged:
            wait = 0.0
        except DocwellError as error:
            wait = max(FAILURE_SECONDS, getattr(error, "retry_after", None) or 0.0)
            log.warning("gaps_not_filled", code=error.code, error=str(error), cure="It is tried again.")
        with pool.connection() as connection:
            # What is due of them still is searched no more, or could not be embedded now.
            without_vector.put_off(connection, space_id, [(one.audience_id, one.input_id) for one in lacking], seconds=wait)
        return wait is None


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
        page = table.look(connection, now.space_id, now.filled_to, confined=confined_sources(settings))
        if page.filled_to is None:
            return not table.end_round(connection, now.space_id, rest_seconds=rest_seconds)
        if not page.lacking:
            table.advance(connection, now.space_id, page.filled_to, empty=True)
            return True
        known = read_models(connection)
    wanted = next(one for one in known if one.space_id == now.space_id)
    target = models.target(pool, wanted, known, own, settings)
    fill_batch(page.lacking, target, pool, settings, work)
    with pool.connection() as connection:
        table.advance(connection, now.space_id, page.filled_to, empty=False)
    return True


def fill_batch(lacking: Sequence[Lacking], target: Target, pool: Pool, settings: Settings, work: Work) -> None:
    """Embed these for their space, and note why those stay without a vector that do: their sources keep them here, or the model
    refuses them.

    Raises:
        DocwellError: the model cannot be asked, or refuses everything; nothing was written.
    """
    with pool.connection() as connection:
        known = inputs_with_vector(connection, target.space.space_id, [one.input_id for one in lacking])
    free = [one for one in lacking if one.may_leave or not target.is_paid]
    gaps = {(one.audience_id, one.input_id): kept_here(target.model) for one in lacking if one not in free}
    chunks = {one.input_id: one.chunk for one in free if one.input_id not in known}
    made = Embedded()
    if chunks:
        made = embed(target.embedder, chunks, work=work, pay=partial(_pay, free, pool, settings, target.model))
    gaps |= {(one.audience_id, one.input_id): refused(made.refused[one.input_id]) for one in free if one.input_id in made.refused}
    with pool.connection() as connection, connection.transaction():
        hold_beside(connection, target.space)
        served = table.hold_served(connection, [(one.audience_id, one.input_id) for one in lacking])
        filled = {owner for owner in served if owner[1] in made.vectors or owner[1] in known}
        without = insert_vectors(connection, target.space, filled, made.vectors)
        without_vector.filled(connection, target.space.space_id, [owner for owner in filled if owner[1] not in without])
        without_vector.note(connection, target.space.space_id, {owner: gaps[owner] for owner in (served & gaps.keys()) - filled})


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
