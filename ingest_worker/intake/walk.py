"""Walking a folder in the byte order of its documents' paths, so that the walk can be merged with the catalogue."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.observe import is_inside
from shared.text import normalise_path


class Found(NamedTuple):
    """A file: the document's path, the name on disk, size in bytes, mtime and the later of mtime and ctime in nanoseconds."""

    path: str
    name: str
    size: int
    modified_ns: int
    touched_ns: int


@dataclass(slots=True)
class Tally:
    """What a walk left out. `unreadable` are the document paths of folders (`docs/`) that could not be read, and why."""

    ignored: int = 0
    refused: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    special: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


class WalkStopped(Exception):
    """The walk was asked to stop before its end."""


_MOST_NAMES = 1000

# A piece on its way: what is left of its document path below the level at hand, and the directory entry. Two folders whose
# names differ only in their Unicode form are one folder of documents; a backslash in a name reads as a border of folders.
_Piece = tuple[str, str, "os.DirEntry[str]"]


def walk(
    real_root: str, rules: IgnoreRules, tally: Tally, *, below: str = "", stopped: Callable[[], bool] = lambda: False
) -> Generator[Found]:
    """The files under the root (or under `below`, a name on disk) that may be documents, in the byte order of their paths.

    Links to files inside the root are files; links that leave it, and all links to folders, are not followed. One directory
    at a time is held in memory for each level.

    Raises:
        OSError: the root itself cannot be read.
        WalkStopped: `stopped` said so.
    """
    walker = _Walker(real_root, rules, tally, stopped)
    prefix = "" if not below else normalise(below) + "/"
    return walker.files(walker.entries(below, prefix, must=not below), prefix)


def normalise(name: str) -> str:
    """The document path of a name on disk."""
    if name.isascii() and "\\" not in name:
        return name
    return normalise_path(os.fsencode(name).decode("utf-8", "replace"))


class _Walker:
    def __init__(self, real_root: str, rules: IgnoreRules, tally: Tally, stopped: Callable[[], bool]) -> None:
        self._root = real_root
        self._rules = rules
        self._tally = tally
        self._stopped = stopped

    def entries(self, name: str, prefix: str, *, must: bool = False) -> list[_Piece]:
        """The pieces in a folder, given by its name on disk."""
        if self._stopped():
            raise WalkStopped
        lead = f"{name}/" if name else ""
        try:
            with os.scandir(f"{self._root}/{name}" if name else self._root) as found:
                return [(normalise(entry.name), lead + entry.name, entry) for entry in found]
        except (FileNotFoundError, NotADirectoryError):
            if must:
                raise
            return []  # it went while we walked
        except OSError as error:
            if must:
                raise
            self._tally.unreadable[prefix] = error.strerror or type(error).__name__
            return []

    def files(self, pieces: Sequence[_Piece], prefix: str) -> Generator[Found]:
        """The files of these pieces and, in their place, those of the folders among them."""
        levels = [(prefix, self._in_order(pieces))]
        while levels:
            prefix, items = levels[-1]
            for key, same in items:
                path = prefix + key
                if key[-1] == "/":
                    levels.append((path, self._in_order(self._opened(same, path))))
                    break
                found = self._file(same, path)
                if found is not None:
                    yield found
            else:
                levels.pop()

    def _in_order(self, pieces: Sequence[_Piece]) -> Iterator[tuple[str, list[_Piece]]]:
        """The pieces under their names, files as `a` and folders as `a/`, in byte order; those that read alike together."""
        items: dict[str, list[_Piece]] = {}
        for piece in pieces:
            left, name, entry = piece
            if "/" in left:
                head, _, rest = left.partition("/")
                items.setdefault(head + "/", []).append((rest, name, entry))
            elif self._is_folder(entry):
                if self._passes(name, is_directory=True):
                    items.setdefault(left + "/", []).append(("", name, entry))
            elif self._passes(name, is_directory=False):
                items.setdefault(left, []).append(piece)
        return iter(sorted(items.items(), key=itemgetter(0)))

    def _opened(self, pieces: Sequence[_Piece], prefix: str) -> list[_Piece]:
        opened: list[_Piece] = []
        for piece in pieces:
            if piece[0]:
                opened.append(piece)
            else:
                opened.extend(self.entries(piece[1], prefix))
        return opened

    def _passes(self, name: str, *, is_directory: bool) -> bool:
        if self._rules.ignored_by(name, is_directory=is_directory) is None:
            return True
        self._tally.ignored += 1
        return False

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=False)
        except OSError:
            return False

    def _file(self, pieces: Sequence[_Piece], path: str) -> Found | None:
        # Of several names that read alike, the one that is spelt as the document is.
        ordered = sorted(pieces, key=lambda piece: (piece[1] != path, piece[1])) if len(pieces) > 1 else pieces
        chosen: Found | None = None
        for _, name, entry in ordered:
            facts = self._facts(name, entry)
            if facts is None:
                continue
            if chosen is None:
                modified = facts.st_mtime_ns
                chosen = Found(path, name, facts.st_size, modified, max(modified, facts.st_ctime_ns))
            elif len(self._tally.doubles) < _MOST_NAMES:
                self._tally.doubles.append(name)
        return chosen

    def _facts(self, name: str, entry: os.DirEntry[str]) -> os.stat_result | None:
        try:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                followed = is_inside(self._root, entry.path)
                if followed:
                    facts = entry.stat()
                if not followed or stat.S_ISDIR(facts.st_mode):
                    if len(self._tally.refused) < _MOST_NAMES:
                        self._tally.refused.append(name)
                    return None
        except OSError:  # it went while we walked, or is a link to nothing
            return None
        if stat.S_ISREG(facts.st_mode):
            return facts
        self._tally.special += 1
        return None
