"""Where the databases and the homes of the tests lie: in memory where there is room."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from infra.local.memory import machine_memory

_GIB = 1024**3

PREFIX = "docwell test "

MEMORY = Path("/dev/shm")
"""Linux's file system in memory. A database, which most tests have, is made there in a tenth of the time that a disk takes."""

LEAST_ROOM, LEAST_MACHINE = 2 * _GIB, 8 * _GIB
"""What must be free there, and what the machine must have. A process of tests fills some 400 MB; containers often have 64."""


def in_memory(folder: Path = MEMORY, *, machine: int | None = None) -> Path | None:
    """`folder` when it can take the files of tests, programs among them; None when they belong where all temporary files do."""
    try:
        place = os.statvfs(folder)
    except OSError:
        return None
    if not os.access(folder, os.W_OK | os.X_OK) or place.f_flag & getattr(os, "ST_NOEXEC", 0):
        return None
    enough = place.f_bavail * place.f_frsize >= LEAST_ROOM and (machine or machine_memory()) >= LEAST_MACHINE
    return folder if enough else None


@contextlib.contextmanager
def passable_folder() -> Iterator[Path]:
    """A folder, with a space in its name, that root's PostgreSQL may pass through; pytest's own folders are closed to it.

    It is locked while it is used: what a killed run left in memory is told by that, and removed.
    """
    memory = in_memory()
    if memory is not None:
        remove_left_over(memory)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory)).resolve()
    if os.geteuid() == 0:
        folder.chmod(0o711)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_left_over(memory: Path, *, now: float | None = None) -> None:
    """Removes the folders of runs that were killed; a folder is locked within a minute of being made."""
    before = (time.time() if now is None else now) - 60
    for folder in memory.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, in use, or just removed
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if folder.stat().st_mtime < before:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
