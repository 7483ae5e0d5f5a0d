"""What the worker's main process looks after: jobs of children that died, and a consumer that went silent.

Celery is the one who wakes children and starts new ones. It does not say whose job a dead child held, and more than once its
consumer was seen up, silent and deaf after Redis had been away (celery issues 8030, 8091, 8384, 10205). So messages that wait
while this worker takes none end the process: whoever started it starts it again.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import psycopg
import structlog
from celery import Celery
from celery.concurrency.prefork import TaskPool
from celery.worker import state

from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.broker import Broker, BrokerAway
from ingest_worker.jobs.lost import UNKNOWN, how_it_ended, take_back
from shared.database import connect
from shared.errors import ServiceUnavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
DEAF_SECONDS = 30.0
EXIT_STATUS = 75
"""EX_TEMPFAIL of sysexits.h: try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A child that is gone, and its exit status, negative for a signal; None when nobody knows."""

    worker: str
    status: int | None


class ReportingPool(TaskPool):  # type: ignore[misc]
    """Celery's prefork pool, which also tells how each of its processes ended."""

    on_end: Callable[[int, int | None], None] | None = None
    """Called with process id and exit status, in the main process's event loop: it must not wait."""

    def register_with_event_loop(self, loop: Any) -> None:
        """Also listens for ends; Celery sets its own listener here."""
        super().register_with_event_loop(loop)
        clean_up = self._pool.on_process_down

        def on_process_down(process: Any) -> None:
            clean_up(process)
            if self.on_end is not None:
                self.on_end(process.pid, process.exitcode)

        self._pool.on_process_down = on_process_down


class Deafness:
    """Whether messages have been waiting for `patience` seconds without one being taken by a worker that has time for it."""

    def __init__(self, *, patience: float = DEAF_SECONDS) -> None:
        self._patience = patience
        self._since: float | None = None
        self._taken = -1

    def look(self, now: float, *, waiting: int | None, taken: int, busy: bool) -> bool:
        """One look, with the messages that wait (None: Redis is away), those that were ever taken, and whether all are busy."""
        if not waiting or busy or taken != self._taken:
            self._since, self._taken = None, taken
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._patience


class Keeper:
    """A thread of the main process. `name_of` makes a child's worker name from its process id."""

    def __init__(
        self,
        app: Celery,
        database_url: str,
        *,
        name_of: Callable[[int], str],
        concurrency: int,
        give_up: Callable[[], None],
        rng: random.Random,
        deafness: Deafness | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._broker = Broker(app)
        self._database_url = database_url
        self._name_of = name_of
        self._concurrency = concurrency
        self._give_up = give_up
        self._rng = rng
        self._deafness = deafness or Deafness()
        self._look_seconds = look_seconds
        self._ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._unsaid: list[Ended] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        # A child that is forked while this thread holds some lock, say of the log, would wait for it for ever.
        self._busy = threading.Lock()
        os.register_at_fork(before=self._busy.acquire, after_in_parent=self._busy.release, after_in_child=self._busy.release)

    def start(self, orphans: Sequence[str] = ()) -> None:
        """Take back the jobs of these workers, which are no more, and look from now on."""
        self._unsaid.extend(Ended(worker=worker, status=None) for worker in orphans)
        self._thread.start()

    def stop(self, **_: object) -> None:
        """From now on children end because they are told to."""
        self._stopping.set()
        self._ended.put(None)

    def hear_first(self) -> None:
        """Learn of SIGQUIT and SIGINT before Celery, from the main thread.

        It ends its processes first and tells of the stop afterwards: they would look like crashes, and cost jobs an attempt.
        """
        for number in (signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, partial(self._stop_then, signal.getsignal(number)))

    def _stop_then(self, handler: object, number: int, frame: FrameType | None) -> None:
        self.stop()
        if callable(handler):
            handler(number, frame)

    def child_ended(self, pid: int, status: int | None) -> None:
        """Note the end of a child; never waits."""
        if not self._stopping.is_set():
            self._ended.put(Ended(worker=self._name_of(pid), status=status))

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._busy:
                self._take_back()
                self._listen()
            with contextlib.suppress(queue.Empty):
                ended = self._ended.get(timeout=self._look_seconds)
                if ended is not None:
                    self._unsaid.append(ended)

    def _take_back(self) -> None:
        if not self._unsaid:
            return
        try:
            with connect(self._database_url, name="docwell-worker", autocommit=True) as connection:
                while self._unsaid and not self._stopping.is_set():
                    ended = self._unsaid[0]
                    how = UNKNOWN if ended.status is None else how_it_ended(ended.status)
                    with connection.transaction():
                        for job in jobs.held_by(connection, [ended.worker]):
                            take_back(connection, job, how, rng=self._rng)
                    self._unsaid.pop(0)
        except (ServiceUnavailable, psycopg.Error) as error:
            log.warning("database_unreachable", error=str(error), cure="It is tried again; leases run out by themselves.")

    def _listen(self) -> None:
        waiting: int | None = None
        with contextlib.suppress(BrokerAway):
            waiting = self._broker.waiting()
        busy = len(state.active_requests) >= self._concurrency
        if self._deafness.look(time.monotonic(), waiting=waiting, taken=state.all_total_count[0], busy=busy):
            log.error(
                "consumer_deaf",
                waiting=waiting,
                cure="Messages wait and this worker takes none: it ends, to be started again by its supervisor.",
            )
            self._give_up()
            os._exit(EXIT_STATUS)
