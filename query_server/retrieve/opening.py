"""Embedders that are opened when they are wanted, and which of them the index wants."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from query_server.access import NOBODY
from query_server.snapshot import Snapshots
from shared.config import Settings
from shared.embedding.endpoint import endpoint_of
from shared.embedding.protocol import Embedder
from shared.embedding.spaces import StoredModel, how_to_ask, model_in, read_models, read_probes, refuse_swapped
from shared.errors import DocwellError, ServiceUnavailable

AGAIN_SECONDS = 5.0
"""So long a failure is told as it is before the next try, when nobody waits for it."""


class Opening:
    """An embedder that is opened once, in a thread. Safe for threads."""

    def __init__(self, open_embedder: Callable[[], Embedder], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_embedder
        self._clock = clock
        self._failed_at = -math.inf
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._thread: threading.Thread | None = None
        self.failure: DocwellError | None = None

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

    def get(self, *, patient: bool) -> Embedder | None:
        """The embedder; None while it loads, and when it failed, unless `patient` waits for the former."""
        if self._embedder is None:
            if patient or self._clock() - self._failed_at >= AGAIN_SECONDS:
                self.warm()
            thread = self._thread
            if patient and thread is not None:
                thread.join()
        return self._embedder

    def close(self) -> None:
        """Close the embedder's connections, if it has any."""
        close = getattr(self._embedder, "close", None)
        if close is not None:
            close()

    def _load(self) -> None:
        try:
            embedder = self._open()
        except DocwellError as error:
            self.failure, self._failed_at = error, self._clock()
        except Exception as error:  # noqa: BLE001 - a thread has nobody above it: the next query reports what went wrong
            said = f"the embedding model could not be loaded ({type(error).__name__})."
            self.failure, self._failed_at = ServiceUnavailable(said), self._clock()
        else:
            self.failure = None
            self._embedder = embedder


class Directory(Protocol):
    """Knows which models the index has."""

    def active(self) -> str | None:
        """The fingerprint of the model that searches use; None when nothing is indexed."""
        ...

    def open(self, fingerprint: str, own: Opening) -> Embedder:
        """The embedder of a model of the index: `own`, the settings', or another; `own` too when the index knows no such model.

        Raises:
            DocwellError: it cannot be opened, or not now.
        """
        ...


class StoredDirectory:
    """Reads it from the database, as the reader."""

    def __init__(self, snapshots: Snapshots, settings: Callable[[], Settings]) -> None:
        self._snapshots = snapshots
        self._settings = settings

    def active(self) -> str | None:
        """See `Directory.active`."""
        found = model_in(self._read(), "active")
        return found.fingerprint if found is not None else None

    def open(self, fingerprint: str, own: Opening) -> Embedder:
        """See `Directory.open`."""
        models = self._read()
        wanted = next((one for one in models if one.fingerprint == fingerprint), None)
        if wanted is None:
            return _opened(own)
        how = how_to_ask(wanted, models, endpoint_of(self._settings()), lambda: _opened(own).fingerprint)
        embedder = self._stored(wanted) if how == "stored" else _opened(own)
        # A model that is not the index's is found out when its vectors are to be compared.
        return self._checked(wanted, embedder) if wanted.provider == "openai" and how != "unknown" else embedder

    def _stored(self, wanted: StoredModel) -> Embedder:
        # ONNX Runtime is loaded when a model is.
        from shared.embedding.open import open_endpoint

        assert wanted.endpoint is not None  # noqa: S101 - `how_to_ask` says `stored` of no other
        return open_endpoint(wanted.endpoint, self._settings())

    def _checked(self, wanted: StoredModel, embedder: Embedder) -> Embedder:
        """Before the first vector of a model behind an API is compared with stored ones, it has to prove that it is the same."""
        with self._snapshots.open(NOBODY) as connection:
            probes = read_probes(connection, wanted.space_id)
        refuse_swapped(wanted, probes, embedder)
        return embedder

    def _read(self) -> list[StoredModel]:
        with self._snapshots.open(NOBODY) as connection:
            return read_models(connection)


def _opened(own: Opening) -> Embedder:
    embedder = own.get(patient=True)
    if embedder is None:
        raise own.failure or ServiceUnavailable("the embedding model could not be loaded.")
    return embedder
