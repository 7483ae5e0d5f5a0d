"""Pictures that lie in a file, cut out for a model that says what they show. They are decoded in the cage, and nowhere else.

What stands around a picture goes with it: the headings that it stands under, and the text of its page, slide or sheet.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from shared.documents import Element, ElementKind, Span

if TYPE_CHECKING:
    from PIL.Image import Image

_AROUND_CHARS: Final = 2_000
_NEIGHBOURS: Final = 4
"""Elements on each side of a picture that are its surroundings, where a format has no pages."""
_SECTION_CHARS: Final = 200
_SAID_CHARS: Final = 300
_MOST_LOOKED_AT: Final = 5_000
"""Pictures of a file that are looked at, whatever becomes of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureLimits:
    """What is cut out of one file at most: pictures, their bytes in all, and the seconds (wall clock) that it may take."""

    pictures: int = 100
    total_bytes: int = 64 * 1024**2
    seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that is worth a description. `key` is a sha256 in hex: the same picture has the same one in every file.

    `data` is a JPEG of `width` × `height` pixels, scaled down to what a model takes; `thumbnail` a small one for people.
    `section` are the headings that it stands under, `around` is the text near it.
    """

    key: str
    span: Span
    width: int
    height: int
    data: bytes = field(repr=False)
    thumbnail: bytes = field(repr=False)
    section: tuple[str, ...] = ()
    around: str = ""


class Pictures:
    """Collects the pictures of one file and of the files in it, each once however often it stands there."""

    def __init__(self, limits: PictureLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._until: float | None = None
        self._keys: set[str] = set()
        self._bytes = 0
        self._looked_at = 0
        self._places: list[int | None] = []
        self.found: list[Picture] = []
        self.left_out: str | None = None
        """Why there may be more pictures than were taken, as a sentence; None: all were."""

    def __len__(self) -> int:
        return len(self.found)

    @property
    def wants_more(self) -> bool:
        """Whether another picture may be taken; nobody has to look for one otherwise."""
        if self._until is None:
            self._until = self._clock() + self._limits.seconds
        if len(self.found) >= self._limits.pictures or self._looked_at >= _MOST_LOOKED_AT:
            self.left_out = f"Of one document {len(self.found)} pictures are described at most: there may be more."
        elif self._clock() > self._until:
            self.left_out = f"Cutting pictures out was ended after {self._limits.seconds:g} seconds."
        elif self._bytes > self._limits.total_bytes:
            self.left_out = f"Its pictures come to more than {self._limits.total_bytes // 1024**2} MiB; the others were left out."
        else:
            return True
        return False

    def knows(self, key: bytes) -> bool:
        """Whether the picture was met before: a logo on every page counts once."""
        return key.hex() in self._keys

    def add_file(self, data: bytes, span: Span, *, at: int | None = None) -> None:
        """A picture as a file (PNG, JPEG, GIF, WebP, TIFF, BMP); one that is none, or cannot be drawn, is passed by.

        `at` is the number of elements before it, where its place says less.
        """
        key = hashlib.sha256(data).digest()
        if data and self.wants_more and not self.knows(key):
            from ingest_worker.parse.picture_encoding import decode  # the library takes a tenth of a second to load

            with self.at_own_risk():
                self.add(decode(data), key, span, at=at)

    def add(self, image: Image | None, key: bytes, span: Span, *, at: int | None = None) -> None:
        """A picture that was drawn; `key` tells it from others. None, and what is too small, too thin or blank, is passed by."""
        from ingest_worker.parse.picture_encoding import encode

        self._looked_at += 1
        if self.knows(key) or not self.wants_more:
            return
        self._keys.add(key.hex())
        encoded = encode(image) if image is not None else None
        if encoded is None or self._bytes + encoded.size > self._limits.total_bytes:
            return
        self._bytes += encoded.size
        self._places.append(at)
        self.found.append(
            Picture(
                key=key.hex(),
                span=span,
                width=encoded.width,
                height=encoded.height,
                data=encoded.data,
                thumbnail=encoded.thumbnail,
            )
        )

    @contextmanager
    def at_own_risk(self) -> Iterator[None]:
        """What goes wrong with a picture is told and costs that picture, and no document its text."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - libraries raise all kinds of errors for broken pictures
            self.left_out = f"A picture could not be read: {type(error).__name__}: {error}"[:_SAID_CHARS]

    def surround(self, first: int, elements: Sequence[Element]) -> None:
        """The pictures from number `first` on stand among these elements."""
        for number in range(first, len(self.found)):
            picture, at = self.found[number], self._places[number]
            if picture.around or picture.section:
                continue  # of a file inside this one
            section, around = surroundings(elements, picture.span, at)
            self.found[number] = replace(picture, section=section, around=around)

    def attach(self, first: int, name: str) -> None:
        """The pictures from number `first` on lie in a file of this name inside the file."""
        for number in range(first, len(self.found)):
            picture = self.found[number]
            within = picture.span.attachment
            span = replace(picture.span, attachment=f"{name} > {within}" if within else name)
            self.found[number] = replace(picture, span=span)


def surroundings(elements: Sequence[Element], span: Span, at: int | None) -> tuple[tuple[str, ...], str]:
    """The headings that something at this place stands under, and the text near it: of its page, slide or sheet, else of the
    elements next to number `at`."""
    own = (span.page_start, span.slide, span.sheet)
    if any(part is not None for part in own):
        near = [number for number, one in enumerate(elements) if (one.span.page_start, one.span.slide, one.span.sheet) == own]
        end = _end_of(elements, span, near)
    else:
        end = len(elements) if at is None else at
        near = list(range(max(0, end - _NEIGHBOURS), min(len(elements), end + _NEIGHBOURS)))
    around = "\n".join(text for number in near if (text := elements[number].text.strip()))
    return _headings(elements[:end], span), around[:_AROUND_CHARS]


def _end_of(elements: Sequence[Element], span: Span, near: Sequence[int]) -> int:
    """Behind which element something on this page stands: the last one of it, or of the pages before."""
    if near:
        return near[-1] + 1
    page = span.page_start
    if page is None:
        return 0
    return sum(1 for one in elements if one.span.page_start is not None and one.span.page_start <= page)


def _headings(before: Sequence[Element], span: Span) -> tuple[str, ...]:
    path: list[tuple[int, str]] = []
    for element in before:
        if element.span.part[1:] != span.part[1:]:
            path = []
        elif element.kind is ElementKind.HEADING:
            level = element.level or 1
            path = [(depth, name) for depth, name in path if depth < level]
            name = " ".join(element.text.split())[:_SECTION_CHARS]
            path += [(level, name)] if name else []
    return tuple(name for _, name in path)
