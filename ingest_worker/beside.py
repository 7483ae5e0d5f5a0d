"""Vectors for the second space while a reindex is open: best effort, since what is missing there is filled in later."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from ingest_worker.apart import set_apart
from ingest_worker.catalogue.vectors import inputs_with_vector
from ingest_worker.catalogue.without_vector import refused
from ingest_worker.embedding import Embedded, Pay, embed
from ingest_worker.spaces import Models, SpaceVectors, Target
from ingest_worker.work import Work
from shared.config import Settings
from shared.database import Pool
from shared.documents import Chunk
from shared.errors import DocwellError


def embed_beside(
    target: Target | None,
    documents: Mapping[uuid.UUID, Sequence[Chunk]],
    *,
    pool: Pool,
    models: Models,
    settings: Settings,
    work: Work,
    pay: Pay,
) -> SpaceVectors | None:
    """The vectors that the passages of these documents lack in the second space; None when there is no such space.

    A second model that fails keeps no document from being published: it is left alone for a while.
    """
    if target is None:
        return None
    chunks = {chunk.input_id: chunk for held in documents.values() for chunk in held}
    with pool.connection() as connection:
        wanted = chunks.keys() - inputs_with_vector(connection, target.space.space_id, list(chunks))
        apart = set_apart(connection, target, documents, wanted, settings)
    missing = {key: chunks[key] for key in wanted if key not in apart}
    made = Embedded()
    if missing:
        try:
            made = embed(target.embedder, missing, work=work, pay=pay)
        except DocwellError as error:
            models.beside_failed(error)
    apart |= {input_id: refused(error) for input_id, error in made.refused.items()}
    return SpaceVectors(space=target.space, vectors=made.vectors, apart=apart)
