"""Events of the kernel, before anything is made of them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import cast

from watchdog.observers.inotify_c import CallbackId, InotifyEvent, Mask, WatchDescriptor

from ingest_worker.intake.events import Hints, _Inotify


class _Listener:
    def on_event(self, event: InotifyEvent) -> None:
        """Nothing is waited for."""

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Nothing to do."""

    def on_queue_overflow(self) -> None:
        """Nothing is lost that anybody waits for."""


def test_a_folder_that_is_found_twice_is_watched_once_and_nothing_to_warn_of(tmp_path: Path) -> None:
    inotify = _Inotify(Hints())
    inotify.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mask, key = cast("Mask", 0x100), cast("CallbackId", 1)
            places = [inotify.add_callback(os.fsencode(tmp_path), mask, _Listener(), key) for _ in range(2)]
    finally:
        inotify.stop()
    assert places[0] == places[1]
