"""One foreground process that starts Docwell's services in order, starts again what crashes, and stops all of them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from infra.local.accounts import Account
from infra.local.logs import Follower, last_lines, log_path, open_log, rotate
from infra.local.processes import spawn
from infra.local.runtime import state_path, write_atomically
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable

CRASHES = 5
"""So many crashes within `CRASH_SECONDS` are a crash loop: reported once, and tried on at `SLOWEST_RESTART` seconds."""

CRASH_SECONDS = 60.0
FIRST_RESTART = 0.5
SLOWEST_RESTART = 30.0

START_CRASHES = 3
"""So many crashes before the first time that it is ready end the start: something is wrong that waiting cannot mend."""

_READY_POLL = 0.05
_STOP_POLL = 0.2
_FOLLOW_POLL = 0.2
_TICK = 1.0


class Stopped(Exception):
    """A person asked to stop while the services were still starting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program to keep running. Times are in seconds.

    `ready` answers at once whether it can be used; without it a service counts as ready when it was started. `before`
    runs ahead of every start, the first and those after a crash. `explain` says in a sentence what the end of the log means.
    What others depend on has the lower `tier`: it stops when all of the higher ones have. `nice` is how far it steps back while
    processors are short.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    ready: Callable[[], bool] | None = None
    before: Callable[[], None] | None = None
    explain: Callable[[str], str | None] | None = None
    account: Account | None = None
    folder: Path = Path("/")
    tier: int = 0
    stop_signal: int = signal.SIGTERM
    stop_seconds: float = 10.0
    start_seconds: float = 60.0
    death_signal: int = signal.SIGTERM
    nice: int = 0


@dataclass(kw_only=True, slots=True, eq=False)
class _Running:
    service: Service
    process: subprocess.Popen[bytes] | None = None
    state: str = "starting"
    crashes: list[float] = field(default_factory=list)
    restarts: int = 0
    restart_at: float | None = None
    last_exit: str | None = None
    was_ready: bool = False
    is_up: bool = False


class Supervisor:
    """Runs services; `say` gets sentences for a person. Use it from the main thread, inside `signals()`."""

    def __init__(self, home: Path, say: Callable[[str], None], *, verbose: bool = False) -> None:
        self.home = home
        self._say = say
        self._services: list[_Running] = []
        self._asked_to_stop = 0
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._follower = Follower(home) if verbose else None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Takes the stop signals, and SIGCHLD to notice a crash at once. SIGHUP too, unless nohup asked to ignore it."""

        def on_stop(_number: int, _frame: FrameType | None) -> None:
            self._asked_to_stop += 1

        def on_child(_number: int, _frame: FrameType | None) -> None:
            """The wake-up through the pipe is all that is wanted."""

        handled = {signal.SIGINT: on_stop, signal.SIGTERM: on_stop, signal.SIGCHLD: on_child}
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            handled[signal.SIGHUP] = on_stop
        before = {number: signal.signal(number, handler) for number, handler in handled.items()}
        wakeup = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- starting

    def start(self, *services: Service) -> None:
        """Launches services and waits until they, and all that were launched before, are ready.

        Raises:
            ServiceUnavailable: one did not become ready; the message has the last lines of its log.
            Stopped: a stop signal came meanwhile.
        """
        self.launch(*services)
        self.wait()

    def launch(self, *services: Service) -> None:
        """Starts services in order without waiting for any."""
        for service in services:
            running = _Running(service=service)
            self._services.append(running)
            self._launch(running)

    def wait(self) -> None:
        """Waits until everything that was launched is ready; raises what `start` raises."""
        begun = time.monotonic()
        while waiting := [running for running in self._services if not self._is_ready(running)]:
            self._wait(_READY_POLL)
            if self._asked_to_stop:
                raise Stopped
            self._mend()
            for running in waiting:
                if len(running.crashes) >= START_CRASHES:
                    raise self._failed(running, f"stopped {START_CRASHES} times while starting ({running.last_exit})")
                if time.monotonic() - begun > running.service.start_seconds:
                    raise self._failed(running, f"did not become ready in {running.service.start_seconds:.0f} s")
        self._write_state()

    def _is_ready(self, running: _Running) -> bool:
        if running.process is None or _has_ended(running.process):
            return False
        if not running.is_up:
            ready = running.service.ready
            if ready is None or ready():
                running.is_up = running.was_ready = True
                if running.state != "failing":
                    running.state = "running"
        return running.is_up

    def _launch(self, running: _Running) -> None:
        service = running.service
        if service.before is not None:
            service.before()
        if self._follower is not None:
            self._follower.begin(service.name)
        with open_log(self.home, service.name) as log:
            running.process = spawn(
                service.argv,
                output=log,
                environment=service.environment,
                account=service.account,
                folder=service.folder,
                death_signal=service.death_signal,
                nice=service.nice,
            )
        running.restart_at = None

    def _failed(self, running: _Running, what: str) -> ServiceUnavailable:
        name = running.service.name
        explain = running.service.explain
        why = explain(last_lines(self.home, name, 40)) if explain is not None else None
        end = f"The end of {log_path(self.home, name)}:\n{last_lines(self.home, name, 15)}"
        return ServiceUnavailable(f"{name} {what}. {why + ' ' if why else ''}{end}", code="start_failed")

    # --- running

    def run(self) -> list[str]:
        """Keeps everything running until a stop signal comes; the names of services that kept crashing then."""
        while not self._asked_to_stop:
            self._note_ready()
            self._wait(_TICK)
            self._mend()
            for running in self._services:
                rotate(self.home, running.service.name)
        return [running.service.name for running in self._services if running.state == "failing"]

    def _note_ready(self) -> None:
        """Those that nobody waited for, and those that were started again."""
        became = [running for running in self._services if not running.is_up and self._is_ready(running)]
        if became:
            self._write_state()

    def _mend(self) -> None:
        """Looks after every service once: notes crashes, starts what is due to be started again."""
        changed = False
        now = time.monotonic()
        for running in self._services:
            if running.process is not None and _has_ended(running.process):
                self._note_crash(running, running.process, now)
                changed = True
            elif running.restart_at is not None and now >= running.restart_at:
                running.restarts += 1
                self._restart(running, now)
                changed = True
            elif running.state == "failing" and running.is_up and now - running.crashes[-1] > CRASH_SECONDS:
                running.state = "running"
                self._say(f"{running.service.name} runs again.")
                changed = True
        if changed:
            self._write_state()

    def _restart(self, running: _Running, now: float) -> None:
        try:
            self._launch(running)
        except DocwellError as error:
            self._note_failure(running, str(error), now)

    def _note_crash(self, running: _Running, process: subprocess.Popen[bytes], now: float) -> None:
        running.process = None
        self._note_failure(running, _explain_exit(_bury(process)), now)

    def _note_failure(self, running: _Running, what: str, now: float) -> None:
        name = running.service.name
        running.last_exit = what
        running.is_up = False
        if running.state != "failing":
            running.state = "starting"
        running.crashes = [at for at in running.crashes if now - at < CRASH_SECONDS] + [now]
        delay = min(FIRST_RESTART * 2 ** (len(running.crashes) - 1), SLOWEST_RESTART)
        if len(running.crashes) >= CRASHES:
            delay = SLOWEST_RESTART
            if running.state != "failing":
                running.state = "failing"
                self._say(
                    f"{name} stopped {CRASHES} times within {CRASH_SECONDS:.0f} s ({running.last_exit}); it is started again"
                    f" every {SLOWEST_RESTART:.0f} s. The end of {log_path(self.home, name)}:\n{last_lines(self.home, name, 15)}"
                )
        elif running.was_ready:
            self._say(f"{name} stopped ({running.last_exit}); it is started again in {delay:g} s.")
        running.restart_at = now + delay

    def _wait(self, seconds: float) -> None:
        """Pauses, unless a stop signal came already."""
        if not self._asked_to_stop:
            self._pause(min(seconds, _FOLLOW_POLL) if self._follower else seconds)

    def _pause(self, seconds: float) -> None:
        """Sleeps until a signal comes, at most so long, and shows what the logs said meanwhile."""
        select.select([self._wake], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._wake, 512)
        if self._follower is not None:
            self._follower.show()

    def _write_state(self) -> None:
        services = {
            running.service.name: {
                "state": running.state,
                "pid": running.process.pid if running.process is not None else None,
                "restarts": running.restarts,
                "last_exit": running.last_exit,
            }
            for running in self._services
        }
        content = {"supervisor_pid": os.getpid(), "services": services}
        try:
            write_atomically(state_path(self.home), json.dumps(content, indent=2) + "\n")
        except ConfigurationError as error:  # a full disk stops no service
            self._say(str(error))

    # --- stopping

    def stop(self) -> None:
        """Stops everything, the highest tier first, each service within its time, then by force.

        A second stop signal ends everything at once.
        """
        patience = max(self._asked_to_stop, 1)
        for tier in sorted({running.service.tier for running in self._services}, reverse=True):
            if not self._stop_tier(tier, patience):
                self._say("Ended at once.")
                self._kill_all()
                return
        state_path(self.home).unlink(missing_ok=True)

    def _stop_tier(self, tier: int, patience: int) -> bool:
        """Whether it stopped before more than `patience` stop signals had come."""
        stopping = {running: running.process for running in reversed(self._services) if running.service.tier == tier}
        for running, process in stopping.items():
            if process is not None and not _has_ended(process):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, running.service.stop_signal)
        begun = time.monotonic()
        for running, process in stopping.items():
            if process is None:
                continue
            deadline = begun + running.service.stop_seconds
            while not _has_ended(process) and time.monotonic() < deadline:
                self._pause(min(_STOP_POLL, max(0.0, deadline - time.monotonic())))
                if self._asked_to_stop > patience:
                    return False
            if not _has_ended(process):
                self._say(f"{running.service.name} did not stop in {running.service.stop_seconds:.0f} s and was ended.")
            _bury(process)
            running.process = None
        return True

    def _kill_all(self) -> None:
        for running in reversed(self._services):
            if running.process is not None:
                _bury(running.process)
                running.process = None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ended; it is not reaped yet, so that its number still names its group."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _bury(process: subprocess.Popen[bytes]) -> int:
    """Ends the process and what is left of its group by force, and answers its exit status as Popen gives it."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _explain_exit(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
