"""What every embedder does."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared.embedding.fingerprint import Fingerprint
from shared.errors import PermanentError
from shared.prices import TokenUse

Vectors: TypeAlias = npt.NDArray[np.float32]


class Role(StrEnum):
    """What a text is for: some models embed a question and the passage that answers it differently."""

    QUERY = "query"
    PASSAGE = "passage"


class TextsRefused(PermanentError):
    """The model takes some texts in no way, though it takes others. `rows`: for each text its vector, or why it has none."""

    def __init__(self, rows: Sequence[Vectors | PermanentError]) -> None:
        first = next(row for row in rows if isinstance(row, PermanentError))
        super().__init__(str(first), code=first.code)
        self.rows = rows


class Embedder(Protocol):
    """Makes vectors of texts. Safe to call from several threads."""

    @property
    def fingerprint(self) -> Fingerprint:
        """The model's identity. May load the model, or ask the other side, at the first call."""
        ...

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """One float32 vector of length 1 per text, in order: shape (len(texts), dimension).

        A text longer than the model's window is embedded in parts and their mean is taken: nothing is cut off unseen. A blank
        text has a vector too, of length 1 like all others and without meaning, so that no distance to it is undefined.

        Raises:
            PermanentError: the same texts will never be embedded with these settings. TextsRefused, one of them: some of them.
            TransientError: later it may work. ServiceUnavailable, one of them: the embedder cannot be reached.
        """
        ...


@runtime_checkable
class Metered(Protocol):
    """An embedder whose calls are paid for."""

    def take_use(self) -> TokenUse:
        """What was used since this was asked last; failed calls cost nothing."""
