"""What the file system tells us: hints that something happened at a name. What did happen is found by looking."""

from __future__ import annotations

import errno
import os
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import structlog
from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileAttribEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver

from ingest_worker.intake.mounts import network_mount_of

log = structlog.get_logger(__name__)

MOST_HINTS = 200_000
STOP_SECONDS = 1.0


class HintKind(StrEnum):
    """What happened, as far as it is known."""

    WRITTEN = "written"
    SEEN = "seen"
    """A file is to be compared; nobody saw it being written."""
    MOVED = "moved"
    FOLDER = "folder"
    FOLDER_MOVED = "folder_moved"
    FOLDER_GONE = "folder_gone"
    LOST = "lost"
    """Events were lost: only a sweep can tell."""
    LIMIT = "limit"
    """The kernel takes no more watches: part of the tree is not watched."""
    WAKE = "wake"


@dataclass(frozen=True, slots=True)
class Hint:
    """Something happened at `name`, a name on disk under the root; `old` is where it was before, if it moved."""

    kind: HintKind
    name: str = ""
    old: str = ""


class Hints:
    """Hints on their way from other threads to the loop. What does not fit is lost, and that it was is remembered."""

    def __init__(self, most: int = MOST_HINTS) -> None:
        self._queue: queue.SimpleQueue[Hint] = queue.SimpleQueue()
        self._most = most
        self._overflowed = threading.Event()

    def put(self, hint: Hint) -> None:
        """Add a hint; never waits."""
        if self._queue.qsize() < self._most:
            self._queue.put(hint)
        else:
            self._overflowed.set()

    def take(self, timeout: float, *, most: int = 5000) -> list[Hint]:
        """The hints that are there, after waiting up to `timeout` seconds for the first."""
        hints: list[Hint] = []
        try:
            hints.append(self._queue.get(timeout=max(0.0, timeout)))
            while len(hints) < most:
                hints.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        if self._overflowed.is_set():
            self._overflowed.clear()
            hints.append(Hint(HintKind.LOST))
        return hints


class _Forwarder(FileSystemEventHandler):
    """Turns watchdog's events into hints, in watchdog's thread."""

    def __init__(self, real_root: str, hints: Hints) -> None:
        self._lead = real_root.rstrip(os.sep) + os.sep
        self._hints = hints

    def dispatch(self, event: FileSystemEvent) -> None:
        name, target = self._name(event.src_path), self._name(event.dest_path)
        if isinstance(event, FileMovedEvent | DirMovedEvent) and target and name:
            kind = HintKind.MOVED if isinstance(event, FileMovedEvent) else HintKind.FOLDER_MOVED
            self._hints.put(Hint(kind, target, name))
            return
        kind_of_event = _KINDS.get(type(event))
        if kind_of_event is not None and (name or target):
            self._hints.put(Hint(kind_of_event, name or target))

    def _name(self, path: bytes | str) -> str:
        text = os.fsdecode(path)
        return text[len(self._lead) :] if text.startswith(self._lead) else ""


_KINDS: dict[type[FileSystemEvent], HintKind] = {
    FileCreatedEvent: HintKind.WRITTEN,
    FileModifiedEvent: HintKind.WRITTEN,
    FileClosedEvent: HintKind.WRITTEN,
    FileDeletedEvent: HintKind.WRITTEN,
    FileMovedEvent: HintKind.WRITTEN,
    FileAttribEvent: HintKind.SEEN,
    DirCreatedEvent: HintKind.FOLDER,
    DirMovedEvent: HintKind.FOLDER,
    DirDeletedEvent: HintKind.FOLDER_GONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """How changes are learnt of: from the kernel (`native`), or by sweeping again and again (`poll`).

    `notice` is what a person should know of it, with what to do.
    """

    mode: Literal["native", "poll"]
    notice: str | None = None
    observer: BaseObserver | None = None
    close: Callable[[], None] = lambda: None
    is_healthy: Callable[[], bool] = lambda: True


def observe(
    real_root: str, mode: Literal["auto", "native", "poll"], *, poll_seconds: float, rescan_seconds: float, hints: Hints
) -> Observation:
    """Start watching a folder whose links are resolved. Where the kernel cannot help, it is polled, and the notice says why.

    Raises:
        OSError: the folder cannot be read.
    """
    notice = None
    mount = None if mode == "poll" else network_mount_of(real_root)
    if mount is not None:
        what = f"{mount.folder} is a network file system ({mount.type}): it gives no events for what other machines change."
        if mode == "auto":
            return Observation(mode="poll", notice=f"{what} It is looked through every {poll_seconds:g} s instead.")
        notice = f"{what} DOCWELL_WATCH_MODE is native, so those are found every {rescan_seconds:g} s; `auto` polls here."
    if mode == "poll":
        return Observation(mode="poll")
    try:
        observer, close, is_healthy = _observe_natively(real_root, hints)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EMFILE}:
            raise
        return polled_for_limit(real_root, error.errno, poll_seconds)
    return Observation(mode="native", notice=notice, observer=observer, close=close, is_healthy=is_healthy)


def polled_for_limit(real_root: str, error_number: int | None, poll_seconds: float) -> Observation:
    """Polling, since a limit of the kernel is too low: the notice says which, what it is and what it should be."""
    name = "max_user_instances" if error_number == errno.EMFILE else "max_user_watches"
    try:
        now = int(Path(f"/proc/sys/fs/inotify/{name}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        now = 0
    if name == "max_user_watches":
        folders = sum(1 for _ in os.walk(real_root))
        wants = f"this folder alone has {folders:,} folders to watch"
        needed = max(524_288, 2 * (now + folders))
    else:
        wants = "every watcher of this user needs one, here and in other programs"
        needed = max(512, 2 * now)
    return Observation(
        mode="poll",
        notice=(
            f"The kernel's limit fs.inotify.{name} is {now:,}, and {wants}. The folder is looked through every {poll_seconds:g} s"
            f" instead. Raise it with `sudo sysctl fs.inotify.{name}={needed}` (for good: in /etc/sysctl.d), then restart the"
            " watcher."
        ),
    )


_Watch = tuple[BaseObserver, Callable[[], None], Callable[[], bool]]
"""An observer, what ends it, and whether it still observes."""

if sys.platform.startswith("linux"):
    from watchdog.observers.inotify import InotifyEmitter
    from watchdog.observers.inotify_c import CallbackId, InotifyEvent, InotifyFD, Mask, WatchCallback, WatchDescriptor
    from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

    # The two halves of a rename come in one read. watchdog would hold back all events for half a second for the second half
    # of a move that leaves the tree; what is not paired in time is found by its content.
    _PAIRING_SECONDS = 0.02

    # Reading and opening are of no interest, and workers read a lot.
    _WANTED: list[type[FileSystemEvent]] = list(_KINDS)

    class _Inotify(InotifyFD):
        """watchdog's inotify, which also tells of lost events and of folders that could not be watched."""

        def __init__(self, hints: Hints) -> None:
            super().__init__()
            self._hints = hints

        def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
            if not os.access(path, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            try:
                return super().add_callback(path, mask, callback, id_)
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EMFILE}:
                    self._hints.put(Hint(HintKind.LIMIT))
                raise

        def _add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
            # A folder that comes while its parent is walked is found by the walk and told by an event: nothing to warn of in
            # the log, once for each folder of a copied tree, as watchdog does.
            watch = self._get_or_create_watch(path, mask)
            watch.callbacks[id_] = callback
            return watch.wd

        def handle_event(self, event: InotifyEvent) -> None:
            super().handle_event(event)
            if event.is_queue_overflow:
                self._hints.put(Hint(HintKind.LOST))

    def _observe_natively(real_root: str, hints: Hints) -> _Watch:
        InotifyMoveEventGrouper.delay = _PAIRING_SECONDS
        inotify = _Inotify(hints)
        inotify.start()
        observer = BaseObserver(InotifyEmitter, inotify_fd=inotify)

        def close() -> None:
            _stop(observer)
            inotify.stop()
            inotify.join(STOP_SECONDS)

        def is_healthy() -> bool:
            return inotify.is_alive() and _is_healthy(observer)

        observer.schedule(_Forwarder(real_root, hints), real_root, recursive=True, event_filter=_WANTED)
        try:
            observer.start()
        except OSError:
            inotify.stop()
            inotify.join(STOP_SECONDS)
            raise
        return observer, close, is_healthy

else:
    from watchdog.observers import Observer

    def _observe_natively(real_root: str, hints: Hints) -> _Watch:
        observer = Observer()
        observer.schedule(_Forwarder(real_root, hints), real_root, recursive=True)
        observer.start()
        return observer, lambda: _stop(observer), lambda: _is_healthy(observer)


def _is_healthy(observer: BaseObserver) -> bool:
    return observer.is_alive() and bool(observer.emitters) and all(emitter.is_alive() for emitter in observer.emitters)


def _stop(observer: BaseObserver) -> None:
    # It joins its emitters, and one may be waiting for a slow file system: then it ends by itself.
    stopping = threading.Thread(target=observer.stop, name="observer-stop", daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)
