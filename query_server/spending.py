"""What embeddings of questions cost: counted here, and told to the ingest side, which keeps the ledger. No search waits for it.

The query server reads only; so counts go over the stream of the usage log, whose login may add to it and do nothing else.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from shared.config import Settings
from shared.embedding.protocol import Embedder, Metered
from shared.errors import DocwellError
from shared.prices import TokenUse
from shared.spending import FIELD, Spent, encode_spent

if TYPE_CHECKING:
    from query_server.usage_stream import UsageStream

EVERY_SECONDS = 10.0
"""Calls of so long are told together."""

PAUSE_SECONDS = 30.0
"""After a failure. Nothing is lost meanwhile: counts are few numbers, and wait."""

CLOSE_SECONDS = 2.0

log = logging.getLogger(__name__)

Count = Callable[[str, TokenUse], None]
"""Is told of each use of a model."""


class QuerySpending:
    """Adds up what metered embedders used, by day (UTC) and model, and tells it every few seconds in a thread. Safe for threads.

    `settings` are looked up by that thread. Counts that cannot be told wait, and what is left of them at the end is said in the
    log.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        count: Count = lambda _model, _use: None,
        every_seconds: float = EVERY_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._count = count
        self._every = every_seconds
        self._pause = pause_seconds
        self._now = now
        self._lock = threading.Lock()
        self._sums: dict[tuple[date, str], TokenUse] = {}
        self._waiting: list[Spent] = []
        self._there = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream: UsageStream | None = None
        self._said = ""
        self._level = logging.WARNING

    def note(self, embedder: Embedder) -> None:
        """Take what this embedder has used since it was asked last; never waits, never raises."""
        if not isinstance(embedder, Metered):
            return
        use = embedder.take_use()
        if use == TokenUse():
            return
        model = embedder.fingerprint.model
        key = (self._now().date(), model)
        with self._lock:
            self._sums[key] = self._sums.get(key, TokenUse()) + use
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="docwell-spending", daemon=True)
                self._thread.start()
        self._count(model, use)
        self._there.set()

    @property
    def untold(self) -> TokenUse:
        """What the ingest side was not told of yet."""
        with self._lock:
            return sum([*self._sums.values(), *(spent.use for spent in self._waiting)], TokenUse())

    def close(self) -> None:
        """Tell what waits, within two seconds."""
        self._closing.set()
        self._there.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        left = self.untold
        if left != TokenUse():
            log.log(
                self._level,
                "%d calls with %d tokens for embeddings of questions are missing in the ledger: %s",
                left.calls,
                left.input_tokens,
                self._said or "there was no time to tell of them.",
            )

    def _run(self) -> None:
        while not self._closing.is_set():
            self._there.wait()
            self._closing.wait(self._every)
            self._there.clear()
            if not self._tell():
                self._there.set()
                self._closing.wait(self._pause)
        if not self._tell():  # what came while the batch before waited
            self._tell()
        if self._stream is not None:
            self._stream.close()

    def _tell(self) -> bool:
        """Whether nothing is left to tell. A batch whose arrival is not known is told again as it was."""
        with self._lock:
            if not self._waiting:
                self._waiting = [
                    Spent(batch_id=uuid.uuid4(), day=day, model=model, use=use) for (day, model), use in self._sums.items()
                ]
                self._sums.clear()
            waiting = list(self._waiting)
        if not waiting:
            return True
        # Redis' client is loaded where there is something to write.
        from query_server.usage_stream import connect_stream

        try:
            self._stream = self._stream or connect_stream(self._settings())
            self._stream.add_entries([(FIELD, encode_spent(spent)) for spent in waiting])
        except DocwellError as error:
            if str(error) != self._said:
                # Who has no such address may not want to know; who has one does.
                level = logging.INFO if error.code == "usage_address_missing" else logging.WARNING
                log.log(level, "What embeddings of questions cost waits to be told to the ledger: %s", error)
                self._level = level
            self._said = str(error)
            return False
        self._said = ""
        with self._lock:
            self._waiting = []
            return not self._sums
