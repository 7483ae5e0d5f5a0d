"""What a walk leaves out: counted whole, and remembered up to a bound."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ingest_worker.catalogue.left_out import Cause, Why
from ingest_worker.intake.names import Rule

MOST_IGNORED = 5000
MOST_OF_ANOTHER_CAUSE = 1000
"""Entries that are remembered of one source, for each cause: ten thousand at most, and ignored ones crowd out no others."""

_LONGEST_REMEMBERED = 500

EMPTY = Why(Cause.EMPTY, "It has 0 bytes. It is taken as soon as it has content.")
OUTSIDE = Why(
    Cause.LINK, "It is a link that leaves the source's folder, and is not followed. Copy the file, or make its folder a source."
)
TO_FOLDER = Why(Cause.LINK, "It is a link to a folder, and is not followed. Make that folder a source where it is in none yet.")
TO_NOTHING = Why(Cause.LINK, "It is a link that leads nowhere. Mend or remove it.")
SPECIAL = Why(Cause.SPECIAL, "It is a named pipe, a socket or a device, and no file.")
SAME_NAME = Why(
    Cause.SAME_NAME,
    "Its name reads like that of another file beside it, which is the document: they differ in their Unicode form (NFC, NFD), in"
    " bytes that are no UTF-8, or in `\\` and `/`. Rename one of them.",
)


def unreadable(why: str) -> Why:
    """A folder that could not be read, with the system's reason."""
    return Why(
        Cause.UNREADABLE,
        f"The folder could not be read ({why}); what was indexed of it is kept. Give this user permission, or ignore it.",
    )


def ignored(rule: Rule) -> Why:
    """An entry that this rule ignores."""
    return Why(Cause.IGNORED, rule.explained)


def too_long(size: int, most: int) -> Why:
    """A path of `size` bytes, where the index takes `most`."""
    return Why(Cause.LONG_PATH, f"Its path has {size:,} bytes of UTF-8; at most {most:,} can be indexed. Shorten it.")


@dataclass(slots=True)
class Tally:
    """What a walk left out, by document path (`docs/` is a folder): counts of all, and the first ones of each cause.

    `unreadable` are the paths of folders that could not be read; what is known below them is not gone.
    """

    counts: Counter[Cause] = field(default_factory=Counter)
    entries: dict[str, Why] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    _kept: Counter[Cause] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All entries that were left out."""
        return self.counts.total()

    def note(self, path: str, why: Why) -> None:
        """Leave out this entry."""
        self.counts[why.cause] += 1
        if self._kept[why.cause] < (MOST_IGNORED if why.cause is Cause.IGNORED else MOST_OF_ANOTHER_CAUSE):
            self._kept[why.cause] += 1
            self.entries[_shortened(path)] = why

    def note_unreadable(self, folder: str, why: str) -> None:
        """Leave out a folder (`docs/`) that could not be read."""
        self.unreadable[folder] = why
        self.note(folder, unreadable(why))

    def hides(self, path: str) -> bool:
        """Whether a path lies in a folder that could not be read."""
        if not self.unreadable:
            return False
        position = path.find("/")
        while position != -1:
            if path[: position + 1] in self.unreadable:
                return True
            position = path.find("/", position + 1)
        return False


def _shortened(path: str) -> str:
    """A path that fits an index of PostgreSQL; the beginning and the name tell where to look."""
    if len(path) <= _LONGEST_REMEMBERED:
        return path
    half = _LONGEST_REMEMBERED // 2
    return f"{path[:half]}…{path[-half:]}"
