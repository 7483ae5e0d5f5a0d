"""Vectors of a query, from an embedder that may be away, or still loading its model."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from query_server.retrieve.opening import Directory, Opening
from query_server.retrieve.semantic import Space
from query_server.spending import QuerySpending
from shared.embedding.protocol import Embedder, Role
from shared.errors import DocwellError, PermanentError, TransientError

MOST_VECTORS = 500
"""Vectors of queries that are remembered, each under its model: 1.5 KB for 384 dimensions."""


_WORD = re.compile(r"[^\W\d_]{6}")
"""What is longer than abbreviations and the letters of identifiers are."""


def as_embedded(query: str) -> str:
    """A query as its vector is made of it: one in capitals in small letters. Models take `KÜNDIGUNGSFRIST` for another word than
    `Kündigungsfrist`; case that is not shouted helps them (docs/decisions/0005-retrieval.md)."""
    spelled = " ".join(unicodedata.normalize("NFKC", query).split())
    return spelled.lower() if spelled.isupper() and _WORD.search(spelled) else spelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The vectors of a query's texts, each of shape (dimension,); none when the embedder could not be asked.

    `problem` says why not, `warming` that it will be there soon. `fingerprint` and `model` name the model, when it is known.
    `meant_for` is the fingerprint of the space that they were wanted for: empty when it was not known, None when nobody asks.
    `failure` is a problem that no later try can mend, for as long as the index has that model. `remembered` of the vectors were
    made for an earlier query.
    """

    vectors: Sequence[npt.NDArray[np.float32]] = ()
    fingerprint: str | None = None
    model: str | None = None
    problem: str | None = None
    warming: bool = False
    meant_for: str | None = None
    failure: DocwellError | None = None
    remembered: int = 0


class Encoder:
    """Holds the embedder of the settings and, while the index is being changed to another model, that one's too; each is opened
    once: at the first query, or before it in the background.

    Safe for threads; what was asked lately is not embedded again. Whoever comes while the model loads is not kept waiting unless
    `patient`. `directory` knows which model the index has; without one it is the settings' own. `spending` is told of what
    embedders used.
    """

    def __init__(
        self,
        open_embedder: Callable[[], Embedder],
        *,
        patient: bool = False,
        directory: Directory | None = None,
        spending: QuerySpending | None = None,
    ) -> None:
        self._patient = patient
        self._directory = directory
        self._spending = spending
        self._own = Opening(open_embedder)
        self._others: dict[str, Opening] = {}
        self._lock = threading.Lock()
        self._active = ""
        self._beside: str | None = None
        self._vectors: OrderedDict[tuple[str, Role, str], npt.NDArray[np.float32]] = OrderedDict()

    def warm(self) -> None:
        """Load the model in the background, unless that is being done or is done."""
        if self._directory is None or self._active:
            self._current().warm()
        else:
            threading.Thread(target=self._warm_known, name="docwell-warm-models", daemon=True).start()

    def _warm_known(self) -> None:
        self.look_up()
        self._current().warm()

    def look_up(self) -> None:
        """Learn which model the index has, where that is not known; a search learns it too, at the price of a second try."""
        if self._directory is None or self._active:
            return
        try:
            active = self._directory.active()
        except DocwellError:  # the database is away: the search itself says so
            return
        with self._lock:
            self._active = self._active or active or ""

    @property
    def warming(self) -> bool:
        """The model is being loaded."""
        return self._current().warming

    def notice(self, space: Space) -> None:
        """A search saw this space: the model beside it is loaded before it may be switched to."""
        if self._directory is not None and space.beside is not None and space.beside != self._beside:
            self._beside = space.beside
            self._opening(self._directory, space.beside).warm()

    def follow(self, fingerprint: str, encoded: Encoded) -> bool:
        """The index has this model: what is encoded next is meant for it. False when `encoded` was meant for it already."""
        if self._directory is None:
            return False
        with self._lock:
            self._active = fingerprint
        return encoded.meant_for != fingerprint

    def encode(self, query: str, hypothetical_answer: str = "") -> Encoded:
        """The vectors of a query and, if there is one, of an answer as a document would put it.

        Never raises for an embedder that is away or warming: then there are no vectors.

        Raises:
            PermanentError: the texts cannot be embedded.
        """
        if self._patient:
            self.look_up()
        active = self._active if self._directory is not None else None
        opening = self._current()
        embedder = opening.get(patient=self._patient)
        if embedder is None:
            failure = opening.failure
            if failure is not None:
                lasting = None if isinstance(failure, TransientError) else failure
                if lasting is not None and active is None:
                    raise lasting.with_traceback(None)
                return Encoded(problem=str(failure), meant_for=active, failure=lasting)
            said = "the embedding model is still loading. Try again in a few seconds."
            return Encoded(problem=said, warming=True, meant_for=active)
        try:
            found = [self._vector(embedder, as_embedded(query), Role.QUERY)]
            if hypothetical_answer:
                found.append(self._vector(embedder, hypothetical_answer, Role.PASSAGE))
            fingerprint = embedder.fingerprint
        except TransientError as error:  # a rate limit too: whoever asks is better served by the keyword leg than by an error
            return Encoded(problem=str(error), warming=error.code == "embedder_warming", meant_for=active)
        except PermanentError as error:
            if active is None:
                raise
            return Encoded(problem=str(error), meant_for=active, failure=error)
        finally:
            if self._spending is not None:
                self._spending.note(embedder)
        return Encoded(
            vectors=[vector for vector, _ in found],
            fingerprint=fingerprint.key,
            model=fingerprint.model,
            meant_for=active,
            remembered=sum(known for _, known in found),
        )

    def _current(self) -> Opening:
        if self._directory is None or not self._active:
            return self._own
        return self._opening(self._directory, self._active)

    def _opening(self, directory: Directory, fingerprint: str) -> Opening:
        with self._lock:
            if fingerprint not in self._others:
                self._others[fingerprint] = Opening(lambda: directory.open(fingerprint, self._own))
            return self._others[fingerprint]

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
        """Close the embedders' connections, if they have any."""
        for opening in {self._own, *self._others.values()}:
            opening.close()
        if self._spending is not None:
            self._spending.close()
