"""The pictures of a PDF: image objects as the page shows them, and whole pages that hold next to no text.

Drawings made of lines are no image objects: on a page with text they are not seen, on a page without they are part of the page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ingest_worker.parse.pdf_page import PageText
from ingest_worker.parse.picture_encoding import LONGEST_EDGE, is_worth_it
from ingest_worker.parse.pictures import Pictures
from shared.documents import Span

if TYPE_CHECKING:
    from PIL.Image import Image

_LITTLE_TEXT: Final = 40
"""Visible characters: a page with a picture and no more is shown whole."""
_LITTLE_BY_OCR: Final = 400
"""The same for text that OCR read: so much are the labels of a chart, and more is a page of text that was scanned."""
_WHOLE_PAGE: Final = 0.85
"""The share of a page from which on a picture is the page itself, scanned, or its background."""
_SMALLEST_DRAWN: Final = 36.0
"""Points (half an inch): a picture that is drawn smaller is an icon."""
_MOST_ON_A_PAGE: Final = 50
_FINEST: Final = 300 / 72
"""Pixels a point."""


def page_pictures(
    document: pdfium.PdfDocument, pages: Sequence[PageText], labels: Sequence[str | None], pictures: Pictures
) -> None:
    """Cut out the pictures of all pages, until there are enough. What cannot be drawn is passed by."""
    for index, text in enumerate(pages):
        if not pictures.wants_more:
            return
        if text.blank or text.failed:
            continue
        span = Span(page_start=index + 1, page_end=index + 1, page_label=labels[index])
        with pictures.at_own_risk():
            page = document[index]
            try:
                _one_page(page, "".join(text.text.split()), span, pictures, by_ocr=text.by_ocr)
            finally:
                page.close()


def _one_page(page: pdfium.PdfPage, visible: str, span: Span, pictures: Pictures, *, by_ocr: bool) -> None:
    images = []
    for one in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        images.append(one)
        if len(images) >= _MOST_ON_A_PAGE:
            break
    if not visible or by_ocr or (images and len(visible) < _LITTLE_TEXT):
        if by_ocr and len(visible) >= _LITTLE_BY_OCR:
            return
        _whole_page(page, images, "" if by_ocr else visible, span, pictures)
        return
    for one in images:
        if not pictures.wants_more:
            return
        if is_worth_it(*one.get_px_size()):
            _image(page, one, span, pictures)


def _whole_page(page: pdfium.PdfPage, images: Sequence[pdfium.PdfImage], visible: str, span: Span, pictures: Pictures) -> None:
    """A page that is scanned in one piece has the key of its scan, so that another file with the same scan costs nothing."""
    width, height = page.get_size()
    if images:
        digests = [_digest(one) for one in images]
        key = digests[0] if len(images) == 1 and not visible else hashlib.sha256(visible.encode() + b"".join(digests)).digest()
        if pictures.knows(key):
            return
        pictures.add(_drawn(page, (0, 0, 0, 0), max(width, height)), key, span)
        return
    drawn = _drawn(page, (0, 0, 0, 0), max(width, height))
    pictures.add(drawn, hashlib.sha256(drawn.tobytes()).digest(), span)


def _image(page: pdfium.PdfPage, image: pdfium.PdfImage, span: Span, pictures: Pictures) -> None:
    left, bottom, right, top = image.get_bounds()
    width, height = page.get_size()
    is_placed = image.level == 0 and page.get_rotation() == 0
    if is_placed:
        wide, high = right - left, top - bottom
        if min(wide, high) < _SMALLEST_DRAWN or wide * high > _WHOLE_PAGE * width * height:
            return
    key = _digest(image)
    if pictures.knows(key):
        return
    if is_placed:
        page_left, page_bottom, page_right, page_top = page.get_cropbox()
        crop = (
            max(0.0, left - page_left),
            max(0.0, bottom - page_bottom),
            max(0.0, page_right - right),
            max(0.0, page_top - top),
        )
        if crop[0] + crop[2] < width and crop[1] + crop[3] < height:
            # As the page shows it: upright, in its colours, with the words that are set into it.
            pictures.add(_drawn(page, crop, max(wide, high)), key, span)
        return
    bitmap = image.get_bitmap()
    try:
        pictures.add(bitmap.to_pil(), key, span)
    finally:
        bitmap.close()


def _drawn(page: pdfium.PdfPage, crop: tuple[float, float, float, float], longest: float) -> Image:
    bitmap = page.render(scale=min(_FINEST, LONGEST_EDGE / max(longest, 1.0)), crop=crop)
    try:
        image: Image = bitmap.to_pil().copy()
        return image
    finally:
        bitmap.close()


def _digest(image: pdfium.PdfImage) -> bytes:
    """Of the image as it is stored."""
    return hashlib.sha256(bytes(image.get_data())).digest()
