"""Wakes workers without letting a client wait for the broker."""

from __future__ import annotations

import threading

from ingest_worker.jobs.wake import Wake


class BackgroundWake:
    """A `Wake` that returns at once; a thread of its own speaks with the broker, many wakes at a time as one."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self._due = 0
        self._closed = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="wake", daemon=True)
        self._thread.start()

    def __call__(self, due: int) -> None:
        """Say that so many jobs are due."""
        with self._news:
            self._due += due
            self._news.notify()

    def close(self, *, wait_seconds: float = 3.0) -> None:
        """Pass on what is left and end the thread; what it cannot pass on in time the scheduler's next tick does."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join(wait_seconds)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._due or self._closed)
                due, self._due = self._due, 0
                if not due:
                    return
            self._wake(due)
