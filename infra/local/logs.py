"""Log files of the services: each writes to its own file, which is kept from growing without end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

from infra.local.folders import storage_problem

LIMIT_BYTES = 10 * 1024**2
"""A log longer than this moves to `<name>.log.1`, of which there is one."""


def log_path(home: Path, name: str) -> Path:
    """The file that the service `name` writes to."""
    return home / "logs" / f"{name}.log"


def open_log(home: Path, name: str) -> IO[bytes]:
    """The log to hand to a child: appended to, so that it may be cut short while the child writes."""
    path = log_path(home, name)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_problem(error, path) from error
    return os.fdopen(descriptor, "wb", buffering=0)


def rotate(home: Path, name: str, *, limit: int = LIMIT_BYTES) -> bool:
    """Copies a log that is too long aside and empties it in place. A line written in between is lost.

    The children hold the file open, so it cannot be renamed under them; a pipe through the supervisor would keep every
    line, but a supervisor that is killed would break it under children that still have something to say.
    """
    path = log_path(home, name)
    try:
        if path.stat().st_size <= limit:
            return False
        shutil.copyfile(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)
    except FileNotFoundError:
        return False
    return True


def last_lines(home: Path, name: str, count: int) -> str:
    """The last `count` lines of a log, empty when there is none."""
    try:
        with log_path(home, name).open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 16 * 1024))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-count:])
