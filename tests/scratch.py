"""Where the databases and the homes of the tests lie: in memory where there is room."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from infra.local.memory import machine_memory

_GIB = 1024**3

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
    """A folder, with a space in its name, that root's PostgreSQL may pass through; pytest's own folders are closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="docwell tests ", dir=in_memory())).resolve()
    if os.geteuid() == 0:
        folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
