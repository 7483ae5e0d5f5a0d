"""What the worker's main process makes of the ends of its children."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest

from ingest_worker.jobs.celery_app import make_app
from ingest_worker.jobs.keeper import Keeper
from shared.config import Settings


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    before = {number: signal.getsignal(number) for number in (signal.SIGQUIT, signal.SIGINT)}
    app = make_app(Settings(redis_url="redis://localhost:1/0"))
    yield Keeper(app, "", name_of=str, concurrency=1, give_up=lambda: None, rng=random.Random(1))
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT])
def test_children_that_celery_ends_before_it_tells_of_the_stop_did_not_crash(keeper: Keeper, number: int) -> None:
    told: list[int] = []

    def as_celery_does(received: int, _frame: object) -> None:
        told.append(received)
        keeper.child_ended(4711, -signal.SIGTERM)

    signal.signal(number, as_celery_does)
    keeper.hear_first()
    os.kill(os.getpid(), number)
    assert told == [number]
    assert keeper._ended.get_nowait() is None  # the word to stop, and nobody who crashed
    assert keeper._ended.empty()
