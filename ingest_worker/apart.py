"""Passages that stay without a vector: text that its source keeps here, and what the model refuses or has refused before."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.without_vector import Gap, confined_documents, kept_here, refused, refused_inputs
from ingest_worker.embedding import Embedded
from ingest_worker.spaces import Target
from shared.config import Settings
from shared.documents import Chunk
from shared.errors import TransientError

_MOST_WHOLE = 3
"""So many documents of which a model takes not one passage, one after the other, are no document's fault."""


class Refusals:
    """Tells a model that refuses single passages from one that does not do its work; for one worker."""

    def __init__(self) -> None:
        self._whole: set[uuid.UUID] = set()

    def judge(self, documents: Mapping[uuid.UUID, Sequence[Chunk]], made: Embedded) -> dict[uuid.UUID, Gap]:
        """Why those passages of these documents that the model refused stay without a vector, by `Chunk.input_id`.

        Raises:
            TransientError: nothing was taken of several documents, here and before: it is not their fault.
        """
        if made.vectors:
            self._whole.clear()
        elif made.refused:
            self._whole |= {
                document
                for document, chunks in documents.items()
                if chunks and made.refused.keys() >= {one.input_id for one in chunks}
            }
            if len(self._whole) >= _MOST_WHOLE:
                raise TransientError(
                    f"The embedding model has taken no passage of {len(self._whole)} documents in a row, this one among them:"
                    f" {next(iter(made.refused.values()))}. Check the model and its settings.",
                    code="embedding_refuses_documents",
                )
        return {input_id: refused(error) for input_id, error in made.refused.items()}


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
