"""Rows of many requests stored in one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import psycopg
import pytest

from ingest_worker.api import group_commit
from ingest_worker.api.group_commit import Busy, GroupCommit


class Store:
    """Keeps what it is given; the first call waits until it may go on."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.go_on = threading.Event()
        self.error: Exception | None = None

    def __call__(self, rows: Sequence[str]) -> list[str | Exception]:
        self.groups.append(list(rows))
        assert self.go_on.wait(10)
        if self.error is not None and (len(rows) > 1 or rows[0] == "bad"):
            raise self.error
        return [ValueError(row) if row == "refused" else row.upper() for row in rows]


async def _send(commit: GroupCommit[str, str], store: Store, *rows: str) -> list[str | BaseException]:
    """The first row alone, and the others while it is on its way."""
    tasks = [asyncio.create_task(commit(rows[0]))]
    while not store.groups:
        await asyncio.sleep(0)
    tasks += [asyncio.create_task(commit(row)) for row in rows[1:]]
    await asyncio.sleep(0)
    store.go_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_those_that_come_while_one_is_on_its_way_go_together_and_each_hears_of_its_own() -> None:
    store = Store()
    first, *others = asyncio.run(_send(GroupCommit(store, len), store, "a", "b", "refused", "c"))
    assert store.groups == [["a"], ["b", "refused", "c"]]
    assert (first, others[0], others[2]) == ("A", "B", "C")
    assert isinstance(others[1], ValueError)


def test_one_that_cannot_be_stored_keeps_no_other_out() -> None:
    store = Store()
    store.error = RuntimeError("wrong")
    found = asyncio.run(_send(GroupCommit(store, len), store, "a", "b", "bad", "c"))
    assert [str(one) for one in found] == ["A", "B", "wrong", "C"]
    assert store.groups == [["a"], ["b", "bad", "c"], ["b"], ["bad"], ["c"]]


def test_while_the_database_is_away_all_hear_it_at_once() -> None:
    store = Store()
    store.error = psycopg.OperationalError("away")
    found = asyncio.run(_send(GroupCommit(store, len), store, "bad", "b", "c"))
    assert [str(one) for one in found] == ["away"] * 3
    assert store.groups == [["bad"], ["b", "c"]], "none is tried again alone"


def test_a_group_has_a_size_and_a_sender_that_goes_away_takes_its_row_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MOST_BYTES", 4)
    store = Store()

    async def send() -> None:
        commit = GroupCommit[str, str](store, len)
        first = asyncio.create_task(commit("a"))
        while not store.groups:
            await asyncio.sleep(0)
        gone, *others = [asyncio.create_task(commit(row)) for row in ("gone", "bb", "cc", "dd", "long one")]
        await asyncio.sleep(0)
        gone.cancel()
        store.go_on.set()
        await asyncio.gather(first, *others)

    asyncio.run(send())
    assert store.groups == [["a"], ["bb", "cc"], ["dd"], ["long one"]]


def test_beyond_what_can_be_stored_soon_whoever_comes_is_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MOST_ROWS_WAITING", 2)
    store = Store()
    found = asyncio.run(_send(GroupCommit(store, len), store, "a", "b", "c", "d"))
    assert found[:3] == ["A", "B", "C"]
    assert isinstance(found[3], Busy)
