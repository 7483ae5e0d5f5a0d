"""Vectors of a query, from an embedder that may be away, or still loading its model."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.embedding.protocol import Embedder, Role
from shared.errors import DocwellError, ServiceUnavailable, TransientError

MOST_VECTORS = 500
"""Vectors of queries that are remembered, each under its model: 1.5 KB for 384 dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The vectors of a query's texts, each of shape (dimension,); none when the embedder could not be asked.

    `problem` says why not, `warming` that it will be there soon. `fingerprint` and `model` name the model, when it is known.
    `remembered` of the vectors were made for an earlier query.
    """

    vectors: Sequence[npt.NDArray[np.float32]] = ()
    fingerprint: str | None = None
    model: str | None = None
    problem: str | None = None
    warming: bool = False
    remembered: int = 0


class Encoder:
    """Holds the embedder, which is opened once: at the first query, or before it in the background.

    Safe for threads; what was asked lately is not embedded again. Whoever comes while the model loads is not kept waiting unless
    `patient`.
    """

    def __init__(self, open_embedder: Callable[[], Embedder], *, patient: bool = False) -> None:
        self._open = open_embedder
        self._patient = patient
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._thread: threading.Thread | None = None
        self._failure: DocwellError | None = None
        self._vectors: OrderedDict[tuple[str, Role, str], npt.NDArray[np.float32]] = OrderedDict()

    def warm(self) -> None:
        """Load the model in the background, unless that is being done or is done."""
        with self._lock:
            if self._embedder is None and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._load, name="docwell-warm", daemon=True)
                self._thread.start()

    @property
    def warming(self) -> bool:
        """The model is being loaded."""
        return self._embedder is None and self._thread is not None and self._thread.is_alive()

    def encode(self, query: str, hypothetical_answer: str = "") -> Encoded:
        """The vectors of a query and, if there is one, of an answer as a document would put it.

        Never raises for an embedder that is away or warming: then there are no vectors.

        Raises:
            PermanentError: the texts cannot be embedded with these settings.
        """
        embedder = self._ready()
        if embedder is None:
            failure = self._failure
            if failure is not None and not self.warming:
                if not isinstance(failure, TransientError):
                    raise failure
                return Encoded(problem=str(failure))
            return Encoded(problem="the embedding model is still loading. Try again in a few seconds.", warming=True)
        try:
            found = [self._vector(embedder, query, Role.QUERY)]
            if hypothetical_answer:
                found.append(self._vector(embedder, hypothetical_answer, Role.PASSAGE))
            fingerprint = embedder.fingerprint
        except TransientError as error:  # a rate limit too: whoever asks is better served by the keyword leg than by an error
            return Encoded(problem=str(error), warming=error.code == "embedder_warming")
        return Encoded(
            vectors=[vector for vector, _ in found],
            fingerprint=fingerprint.key,
            model=fingerprint.model,
            remembered=sum(known for _, known in found),
        )

    def _vector(self, embedder: Embedder, text: str, role: Role) -> tuple[npt.NDArray[np.float32], bool]:
        """A vector, and whether it was remembered."""
        key = (embedder.fingerprint.key, role, text)
        with self._lock:
            known = self._vectors.get(key)
            if known is not None:
                self._vectors.move_to_end(key)
                return known, True
        vector: npt.NDArray[np.float32] = embedder.embed([text], role)[0]
        with self._lock:
            self._vectors[key] = vector
            while len(self._vectors) > MOST_VECTORS:
                self._vectors.popitem(last=False)
        return vector, False

    def close(self) -> None:
        """Close the embedder's connections, if it has any."""
        close = getattr(self._embedder, "close", None)
        if close is not None:
            close()

    def _ready(self) -> Embedder | None:
        if self._embedder is None:
            self.warm()
            thread = self._thread
            if self._patient and thread is not None:
                thread.join()
        return self._embedder

    def _load(self) -> None:
        try:
            embedder = self._open()
        except DocwellError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 - a thread has nobody above it: the next query reports what went wrong
            self._failure = ServiceUnavailable(f"the embedding model could not be loaded ({type(error).__name__}).")
        else:
            self._failure = None
            self._embedder = embedder
