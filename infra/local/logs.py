"""Log files of the services: each writes to its own file, which is kept from growing without end."""

from __future__ import annotations

import os
import shutil
import sys
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
    except FileNotFoundError:
        return False
    kept = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, kept)
    except OSError:  # a full disk: room matters more than old lines
        kept.unlink(missing_ok=True)
    os.truncate(path, 0)
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


class Follower:
    """Shows on stderr what services write to their logs from now on, each line under its service's name."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._offsets: dict[str, int] = {}

    def begin(self, name: str) -> None:
        """Follows the log of `name` from its present end; call it before the service starts."""
        try:
            self._offsets.setdefault(name, log_path(self._home, name).stat().st_size)
        except FileNotFoundError:
            self._offsets.setdefault(name, 0)

    def show(self) -> None:
        """Writes the complete lines that came since the last call."""
        for name, offset in self._offsets.items():
            path = log_path(self._home, name)
            try:
                if path.stat().st_size < offset:  # it was rotated
                    offset = 0
                with path.open("rb") as log:
                    log.seek(offset)
                    text = log.read(1024 * 1024)
            except OSError:
                continue
            complete = text[: text.rfind(b"\n") + 1]
            self._offsets[name] = offset + len(complete)
            for line in complete.decode(errors="replace").splitlines():
                print(f"{name:>9} | {line}", file=sys.stderr, flush=True)  # noqa: T201 (what --verbose asks for)
