"""Watching one folder: events are hints, the settler says when a file is ready, the catalogue is told in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import psycopg
import structlog

from ingest_worker.catalogue.sources import get_source
from ingest_worker.catalogue.whereabouts import placed_under
from ingest_worker.intake.decide import decide
from ingest_worker.intake.desk import Desk
from ingest_worker.intake.events import Hint, HintKind, Hints, Observation, observe, polled_for_limit
from ingest_worker.intake.ignore import IGNORE_FILE
from ingest_worker.intake.names import name_rules
from ingest_worker.intake.notice import Noticer
from ingest_worker.intake.observe import Kind, Root, Viewer, disk_name, look, look_at_root
from ingest_worker.intake.orders import WAIT_SECONDS, carry_out
from ingest_worker.intake.settle import CAPACITY, Due, Settler
from ingest_worker.intake.sweeper import AT_A_TIME, Handlers, Sweeper
from ingest_worker.jobs.wake import Wake
from shared.config import FolderSettings, Settings
from shared.database import Pool, first_line, reachable
from shared.errors import ServiceUnavailable
from shared.paths import document_path

log = structlog.get_logger(__name__)

HEALTH_SECONDS = 1.0
BACKOFF_SECONDS = (0.25, 5.0)
# A folder that is removed with all it holds gives an event for each folder in it: they are put together first.
GATHER_SECONDS = 0.2
MOST_FOLDERS = 50


class FolderWatcher:
    """Watches the folder of one source. `run` is the loop that decides; watchdog and the sweeps have threads of their own."""

    def __init__(
        self,
        source: FolderSettings,
        settings: Settings,
        pool: Pool,
        wake: Wake,
        *,
        sweep_turn: threading.Semaphore | None = None,
        clock: Callable[[], float] = time.monotonic,
        capacity: int = CAPACITY,
    ) -> None:
        self._source = source
        self._settings = settings
        self._pool = pool
        self._wake = wake
        self._clock = clock
        self._root = look_at_root(source.root)
        self._hints = Hints()
        self._settler = Settler(
            settle_seconds=settings.watch_settle_seconds, grace_seconds=settings.delete_grace_seconds, capacity=capacity
        )
        self._noticer = Noticer(
            source.name, source.root, self._root.path, source.ignore, self._settler, names=name_rules(settings)
        )
        self._observation: Observation | None = None
        self._limited: Observation | None = None
        self._root_missing = False
        self._sweeper = Sweeper(
            source,
            settings,
            pool,
            wake,
            handlers=Handlers(
                rules=self._noticer.reload_rules,
                later=lambda name: self._hints.put(Hint(HintKind.SEEN, name)),
                swept=self._noticer.follow_sweep,
            ),
            turn=sweep_turn or threading.Semaphore(AT_A_TIME),
        )
        self._desk = Desk(source.name, pool, clock=clock)
        self._health_at = 0.0
        self._gathered_at: float | None = None
        self._away_since: float | None = None
        self._retry_at = 0.0
        self._backoff = BACKOFF_SECONDS[0]

    @property
    def mode(self) -> str | None:
        """`native` or `poll`, None while the folder is not there."""
        return None if self._observation is None else self._observation.mode

    @property
    def waiting(self) -> int:
        """How many files are settling or waiting for the database."""
        return len(self._settler)

    def request_sweep(self) -> None:
        """Sweep soon, whatever the interval."""
        self._sweeper.request()

    def wake_up(self) -> None:
        """Make the loop look at its stop event now."""
        self._hints.put(Hint(HintKind.WAKE))

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set (and `wake_up` called, to end at once).

        Raises:
            DocwellError: the sweeps met something that no retry mends.
        """
        self._sweeper.start(stop)
        try:
            while not stop.is_set():
                self._check_health()
                if self._desk.serve(self._observation):
                    self._sweeper.request()
                hints = self._hints.take(self._wait_seconds())
                now = self._clock()
                self._noticer.follow(hints, now)
                if any(hint.kind is HintKind.LIMIT for hint in hints):
                    self._go_polling()
                self._answer_notices(now)
                self._work_off(stop)
                self._sweeper.check()
        finally:
            self._stop_observing()
            self._sweeper.join()
            self._desk.close()

    def _wait_seconds(self) -> float:
        now = self._clock()
        times = [self._health_at, self._desk.next_at]
        deadline = self._settler.next_deadline()
        if deadline is not None:
            times.append(max(deadline, self._retry_at))
        if self._gathered_at is not None:
            times.append(max(self._gathered_at + GATHER_SECONDS, self._retry_at))
        return max(0.0, min(times) - now)

    # The folder and its observer

    def _check_health(self) -> None:
        now = self._clock()
        if now < self._health_at:
            return
        self._health_at = now + HEALTH_SECONDS
        root = look_at_root(self._source.root)
        if root.identity is None:
            self._lose_root(root)
            return
        observation = self._observation
        if observation is not None and observation.is_healthy() and root.identity == self._root.identity:
            return
        if observation is not None:
            log.warning("watch_restarts", source=self._source.name, reason="the observer ended, or the folder was replaced")
            self._stop_observing()
        self._start_observing(root)

    def _start_observing(self, root: Root) -> None:
        self._root = root
        self._noticer.at(root.path)
        settings = self._settings
        try:
            self._observation = self._limited or observe(
                root.path,
                settings.watch_mode,
                poll_seconds=settings.watch_poll_seconds,
                rescan_seconds=settings.watch_rescan_seconds,
                hints=self._hints,
            )
        except OSError as error:  # it went between the look and now
            self._lose_root(Root(path=root.path, identity=None, problem=error.strerror))
            return
        self._root_missing = False
        self._sweeper.polls = self._observation.mode == "poll"
        level = log.info if self._observation.notice is None else log.warning
        level(
            "watching",
            source=self._source.name,
            root=str(self._source.root),
            mode=self._observation.mode,
            notice=self._observation.notice,
        )
        # What happened before the observer stood is found by a sweep after it stands.
        self._sweeper.request()

    def _lose_root(self, root: Root) -> None:
        self._stop_observing()
        if not self._root_missing:
            self._root_missing = True
            log.warning(
                "root_missing",
                source=self._source.name,
                root=str(self._source.root),
                reason=root.problem,
                cure="Nothing is deleted. Mount the folder or correct its permissions; it is watched as soon as it is there.",
            )
            self._sweeper.request()

    def _go_polling(self) -> None:
        if self._limited is None and self._observation is not None and self._observation.mode == "native":
            self._limited = polled_for_limit(self._root.path, None, self._settings.watch_poll_seconds)
            self._stop_observing()
            self._health_at = 0.0

    def _stop_observing(self) -> None:
        if self._observation is not None:
            self._observation.close()
            self._observation = None

    # What was noticed

    def _answer_notices(self, now: float) -> None:
        noticer = self._noticer
        if noticer.rules_changed:
            noticer.rules_changed = False
            log.info("ignore_rules_changed", source=self._source.name)
            # An editor may save by deleting and writing anew: that there are no rules any more is believed after a while.
            if look(self._root.path, IGNORE_FILE).kind is not Kind.GONE:
                noticer.reload_rules()
            self._sweeper.request(after=self._settings.watch_settle_seconds)
        if noticer.lost:
            noticer.lost = False
            # By then the files that are there now have settled, and the sweep can take them by itself.
            self._sweeper.request(after=self._settings.watch_settle_seconds)
        if noticer.folders_gone and self._gathered_at is None:
            self._gathered_at = now

    def _work_off(self, stop: threading.Event) -> None:
        while not stop.is_set():
            now = self._clock()
            if now < self._retry_at:
                return
            try:
                if self._gathered_at is not None and now >= self._gathered_at + GATHER_SECONDS:
                    self._note_gone_folders(now)
                due = self._settler.due(now)
                if not due:
                    return
                self._settle(due, now)
            except (ServiceUnavailable, psycopg.errors.OperationalError) as error:
                self._database_is_away(error)
                return
            self._database_is_back()

    def _note_gone_folders(self, now: float) -> None:
        folders = _outermost(self._noticer.folders_gone)
        if len(folders) > MOST_FOLDERS:
            self._sweeper.request()
        else:
            for folder in folders:
                if look(self._root.path, folder).kind is not Kind.FOLDER:
                    self._note_gone_below(document_path(folder), now)
        self._noticer.folders_gone.clear()
        self._gathered_at = None

    def _note_gone_below(self, folder: str, now: float) -> None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            source = get_source(connection, self._source.name)
            known = [] if source is None else placed_under(connection, source.source_id, folder)
        view = Viewer(self._root.path)
        for document in known:
            name = disk_name(document.path, document.locator)
            if view.look(name).kind in {Kind.FILE, Kind.HIDDEN}:
                continue
            if not self._settler.saw(document.path, name, None, now):
                self._sweeper.request(after=self._settings.delete_grace_seconds)
                return

    def _settle(self, due: Sequence[Due], now: float) -> None:
        """Deal with files that came to rest. Until the database has taken the orders, they stay in the settler."""
        resting = self._look_again(due, now)
        paths = [one.path for one in resting]
        try:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                source = get_source(connection, self._source.name)
                if source is None or source.rests or self._noticer.rules.problem is not None:
                    self._settler.done(paths)  # a sweep finds them when the source goes on
                    return
                decision = decide(connection, source, self._root.path, resting, self._settler, self._noticer.rules.rule_for)
            if any(one.signature is None for one in resting) and look_at_root(self._source.root).identity != self._root.identity:
                self._settler.done(one.path for one in resting if one.signature is None)
                self._settler.postpone(paths, now)
                self._health_at = 0.0
                return
            if decision.orders:
                carry_out(self._pool, source, decision.orders, max_attempts=self._settings.job_attempts, wake=self._wake)
        except (ServiceUnavailable, psycopg.Error):
            self._settler.postpone(paths, now)
            raise
        self._settler.done(decision.done)
        self._settler.postpone(decision.wait, now + self._settings.watch_settle_seconds)
        if decision.held:
            log.warning("deletes_held", source=source.name, count=len(decision.held))
            self._settler.postpone(decision.held, now + self._settings.watch_rescan_seconds)
            self._sweeper.request()

    def _look_again(self, due: Sequence[Due], now: float) -> list[Due]:
        resting = []
        view = Viewer(self._root.path)
        for one in due:
            found = view.look(one.name)
            if found.signature == one.signature:
                resting.append(one)
            elif not self._settler.saw(one.path, one.name, found.signature, now, written=True):
                self._noticer.lost = True
        return resting

    # The database

    def _database_is_away(self, error: Exception) -> None:
        now = self._clock()
        if self._away_since is None:
            self._away_since = now
            log.warning("database_away", source=self._source.name, error=first_line(error), waiting=len(self._settler))
        self._retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, BACKOFF_SECONDS[1])

    def _database_is_back(self) -> None:
        if self._away_since is not None:
            log.info("database_back", source=self._source.name, away_seconds=round(self._clock() - self._away_since, 1))
        self._away_since = None
        self._retry_at = 0.0
        self._backoff = BACKOFF_SECONDS[0]


def _outermost(folders: set[str]) -> list[str]:
    """The folders that lie in no other of them."""
    outermost: list[str] = []
    for folder in sorted(folders, key=lambda name: name + "/"):
        if not outermost or not folder.startswith(outermost[-1] + "/"):
            outermost.append(folder)
    return outermost
