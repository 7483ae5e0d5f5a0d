"""Walking a folder in the byte order of its documents' paths, so that the walk can be merged with the catalogue."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import NamedTuple

from ingest_worker.intake import tally as left_out
from ingest_worker.intake.ignore import IGNORE_FILE, IgnoreRules
from ingest_worker.intake.observe import is_inside, modified_ns
from ingest_worker.intake.tally import Tally
from shared.paths import document_path, readable


class Found(NamedTuple):
    """A file: the document's path, the name on disk, size in bytes, mtime and the later of mtime and ctime in nanoseconds."""

    path: str
    name: str
    size: int
    modified_ns: int
    touched_ns: int


class WalkStopped(Exception):
    """The walk was asked to stop before its end."""


# A piece on its way: what is left of its document path below the level at hand, the name on disk, and the directory entry. Two
# folders whose names differ only in their Unicode form are one folder of documents; a backslash in a name reads as a border of
# folders.
_Piece = tuple[str, str, "os.DirEntry[str]"]
_Items = dict[str, list[_Piece]]

_made = tuple.__new__  # half the time of the class's own constructor, for each file


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
    prefix = "" if not below else document_path(below) + "/"
    items: _Items = {}
    walker.read(below, prefix, items, must=not below)
    return walker.files(items, prefix)


class _Walker:
    def __init__(self, real_root: str, rules: IgnoreRules, tally: Tally, stopped: Callable[[], bool]) -> None:
        self._root = real_root
        self._ignored_by = rules.ignored_by
        self._tally = tally
        self._stopped = stopped

    def read(self, name: str, prefix: str, items: _Items, *, must: bool = False) -> None:
        """Put what is in a folder, given by its name on disk, to the items."""
        if self._stopped():
            raise WalkStopped
        lead = f"{name}/" if name else ""
        place = self._place
        try:
            with os.scandir(f"{self._root}/{name}" if name else self._root) as found:
                for entry in found:
                    base = entry.name
                    place(items, document_path(base), lead + base, entry)
        except (FileNotFoundError, NotADirectoryError):
            if must:
                raise
            # it went while we walked
        except OSError as error:
            if must:
                raise
            self._tally.note_unreadable(prefix, error.strerror or type(error).__name__)

    def files(self, items: _Items, prefix: str) -> Generator[Found]:
        """The files of these items and, in their place, those of the folders among them."""
        levels = [(prefix, iter(sorted(items.items(), key=itemgetter(0))))]
        while levels:
            prefix, ordered = levels[-1]
            for key, same in ordered:
                path = prefix + key
                if key[-1] == "/":
                    below = self._opened(same, path)
                    levels.append((path, iter(sorted(below.items(), key=itemgetter(0)))))
                    break
                found = self._file(same[0], path) if len(same) == 1 else self._one_of(same, path)
                if found is not None:
                    yield found
            else:
                levels.pop()

    def _opened(self, pieces: Sequence[_Piece], prefix: str) -> _Items:
        """What is in a folder, which several folders on disk may make up."""
        items: _Items = {}
        for rest, name, entry in pieces:
            if rest:
                self._place(items, rest, name, entry)
            else:
                self.read(name, prefix, items)
        return items

    def _place(self, items: _Items, key: str, name: str, entry: os.DirEntry[str]) -> None:
        """Put an entry to those of its level: files under `a`, folders under `a/`; what reads alike together."""
        if "/" in key:
            head, _, rest = key.partition("/")
            items.setdefault(head + "/", []).append((rest, name, entry))
            return
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
        except OSError:
            is_folder = False
        rule = self._ignored_by(name, is_directory=is_folder)
        if rule is not None:
            if name != IGNORE_FILE:
                self._tally.note(document_path(name) + ("/" if is_folder else ""), left_out.ignored(rule))
            return
        if is_folder:
            key += "/"
        if key in items:
            items[key].append(("", name, entry))
        else:
            items[key] = [("", name, entry)]

    def _file(self, piece: _Piece, path: str) -> Found | None:
        _, name, entry = piece
        try:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                followed = self._followed(path, entry)
                if followed is None:
                    return None
                facts = followed
        except OSError:  # it went while we walked
            return None
        if not stat.S_ISREG(facts.st_mode):
            self._tally.note(path, left_out.SPECIAL)
            return None
        modified, changed = modified_ns(facts), facts.st_ctime_ns
        return _made(Found, (path, name, facts.st_size, modified, changed if changed > modified else modified))

    def _followed(self, path: str, entry: os.DirEntry[str]) -> os.stat_result | None:
        """What a link inside the root leads to, None when it is not followed."""
        if not is_inside(self._root, entry.path):
            self._tally.note(path, left_out.OUTSIDE)
            return None
        try:
            facts = entry.stat()
        except OSError:
            self._tally.note(path, left_out.TO_NOTHING)
            return None
        if stat.S_ISDIR(facts.st_mode):
            self._tally.note(path, left_out.TO_FOLDER)
            return None
        return facts

    def _one_of(self, pieces: Sequence[_Piece], path: str) -> Found | None:
        """The document among files whose names read alike: the one that is spelt as the document is, else the first."""
        chosen: Found | None = None
        for piece in sorted(pieces, key=lambda piece: (piece[1] != path, piece[1])):
            found = self._file(piece, path)
            if found is None:
                continue
            if chosen is None:
                chosen = found
            else:
                self._tally.note(readable(found.name), left_out.SAME_NAME)
        return chosen
