"""From a picture's bytes to what a model is sent, and to a thumbnail: bounded before anything is unpacked."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from PIL import Image, ImageOps

# Anthropic's documentation on vision: what has a longer edge, or more than some 1,600 tokens of 750 pixels each, is scaled down
# there anyway; 5 MB is the most that every model takes of one picture, in base64.
LONGEST_EDGE: Final = 1_568
_MOST_PIXELS: Final = 1_600 * 750
_MOST_BYTES: Final = 3_500_000
PIXELS_PER_TOKEN: Final = 750

_THUMBNAIL_EDGE: Final = 256
_SHORTEST_EDGE: Final = 64
_FEWEST_PIXELS: Final = 128 * 128
_THINNEST: Final = 10
"""Times as long as high, or the reverse: rules, borders and banners without a picture."""
_MOST_DECODED: Final = 100_000_000
"""Pixels of a picture that is unpacked; 300 MB as colours."""
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
_BROKEN: Final = (
    *(Image.DecompressionBombError, OSError, EOFError, SyntaxError, ValueError, TypeError, KeyError, IndexError),
    *(AttributeError, OverflowError, MemoryError, ZeroDivisionError),
)
"""What the library raises for files that are damaged, or larger than fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """JPEGs of a picture: one of `width` × `height` pixels for a model, a small one for people."""

    width: int
    height: int
    data: bytes
    thumbnail: bytes

    @property
    def size(self) -> int:
        """Bytes of both."""
        return len(self.data) + len(self.thumbnail)


def is_worth_it(width: int, height: int) -> bool:
    """Whether a picture of so many pixels can show anything: no dot, no rule, no icon."""
    short, long = sorted((width, height))
    return short >= _SHORTEST_EDGE and short * long >= _FEWEST_PIXELS and long <= short * _THINNEST


@contextmanager
def _quietly() -> Iterator[None]:
    """The library warns of what is odd in a file; a picture that cannot be drawn is passed by anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def decode(data: bytes) -> Image.Image | None:
    """The first picture of a file, upright; None when it is no picture, or too small, too thin, too large or damaged."""
    try:
        with _quietly():
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
            if not is_worth_it(*image.size) or image.width * image.height > _MOST_DECODED:
                return None
            # A JPEG is unpacked at a half, a quarter or an eighth of its size, where that is still enough.
            image.draft("RGB", (LONGEST_EDGE, LONGEST_EDGE))
            image.load()
            return ImageOps.exif_transpose(image)
    except _BROKEN:
        return None


def encode(image: Image.Image) -> Encoded | None:
    """What a model is sent of a picture; None when it is too small, too thin, or of one colour throughout."""
    if not is_worth_it(*image.size):
        return None
    try:
        with _quietly():
            plain = _on_white(_scaled(image, LONGEST_EDGE, _MOST_PIXELS))
            if plain.getcolors(1) is not None:
                return None
            data = next((jpeg for quality in (85, 60, 30) if len(jpeg := _jpeg(plain, quality)) <= _MOST_BYTES), None)
            if data is None:
                return None
            small = plain.copy()
            small.thumbnail((_THUMBNAIL_EDGE, _THUMBNAIL_EDGE))
            return Encoded(width=plain.width, height=plain.height, data=data, thumbnail=_jpeg(small, 75))
    except _BROKEN:
        return None


def _scaled(image: Image.Image, edge: int, pixels: int) -> Image.Image:
    scale = min(1.0, edge / max(image.size), (pixels / (image.width * image.height)) ** 0.5)
    if scale >= 1.0:
        return image
    # Palettes and single bits cannot be mixed; 16 bits of grey are brought down to 8.
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    elif image.mode == "1":
        image = image.convert("L")
    elif image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    return image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))), Image.Resampling.LANCZOS)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        ground.alpha_composite(layer)
        image = ground
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    wide = image.convert("F")
    low, high = wide.getextrema()
    if not isinstance(low, float) or not isinstance(high, float) or high <= low:
        return wide.convert("L")
    factor = 255.0 / (high - low)
    return wide.point(lambda value: value * factor - low * factor).convert("L")


def _jpeg(image: Image.Image, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, optimize=True)
    return out.getvalue()
