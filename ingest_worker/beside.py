"""Vectors for the second space while a reindex is open: best effort, since what is missing there is filled in later."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from ingest_worker.catalogue.vectors import inputs_with_vector
from ingest_worker.embedding import Pay, Vectors, embed
from ingest_worker.spaces import Beside, Models, Target
from ingest_worker.work import Work
from shared.database import Pool
from shared.documents import Chunk
from shared.errors import DocwellError


def embed_beside(
    target: Target | None, chunks: Mapping[uuid.UUID, Chunk], *, pool: Pool, models: Models, work: Work, pay: Pay
) -> Beside | None:
    """The vectors that these passages, by `Chunk.input_id`, lack in the second space; None when there is no such space.

    A second model that fails keeps no document from being published: it is left alone for a while.
    """
    if target is None:
        return None
    with pool.connection() as connection:
        present = inputs_with_vector(connection, target.space.space_id, list(chunks))
    missing = {key: chunk for key, chunk in chunks.items() if key not in present}
    vectors: Vectors = {}
    if missing:
        try:
            vectors = embed(target.embedder, missing, work=work, pay=pay)
        except DocwellError as error:
            models.beside_failed(error)
    return Beside(space=target.space, vectors=vectors)
