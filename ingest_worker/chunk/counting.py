"""What the chunkers need of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Counter(Protocol):
    """Counts tokens; `shared.tokens` holds the one that is used.

    White space ends a token: a text that is put together of parts with white space between them has the sum of their tokens.
    """

    def count_many(self, texts: Sequence[str]) -> Sequence[int]:
        """How many tokens each text has, without the marks that a model puts around it."""
        ...
