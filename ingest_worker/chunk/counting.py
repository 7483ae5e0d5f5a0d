"""What the chunkers need of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Counter(Protocol):
    """Counts tokens; `shared.tokens` holds the one that is used."""

    def count_many(self, texts: Sequence[str]) -> Sequence[int]:
        """How many tokens each text has, without the marks that a model puts around it."""
        ...
