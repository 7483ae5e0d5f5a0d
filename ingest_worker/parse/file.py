"""A file as a parser gets it, and what it may do about files inside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ingest_worker.parse.ocr import NO_OCR, OcrSettings
from ingest_worker.parse.pictures import Pictures
from shared.documents import ParsedDocument


def nobody(page: int) -> None:
    """Progress that nobody asked for."""


@dataclass(slots=True, kw_only=True)
class Allowance:
    """What the files inside one file may still cost, however deep they lie: their number, and their bytes in all."""

    files: int = 200
    size: int = 512 * 1024**2

    def take(self, size: int) -> bool:
        """Whether one more file of `size` bytes may be read; if so, it counts."""
        if self.files < 1 or size > self.size:
            return False
        self.files -= 1
        self.size -= size
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file. `name` is its path, used only for its name;

    `on_page` hears the 1-based page or slide that is read next. `passwords` are tried on encrypted files, in order.
    `parse` reads a file inside this one; `depth` counts how many files this one lies in. `pictures` collects those of this file,
    where somebody wants them.
    """

    name: str
    data: bytes
    media_type: str = "application/octet-stream"
    passwords: tuple[str, ...] = field(default=(), repr=False)
    ocr: OcrSettings = NO_OCR
    on_page: Callable[[int], None] = nobody
    parse: Callable[[File], ParsedDocument] | None = None
    depth: int = 0
    allowance: Allowance = field(default_factory=Allowance)
    pictures: Pictures | None = None

    def inner(self, name: str, data: bytes) -> File:
        """A file inside this one."""
        return replace(self, name=name, data=data, depth=self.depth + 1, on_page=nobody)
