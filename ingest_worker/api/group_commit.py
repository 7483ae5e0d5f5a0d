"""Rows of many requests stored in one transaction: while one is on its way, those that come meanwhile gather for the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from shared.database import is_away
from shared.errors import TransientError

MOST_ROWS = 200
MOST_BYTES = 4 * 1024 * 1024
"""Of one transaction; a single row may have more."""

MOST_ROWS_WAITING = 2000
MOST_BYTES_WAITING = 64 * 1024 * 1024
"""Beyond these whoever comes is asked to come again."""

Row = TypeVar("Row")
Result = TypeVar("Result")


class Busy(TransientError):
    """More is on its way than can be stored soon."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Row, Result]):
    row: Row
    size: int
    done: asyncio.Future[Result]


class GroupCommit(Generic[Row, Result]):
    """Stores rows together. `store` runs in a thread: it stores all rows that it is given in one transaction, or none, and
    gives a result for each, in their order; a result that is an exception is raised to whoever brought its row. `size` is
    about how many bytes a row takes. To be used from one event loop.
    """

    def __init__(self, store: Callable[[Sequence[Row]], Sequence[Result | Exception]], size: Callable[[Row], int]) -> None:
        self._store = store
        self._size = size
        self._waiting: deque[_Waiting[Row, Result]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, row: Row) -> Result:
        """Store a row; when this returns, its transaction has committed.

        Raises:
            Busy: too many are waiting.
            Exception: what `store` raised, or gave for this row.
        """
        size = self._size(row)
        if self._waiting and (len(self._waiting) >= MOST_ROWS_WAITING or self._bytes + size > MOST_BYTES_WAITING):
            raise Busy("Too much is on its way at once. Try again in a moment.", code="busy")
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(row, size, done))
        self._bytes += size
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._next())
        finally:
            self._task = None

    def _next(self) -> list[_Waiting[Row, Result]]:
        group: list[_Waiting[Row, Result]] = []
        size = 0
        while self._waiting and len(group) < MOST_ROWS and (not group or size + self._waiting[0].size <= MOST_BYTES):
            one = self._waiting.popleft()
            self._bytes -= one.size
            if not one.done.done():  # else its sender went away
                group.append(one)
                size += one.size
        return group

    async def _commit(self, group: list[_Waiting[Row, Result]]) -> None:
        if not group:
            return
        try:
            results = await run_in_threadpool(self._store, [one.row for one in group])
        except Exception as error:  # noqa: BLE001 - raised to those who brought the rows
            if len(group) > 1 and not is_away(error):
                # The others have nothing to do with the one that cannot be stored.
                for one in group:
                    await self._commit([one])
                return
            results = [error] * len(group)
        for one, result in zip(group, results, strict=True):
            if one.done.done():
                continue
            if isinstance(result, Exception):
                one.done.set_exception(result)
            else:
                one.done.set_result(result)
