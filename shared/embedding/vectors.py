"""Arithmetic that all embedders share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.embedding.protocol import Vectors
from shared.errors import PermanentError


class NoDirection(PermanentError):
    """A vector that is zero or not finite."""


def normalise(vectors: Vectors) -> Vectors:
    """Each row scaled to length 1.

    Raises:
        NoDirection: a row is zero or not finite.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise NoDirection(
            "The embedding model answered with a vector that is zero or not finite, which no search can use. Check the "
            "model's files or server.",
            code="embedding_invalid",
        )
    scaled: Vectors = (vectors / lengths).astype(np.float32)
    return scaled


def pool(parts: Vectors, weights: Sequence[int]) -> Vectors:
    """The mean of the parts of one text, weighted by their lengths, scaled to length 1: shape (dimension,)."""
    mean = np.average(parts, axis=0, weights=np.asarray(weights, np.float64))
    pooled: Vectors = normalise(mean[None, :].astype(np.float32))[0]
    return pooled


def well_formed(texts: Sequence[str]) -> list[str]:
    """The texts with `?` in place of lone surrogates, which neither UTF-8 nor a tokenizer can take."""
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
