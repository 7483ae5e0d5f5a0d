"""What is known of a source file's lines: where units begin, how strongly, and which symbol holds a line."""

from __future__ import annotations

from dataclasses import dataclass, field

from ingest_worker.chunk.borders import CUT_ONLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A named unit: lines `start` to `end`, both 0-based and inclusive, with the comments that belong to it.

    `head` is the line that says its name (`class Invoice:`).
    """

    path: str
    start: int
    end: int
    head: int


@dataclass(slots=True)
class Outline:
    """The ranks of the boundaries before lines that begin something, and the definitions in order of their start."""

    ranks: dict[int, int] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)

    def mark(self, line: int, rank: int) -> None:
        """A boundary before `line`; the strongest wins."""
        self.ranks[line] = min(rank, self.ranks.get(line, CUT_ONLY))
