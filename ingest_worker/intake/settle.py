"""Settling: which file is ready to be taken, which is gone, and which only moved. No clock, disk or database in here.

A file is taken when two looks, `settle_seconds` apart, saw the same size and time and nothing else was seen between them; it
is gone when it has been missing for `grace_seconds`. Each look is fed in with the time of a monotonic clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

CAPACITY = 100_000
"""How many files may be waiting at once; what does not fit is left to a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What tells one state of a file from another without reading it: bytes, and mtime in nanoseconds."""

    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A file that has not changed for its time. `signature` None: it has been missing all the while.

    `name` is the name on disk, `path` the document's. `moved_from` is the path it was renamed from, when that was seen.
    `written` says that a change was seen, rather than only the file.
    """

    path: str
    name: str
    signature: Signature | None
    moved_from: str | None = None
    written: bool = False


@dataclass(slots=True)
class _Entry:
    name: str
    signature: Signature | None
    since: float
    moved_from: str | None
    written: bool
    at: float | None = None
    """When the heap wakes for it, None while it is due."""


class Settler:
    """Files on their way to rest, each under its document's path."""

    def __init__(self, *, settle_seconds: float, grace_seconds: float, capacity: int = CAPACITY) -> None:
        self._settle = settle_seconds
        # A file that moved is missing at its old place as long as it settles at its new one.
        self._grace = max(grace_seconds, settle_seconds)
        self._capacity = capacity
        self._entries: dict[str, _Entry] = {}
        self._missing: dict[str, None] = {}
        self._heap: list[tuple[float, int, str, _Entry]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def saw(
        self,
        path: str,
        name: str,
        signature: Signature | None,
        now: float,
        *,
        moved_from: str | None = None,
        written: bool = True,
    ) -> bool:
        """Note a look at a file (`signature` None: it is not there). False when there is no room for one more."""
        entry = self._entries.get(path)
        if entry is None:
            if len(self._entries) >= self._capacity:
                return False
            entry = _Entry(name, signature, now, None, written)
            self._entries[path] = entry
        elif entry.signature != signature:
            entry.signature = signature
            entry.since = now
        entry.name = name
        entry.written |= written
        if signature is None:
            self._missing[path] = None
        else:
            self._missing.pop(path, None)
        if moved_from is not None and moved_from != path:
            entry.moved_from = self._origin(moved_from)
        deadline = self._deadline(entry)
        # A deadline that moved on is put right when the old one comes; a nearer one (it came back) has to be put in now.
        if entry.at is None or deadline < entry.at:
            self._push(path, entry, deadline)
        return True

    def due(self, now: float, *, limit: int = 500) -> list[Due]:
        """Up to `limit` files whose time is over, oldest first. Each stays until `done`, another `saw` or `postpone`."""
        ready: list[Due] = []
        while self._heap and self._heap[0][0] <= now and len(ready) < limit:
            at, _, path, entry = heapq.heappop(self._heap)
            if self._entries.get(path) is not entry or entry.at != at:
                continue
            deadline = self._deadline(entry)
            entry.at = None
            if deadline > now:
                self._push(path, entry, deadline)
                continue
            ready.append(
                Due(
                    path=path,
                    name=entry.name,
                    signature=entry.signature,
                    moved_from=entry.moved_from,
                    written=entry.written,
                )
            )
        return ready

    def done(self, paths: Iterable[str]) -> None:
        """These have been dealt with, or are of no interest."""
        for path in paths:
            self._entries.pop(path, None)
            self._missing.pop(path, None)

    def postpone(self, paths: Iterable[str], until: float) -> None:
        """Make these due again at a later time: the database is away, or something else has to come first."""
        for path in paths:
            entry = self._entries.get(path)
            if entry is not None and entry.at is None:
                self._push(path, entry, until)

    def missing(self) -> Sequence[str]:
        """The paths of files that are not there at present, longest first."""
        return list(self._missing)

    def is_missing(self, path: str) -> bool:
        """Whether this one is known to be missing."""
        return path in self._missing

    def origins(self) -> set[str]:
        """Where files that still settle were renamed from."""
        return {
            entry.moved_from for entry in self._entries.values() if entry.moved_from is not None and entry.signature is not None
        }

    def next_deadline(self) -> float | None:
        """When to call `due` again; None while nothing waits."""
        while self._heap:
            deadline, _, path, entry = self._heap[0]
            if self._entries.get(path) is entry and entry.at == deadline:
                return deadline
            heapq.heappop(self._heap)
        return None

    def _deadline(self, entry: _Entry) -> float:
        return entry.since + (self._grace if entry.signature is None else self._settle)

    def _push(self, path: str, entry: _Entry, deadline: float) -> None:
        self._pushes += 1
        entry.at = deadline
        heapq.heappush(self._heap, (deadline, self._pushes, path, entry))

    def _origin(self, path: str) -> str:
        """Where a file came from that was renamed twice before it came to rest."""
        between = self._entries.get(path)
        return path if between is None or between.moved_from is None else between.moved_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What is known of a document whose file is missing. All None: its file was never read."""

    size: int | None = None
    modified_ns: int | None = None
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A file that was at `old` is now `arrived`. `same_time`: size and time are those of the bytes that were read last."""

    old: str
    arrived: Due
    same_time: bool


def match_moves(
    arrived: Sequence[Due], missing: Mapping[str, Missing], digest: Callable[[str], bytes | None]
) -> tuple[list[Move], list[Due]]:
    """Pair files that are new with documents whose file is missing: `(moves, the files that are left)`.

    A file that was seen being renamed is the same file, unless it was written since. Otherwise the content decides:
    `digest(name)` gives a file's sha256, or None when it cannot be read, and is asked only when a size fits.
    """
    by_size: dict[int, list[str]] = {}
    for path, facts in missing.items():
        if facts.size is not None and facts.sha256 is not None:
            by_size.setdefault(facts.size, []).append(path)
    taken: set[str] = set()
    moves: list[Move] = []
    rest: list[Due] = []
    for one in arrived:
        old = _origin_of(one, missing, taken) or _same_content(one, missing, by_size, taken, digest)
        if old is None or one.signature is None:
            rest.append(one)
            continue
        taken.add(old)
        facts = missing[old]
        same = (facts.size, facts.modified_ns) == (one.signature.size, one.signature.modified_ns)
        moves.append(Move(old=old, arrived=one, same_time=same and facts.sha256 is not None))
    return moves, rest


def _origin_of(one: Due, missing: Mapping[str, Missing], taken: set[str]) -> str | None:
    old = one.moved_from
    if old is None or old in taken or one.signature is None:
        return None
    facts = missing.get(old)
    if facts is None:
        return None
    unread = facts.sha256 is None
    unchanged = (facts.size, facts.modified_ns) == (one.signature.size, one.signature.modified_ns)
    return old if unread or unchanged else None


def _same_content(
    one: Due,
    missing: Mapping[str, Missing],
    by_size: Mapping[int, Sequence[str]],
    taken: set[str],
    digest: Callable[[str], bytes | None],
) -> str | None:
    if one.signature is None:
        return None
    fitting = [path for path in by_size.get(one.signature.size, ()) if path not in taken]
    if not fitting:
        return None
    found = digest(one.name)
    same = [path for path in fitting if found is not None and missing[path].sha256 == found]
    base = one.path.rpartition("/")[2]
    return min(same, key=lambda path: (path != one.moved_from, path.rpartition("/")[2] != base, path), default=None)
