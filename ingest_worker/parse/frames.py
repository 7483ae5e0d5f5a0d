"""The pages of a TIFF: scanners and fax machines put one picture after the other into one file (TIFF 6.0, section 2)."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from PIL import Image, TiffImagePlugin

_SUBFILE_TYPE: Final = 254
_REDUCED: Final = 1
"""The bit of a picture that shows another one of the file smaller."""
_MOST_PICTURES: Final = 5_000
_BROKEN: Final = (Image.DecompressionBombError, OSError, EOFError, SyntaxError, ValueError, TypeError, KeyError, IndexError)
"""What the library raises for files that are damaged, or larger than it draws."""


@contextmanager
def _quietly() -> Iterator[None]:
    """The library warns of what is odd in a file; what cannot be drawn is counted as a page without text anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Frames:
    """The pages of a TIFF, each drawn when it is asked for. `pictures` counts small copies too; `is_cut`: there are more."""

    def __init__(self, data: bytes) -> None:
        """Look for the pages.

        Raises:
            ValueError: it is no TIFF that can be read here.
        """
        try:
            with _quietly():
                image = Image.open(io.BytesIO(data), formats=("TIFF",))
        except _BROKEN as error:
            raise ValueError(str(error)) from error
        if not isinstance(image, TiffImagePlugin.TiffImageFile):
            raise ValueError("It is no TIFF.")  # noqa: TRY004 - the caller gave bytes, and their content is wrong
        self._image = image
        self._pages: list[int] = []
        self.pictures = 0
        while self.pictures < _MOST_PICTURES and self._go_to(self.pictures):
            if not self._is_reduced():
                self._pages.append(self.pictures)
            self.pictures += 1
        self.is_cut = self._go_to(self.pictures)

    def __len__(self) -> int:
        return len(self._pages)

    def picture(self, index: int) -> bytes:
        """A page by its index from 0, as a PNG; empty when it cannot be drawn."""
        if not self._go_to(self._pages[index]):
            return b""
        out = io.BytesIO()
        try:
            with _quietly():
                # Grey is all that is needed to read it, and what every mode can become.
                self._image.convert("L").save(out, "PNG", compress_level=1)
        except _BROKEN:
            return b""
        return out.getvalue()

    def _go_to(self, number: int) -> bool:
        try:
            with _quietly():
                self._image.seek(number)
        except _BROKEN:
            return False
        return True

    def _is_reduced(self) -> bool:
        kind = self._image.tag_v2.get(_SUBFILE_TYPE, 0)
        return isinstance(kind, int) and bool(kind & _REDUCED)
