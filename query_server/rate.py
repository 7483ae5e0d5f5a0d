"""How often one principal may ask: a bucket of tokens that fills at a steady rate (ITU-T I.371, the leaky bucket)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

BURST_SECONDS = 10
"""What an idle principal may ask at once: its rate over this time."""

MOST_PRINCIPALS = 10_000


class RateLimit:
    """`per_minute` calls of each principal, 0 for no limit. Safe for threads; each server counts for itself."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, self._rate * BURST_SECONDS)
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, principal: str) -> float:
        """0.0 when the call may go on, else the seconds until one may."""
        if self._rate == 0:
            return 0.0
        now = self._clock()
        with self._lock:
            left, since = self._left.pop(principal, (self._most, now))
            left = min(self._most, left + (now - since) * self._rate)
            allowed = left >= 1
            self._left[principal] = (left - 1 if allowed else left, now)
            while len(self._left) > MOST_PRINCIPALS:
                self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._rate
