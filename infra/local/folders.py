"""Docwell's home: what lies where, who may enter, and where sockets fit."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from infra.local.accounts import Account
from shared.errors import ConfigurationError, PermanentError

SOCKET_PATH_BYTES = 107
"""The longest path of a Unix socket on Linux (unix(7): 108 bytes with the closing NUL); macOS takes 103."""

_LONGEST_SOCKET = "own/embedder.sock"


def home_key(home: Path) -> str:
    """A short name for a home, for what must lie outside of it."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:12]


def private_folder(folder: Path, *, uid: int | None = None, mode: int | None = None) -> Path:
    """Makes `folder` if it is missing, and makes sure that it belongs to `uid` (ours when None) and no one else may write to it.

    The mode is 0700; 0711 when we are root, whose PostgreSQL runs as another account and has to pass through.

    Raises:
        ConfigurationError: it belongs to somebody else, is no folder, or cannot be made.
    """
    uid = os.geteuid() if uid is None else uid
    mode = (0o711 if os.geteuid() == 0 else 0o700) if mode is None else mode
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=mode)
            if uid != os.geteuid():
                os.chown(folder, uid, -1)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise ConfigurationError(
                f"{folder} must be a folder, and is none. Remove it, or set DOCWELL_HOME to another folder.", code="folder_owner"
            )
        if found.st_uid != uid:
            owner = Account.of(found.st_uid).name
            raise ConfigurationError(
                f"{folder} belongs to {owner!r} and must belong to {Account.of(uid).name!r}. Start Docwell as {owner!r}, or set"
                " DOCWELL_HOME to another folder.",
                code="folder_owner",
            )
        if stat.S_IMODE(found.st_mode) & 0o022 or (stat.S_IMODE(found.st_mode) & mode) != mode:
            folder.chmod(mode)
    except OSError as error:
        raise storage_problem(error, folder) from error
    return folder


def prepare_home(home: Path) -> Path:
    """Makes the home and its folders `run` and `logs`; what is there stays.

    Raises:
        ConfigurationError: the home cannot be written to.
    """
    try:
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        (home / "logs").mkdir(mode=0o700, exist_ok=True)
        private_folder(home / "run")
        probe = home / "run" / f".writable-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise storage_problem(error, home) from error
    return home


def socket_folder(home: Path) -> Path:
    """`run` in the home, or a private folder below /tmp when a socket's path would be too long there.

    Raises:
        ConfigurationError: the folder belongs to somebody else.
    """
    run = home / "run"
    if len(os.fsencode(run / _LONGEST_SOCKET)) <= SOCKET_PATH_BYTES - 4:
        return private_folder(run)
    return outside_socket_folder(home)


def own_sockets(home: Path) -> Path:
    """For the sockets of this user's own processes: nobody else may pass, not even PostgreSQL's account.

    Raises:
        ConfigurationError: the folder belongs to somebody else.
    """
    return private_folder(socket_folder(home) / "own", mode=0o700)


def outside_socket_folder(home: Path) -> Path:
    """The private folder below /tmp, for a home that is too deep, or that PostgreSQL's account cannot enter.

    Raises:
        ConfigurationError: the folder belongs to somebody else.
    """
    return private_folder(Path("/tmp") / f"docwell-{os.geteuid()}-{home_key(home)}")  # noqa: S108 (owner and mode are checked)


def storage_problem(error: OSError, path: Path) -> PermanentError:
    """One clear sentence for what the file system refused."""
    what = {
        errno.ENOSPC: "the disk is full: free some space",
        errno.EDQUOT: "the disk quota is used up: free some space",
        errno.EROFS: "the file system is read-only: set DOCWELL_HOME to a folder that can be written to",
        errno.EACCES: "permission denied: make it writable for this user, or set DOCWELL_HOME to another folder",
        errno.EPERM: "not permitted: make it writable for this user, or set DOCWELL_HOME to another folder",
        errno.ENOTDIR: "a file is in the way: remove it, or set DOCWELL_HOME to another folder",
        errno.EEXIST: "a file is in the way: remove it, or set DOCWELL_HOME to another folder",
    }.get(error.errno or 0, error.strerror or str(error))
    return ConfigurationError(f"Docwell cannot use {path}: {what}.", code="storage")


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[bool]:
    """Holds `lock` until the block ends or this process dies. Yields False, at once, when another process holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_problem(error, lock) from error
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    for attempt in range(10):
        if attempt:  # `is_held` of another process takes the lock for a moment
            time.sleep(0.02)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def is_held(lock: Path) -> bool:
    """Whether a living process holds `lock`."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_problem(error, lock) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
