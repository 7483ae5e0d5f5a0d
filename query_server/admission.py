"""How many calls work at a time, how many wait for their turn, and what the rest is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from shared.errors import TransientError

AT_ONCE = 32
"""Calls that work at a time. Each holds a thread, of which anyio has 40: some stay for tokens, resources and readiness."""

WAITING = 128
"""Calls that wait for their turn; whoever comes then is sent away at once."""

WAIT_SECONDS = 5.0

RETRY_SECONDS = 1.0


class Busy(TransientError):
    """More is asked at a time than can be answered. Ask again in a few seconds."""

    def __init__(self) -> None:
        super().__init__(str(self.__doc__), code="busy", retry_after=RETRY_SECONDS)


class Turns:
    """Lets `at_once` calls work; `waiting` more wait in the order in which they came, each at most `seconds`."""

    def __init__(self, *, at_once: int = AT_ONCE, waiting: int = WAITING, seconds: float = WAIT_SECONDS) -> None:
        self._places = anyio.Semaphore(at_once, fast_acquire=True)
        self._waiting = waiting
        self._seconds = seconds

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Work within it.

        Raises:
            Busy: too many wait already, or the turn did not come in time.
        """
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait()
        try:
            yield
        finally:
            self._places.release()

    async def _wait(self) -> None:
        if self._places.statistics().tasks_waiting >= self._waiting:
            raise Busy
        with anyio.move_on_after(self._seconds):
            await self._places.acquire()
            return
        raise Busy
