"""What makes two vectors comparable: the model that made them, under a name that a database can hold."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The identity of an embedding model. Vectors may be compared when, and only when, their fingerprints are equal.

    `revision` tells apart weights that share a name: of the bundled model its source and recipe, of a model folder the sha256
    of its files, and empty for a remote model, whose weights nobody can see. The address of a server is no part of it: the
    same model behind another URL needs no new index.
    """

    provider: str
    model: str
    dimension: int
    revision: str = ""

    @property
    def key(self) -> str:
        """16 hexadecimal digits, the same on every machine."""
        parts = (self.provider, self.model, str(self.dimension), self.revision)
        return hashlib.sha256("\0".join(parts).encode("utf-8")).hexdigest()[:16]
