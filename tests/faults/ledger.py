"""What was done to the documents, as the reader may know it: what must be found, what may be, and what must not."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from tests.faults.texts import word_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One document. Revisions only rise, over all of its lives.

    `written` is the newest revision whose writing has begun; `born` is the first one of this life. `served` is
    the newest that a reader saw where it belongs. `leaving`: its deletion has begun. `moving`: it was renamed, and no reader has
    seen it at its new path yet. `redone`: it was renamed while a change was still on its way, so that it
    may become another document.
    """

    number: int
    ending: str
    path: str
    pushed: bool = False
    written: int = 1
    born: int = 1
    served: int = 0
    leaving: bool = False
    moving: bool = False
    redone: bool = False

    @property
    def word(self) -> str:
        return word_of(self.number)


class Ledger:
    """Entries by number. An entry is replaced whole, before the deed for what may be seen, after it for what must."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[int, Entry] = {}

    def get(self, number: int) -> Entry:
        with self._lock:
            return self._entries[number]

    def all(self) -> list[Entry]:
        with self._lock:
            return list(self._entries.values())

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._entries[entry.number] = entry

    def change(self, number: int, **facts: object) -> Entry:
        with self._lock:
            entry = replace(self._entries[number], **facts)  # type: ignore[arg-type]
            self._entries[number] = entry
            return entry

    def arrived(self, number: int, path: str, revision: int) -> None:
        """A reader saw this revision at this path, and nothing of the document elsewhere."""
        with self._lock:
            entry = self._entries[number]
            if entry.path == path:
                self._entries[number] = replace(
                    entry, served=max(entry.served, revision), moving=False, redone=entry.redone and revision < entry.written
                )

    def __len__(self) -> int:
        return len(self._entries)
