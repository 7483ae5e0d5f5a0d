"""Embedding spaces: one for each model, and the check that the model in use is the one whose vectors are searched."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.vectors import Space
from shared.embedding.fingerprint import Fingerprint
from shared.errors import ConfigurationError

_ACTIVE = "SELECT space_id, fingerprint, model, dimension, crowded FROM docwell.embedding_space WHERE state = 'active'"


def active_space(connection: Connection[Any], fingerprint: Fingerprint) -> Space:
    """The space that searches use, made with this model when the index has none yet.

    Raises:
        ConfigurationError: the index was made with another model; the message has the ways out.
    """
    row = connection.execute(_ACTIVE).fetchone()
    if row is None:
        made = connection.execute(
            "SELECT docwell.create_embedding_space(%s, %s, %s, %s, 'active')",
            (fingerprint.key, fingerprint.provider, fingerprint.model, fingerprint.dimension),
        ).fetchone()
        row = connection.execute(_ACTIVE).fetchone()
        if made is None or row is None:
            raise ConfigurationError("No embedding space could be made.", code="no_embedding_space")
    if row[1] != fingerprint.key:
        raise ConfigurationError(
            f"The index holds vectors of {row[2]} ({row[3]} dimensions), this process embeds with {fingerprint.model}"
            f" ({fingerprint.dimension}); their vectors cannot be mixed. Set DOCWELL_EMBEDDING_MODEL and"
            " DOCWELL_EMBEDDING_PROVIDER back, or start with a new database.",
            code="embedding_mismatch",
        )
    return Space(space_id=row[0], crowded=row[4])
