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
from watchdog.observers.polling import PollingObserverVFS

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
    """A running observer: `mode` is how it learns of changes."""

    mode: Literal["native", "poll"]
    observer: BaseObserver
    close: Callable[[], None]
    is_healthy: Callable[[], bool]


def observe(real_root: str, mode: Literal["auto", "native", "poll"], *, poll_seconds: float, hints: Hints) -> Observation:
    """Start watching a folder whose links are resolved. Where the kernel cannot help, it is polled, and the log says why.

    Raises:
        OSError: the folder cannot be read.
    """
    if mode == "auto":
        mount = network_mount_of(real_root)
        if mount is not None:
            log.warning(
                "watch_polls",
                root=real_root,
                reason=f"{mount.folder} is a network file system ({mount.type}): it gives no events for what others change",
                every_seconds=poll_seconds,
            )
            mode = "poll"
    if mode != "poll":
        try:
            return _observe_natively(real_root, hints)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EMFILE}:
                raise
            warn_of_limit(real_root, error.errno, poll_seconds)
    return _observe_by_polling(real_root, poll_seconds, hints)


def warn_of_limit(real_root: str, error_number: int | None, poll_seconds: float) -> None:
    """Say which kernel limit is too low, what it is and what it should be."""
    name = "max_user_instances" if error_number == errno.EMFILE else "max_user_watches"
    try:
        now = Path(f"/proc/sys/fs/inotify/{name}").read_text(encoding="ascii").strip()
    except OSError:
        now = "unknown"
    needed = 512
    if name == "max_user_watches":
        folders = sum(1 for _ in os.walk(real_root))
        needed = max(524_288, 2 * folders)
    log.warning(
        "watch_polls",
        root=real_root,
        reason=f"fs.inotify.{name} is {now}, which does not suffice for this folder and what else runs here",
        cure=f"sudo sysctl fs.inotify.{name}={needed} (for good: a file in /etc/sysctl.d), then restart the watcher",
        every_seconds=poll_seconds,
    )


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

        def handle_event(self, event: InotifyEvent) -> None:
            super().handle_event(event)
            if event.is_queue_overflow:
                self._hints.put(Hint(HintKind.LOST))

    def _observe_natively(real_root: str, hints: Hints) -> Observation:
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
        return Observation(mode="native", observer=observer, close=close, is_healthy=is_healthy)

else:
    from watchdog.observers import Observer

    def _observe_natively(real_root: str, hints: Hints) -> Observation:
        return _started(Observer(), "native", real_root, hints)


def _observe_by_polling(real_root: str, poll_seconds: float, hints: Hints) -> Observation:
    # lstat: a link to a folder above itself would be walked for ever.
    observer = PollingObserverVFS(os.lstat, _list_folder, polling_interval=poll_seconds)
    return _started(observer, "poll", real_root, hints)


def _list_folder(path: str | None) -> os._ScandirIterator[str]:
    return os.scandir(path)


def _started(observer: BaseObserver, mode: Literal["native", "poll"], real_root: str, hints: Hints) -> Observation:
    observer.schedule(_Forwarder(real_root, hints), real_root, recursive=True)
    observer.start()
    return Observation(mode=mode, observer=observer, close=lambda: _stop(observer), is_healthy=lambda: _is_healthy(observer))


def _is_healthy(observer: BaseObserver) -> bool:
    return observer.is_alive() and bool(observer.emitters) and all(emitter.is_alive() for emitter in observer.emitters)


def _stop(observer: BaseObserver) -> None:
    # It joins its emitters, and one may be in the middle of a snapshot of a slow share: then it ends by itself.
    stopping = threading.Thread(target=observer.stop, name="observer-stop", daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)
