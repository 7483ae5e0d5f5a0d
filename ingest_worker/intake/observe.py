"""Looking at files: what is there, what may be taken, and where a link leads."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ingest_worker.intake.settle import Signature

_BLOCK = 1024 * 1024


class Kind(StrEnum):
    """What stands at a name."""

    FILE = "file"
    FOLDER = "folder"
    GONE = "gone"
    OUTSIDE = "outside"
    """A link that leads out of the root, or to a folder: it is not followed."""
    OTHER = "other"
    """A named pipe, a socket or a device."""
    HIDDEN = "hidden"
    """It cannot be looked at now: a folder that may not be entered, or a file system that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a name found. A file has its signature, and the later of its mtime and ctime in nanoseconds."""

    kind: Kind
    signature: Signature | None = None
    touched_ns: int = 0


_GONE = Look(kind=Kind.GONE)
_HIDDEN = Look(kind=Kind.HIDDEN)
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


# A bigint of nanoseconds: the years 1677 to 2262. File systems hold more (ext4 up to 2446, tmpfs any), and archives unpack it.
_FIRST_NS, _LAST_NS = -(2**63), 2**63 - 1


def modified_ns(facts: os.stat_result) -> int:
    """When a file last changed by its own account, in nanoseconds; a time beyond what can be stored is cut to that."""
    return min(max(facts.st_mtime_ns, _FIRST_NS), _LAST_NS)


def file_look(facts: os.stat_result) -> Look:
    """The look at a regular file with these facts."""
    return Look(
        kind=Kind.FILE,
        signature=Signature(size=facts.st_size, modified_ns=modified_ns(facts)),
        touched_ns=max(facts.st_mtime_ns, facts.st_ctime_ns),
    )


class Viewer:
    """Looks at files under a root whose own links are resolved. It keeps what it learns of folders, so it is for one batch."""

    def __init__(self, real_root: str) -> None:
        self._root = real_root
        self._through_link: dict[str, bool] = {}

    def look(self, name: str) -> Look:
        """What stands at `name` under the root. A link to a file inside is that file."""
        path = f"{self._root}/{name}"
        try:
            if self._is_through_link(name.rpartition("/")[0]):
                return Look(kind=Kind.OUTSIDE)
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                if not is_inside(self._root, path):
                    return Look(kind=Kind.OUTSIDE)
                facts = Path(path).stat()
                if stat.S_ISDIR(facts.st_mode):
                    return Look(kind=Kind.OUTSIDE)
        except OSError as error:
            return _GONE if error.errno in _ABSENT else _HIDDEN
        if stat.S_ISREG(facts.st_mode):
            return file_look(facts)
        return Look(kind=Kind.FOLDER if stat.S_ISDIR(facts.st_mode) else Kind.OTHER)

    def _is_through_link(self, folder: str) -> bool:
        """Whether a folder on the way is a link, and so is not followed."""
        if not folder:
            return False
        known = self._through_link.get(folder)
        if known is None:
            path = f"{self._root}/{folder}"
            known = self._through_link[folder] = os.path.realpath(path) != path
        return known


def look(real_root: str, name: str) -> Look:
    """One look at `name` under the root, as a `Viewer` looks."""
    return Viewer(real_root).look(name)


def is_inside(real_root: str, path: str) -> bool:
    """Whether a path, its links followed, stays under the root."""
    real = os.path.realpath(path)
    return real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep)


def digest(real_root: str, name: str) -> bytes | None:
    """The sha256 of a file, or None when it cannot be read."""
    found = hashlib.sha256()
    try:
        handle = os.open(f"{real_root}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            while block := file.read(_BLOCK):
                found.update(block)
    except OSError:
        return None
    return found.digest()


def disk_name(path: str, locator: bytes | None) -> str:
    """The name on disk of a document."""
    return path if locator is None else os.fsdecode(locator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A source's folder as it is at the moment: its path with links resolved, and device and inode; or why it cannot be used."""

    path: str
    identity: tuple[int, int] | None
    problem: str | None = None


def look_at_root(root: Path) -> Root:
    """Whether a source's folder is there and can be listed."""
    real = os.path.realpath(root)
    try:
        facts = root.stat()
        with os.scandir(root):
            pass
    except OSError as error:
        return Root(path=real, identity=None, problem=error.strerror or type(error).__name__)
    return Root(path=real, identity=(facts.st_dev, facts.st_ino))
