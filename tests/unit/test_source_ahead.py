"""Things read ahead: how many at a time, in whose order, and what becomes of failures."""

from __future__ import annotations

import threading

import pytest

from ingest_worker.sources import ahead
from ingest_worker.sources.ahead import Ahead
from ingest_worker.sources.protocol import Item

ITEMS = [Item(key=str(number), content="1", path=f"{number}.md", size=10) for number in range(10)]


class Library:
    """Gives each item's key as its bytes; those in `held` wait until they are let go."""

    def __init__(self, *held: str) -> None:
        self.lock = threading.Lock()
        self.begun: list[str] = []
        self.at_work = self.most = 0
        self.come = threading.Event()
        self.go = {key: threading.Event() for key in held}

    def read(self, item: Item) -> bytes:
        with self.lock:
            self.begun.append(item.key)
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            if self.at_work == 4:
                self.come.set()
        if item.key in self.go:
            assert self.go[item.key].wait(10)
        with self.lock:
            self.at_work -= 1
        if item.key == "5":
            raise ValueError("five")
        return item.key.encode()


def test_four_are_read_at_a_time_and_given_in_their_order() -> None:
    library = Library("0", "1", "2", "3")
    with Ahead(library.read, ITEMS[:5], at_once=4) as reading:
        taken: list[bytes] = []
        taker = threading.Thread(target=lambda: taken.extend(reading.take(item) for item in ITEMS[:5]))
        taker.start()
        assert library.come.wait(10)
        assert taken == []
        for one in ("3", "2", "1", "0"):
            library.go[one].set()
        taker.join(10)
    assert taken == [b"0", b"1", b"2", b"3", b"4"]
    assert library.most == 4


def test_a_failure_comes_to_whoever_takes_its_item_and_to_no_other() -> None:
    library = Library()
    with Ahead(library.read, ITEMS, at_once=4) as reading:
        for item in ITEMS:
            if item.key == "5":
                with pytest.raises(ValueError, match="five"):
                    reading.take(item)
            else:
                assert reading.take(item) == item.key.encode()
    assert sorted(library.begun) == [item.key for item in ITEMS]


def test_no_more_is_read_ahead_than_fits_and_nothing_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST_BYTES", 25)
    library = Library()
    with Ahead(library.read, ITEMS, at_once=4) as reading:
        assert reading.take(ITEMS[0]) == b"0"
    assert set(library.begun) <= {"0", "1"}


def test_one_thing_or_a_source_that_is_for_one_thread_is_read_where_it_is_taken() -> None:
    for items, at_once in ((ITEMS[:1], 4), (ITEMS[:3], 1)):
        threads: list[str] = []

        def read(item: Item, threads: list[str] = threads) -> bytes:
            threads.append(threading.current_thread().name)
            return item.key.encode()

        with Ahead(read, items, at_once=at_once) as reading:
            assert [reading.take(item) for item in items] == [item.key.encode() for item in items]
        assert set(threads) == {threading.current_thread().name}
