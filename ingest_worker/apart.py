"""What an embedding model does not get: text that its source keeps here, and passages that the model has refused before."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.without_vector import Gap, confined_documents, kept_here, refused_inputs
from ingest_worker.spaces import Target
from shared.config import Settings
from shared.documents import Chunk


def set_apart(
    connection: Connection[Any],
    target: Target,
    documents: Mapping[uuid.UUID, Sequence[Chunk]],
    wanted: Collection[uuid.UUID],
    settings: Settings,
) -> dict[uuid.UUID, Gap]:
    """Those of the `wanted` inputs of these documents that stay without a vector of this model, by `Chunk.input_id`, and why.

    A passage that stands in a document of another source too goes with that one: its text leaves anyway.
    """
    if not wanted:
        return {}
    gaps = refused_inputs(connection, target.space.space_id, wanted)
    if target.is_paid:
        confined = confined_documents(connection, documents.keys(), settings)
        if confined:
            free = {chunk.input_id for document, chunks in documents.items() if document not in confined for chunk in chunks}
            gaps |= {input_id: kept_here(target.model) for input_id in wanted if input_id not in free}
    return gaps
