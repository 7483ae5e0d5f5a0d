"""Whose turn it is at the model: a waiting query goes before passages, whose next batch waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

# So many queries in a row, then one batch of passages if one waits: a flood of searches slows ingest, never stops it.
_IN_A_ROW = 32


class Turns:
    """One caller at a time; the urgent ones first, the others in the order in which they came."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._taken = False
        self._urgent_waiting = 0
        self._others: deque[object] = deque()
        self._urgent_in_a_row = 0

    @contextmanager
    def take(self, *, urgent: bool) -> Iterator[None]:
        """Wait for a turn and hold it for the block."""
        with self._change:
            self._wait_urgent() if urgent else self._wait()
            self._taken = True
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
        try:
            yield
        finally:
            with self._change:
                self._taken = False
                self._change.notify_all()

    def _wait_urgent(self) -> None:
        self._urgent_waiting += 1
        try:
            self._change.wait_for(lambda: not self._taken and not (self._others and self._enough_in_a_row()))
        finally:
            self._urgent_waiting -= 1

    def _wait(self) -> None:
        # A ticket, or whoever gave its turn back would take the next one before the others have woken up.
        ticket = object()
        self._others.append(ticket)
        try:
            self._change.wait_for(
                lambda: not self._taken and self._others[0] is ticket and (not self._urgent_waiting or self._enough_in_a_row())
            )
        finally:
            self._others.remove(ticket)

    def _enough_in_a_row(self) -> bool:
        return self._urgent_in_a_row >= _IN_A_ROW
