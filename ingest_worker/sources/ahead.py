"""Things read while those before them are stored: several at a time, where a connector allows that, and in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from ingest_worker.sources.protocol import Item

MOST_BYTES = 64 * 1024 * 1024
"""Of what is read ahead; a single thing may have more."""

_USUAL_BYTES = 1024 * 1024
"""Of a thing whose size is not told."""


class Ahead:
    """Reads `items`, at most `at_once` at a time. `take` is called for them in this order, from one thread."""

    def __init__(self, read: Callable[[Item], bytes], items: Sequence[Item], *, at_once: int) -> None:
        self._read = read
        self._waiting = deque(items if at_once > 1 and len(items) > 1 else ())
        self._at_once = at_once
        self._reading: dict[str, tuple[Future[bytes], int]] = {}
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="reading") if self._waiting else None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing more is begun; what is on its way is waited for, and dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self, item: Item) -> bytes:
        """The bytes of an item.

        Raises: what reading it raised.
        """
        self._begin()
        begun = self._reading.pop(item.key, None)
        return self._read(item) if begun is None else begun[0].result()

    def _begin(self) -> None:
        while self._pool is not None and self._waiting and len(self._reading) < self._at_once:
            size = _USUAL_BYTES if self._waiting[0].size is None else self._waiting[0].size
            if self._reading and size + sum(one for _, one in self._reading.values()) > MOST_BYTES:
                return
            item = self._waiting.popleft()
            self._reading[item.key] = (self._pool.submit(self._read, item), size)
