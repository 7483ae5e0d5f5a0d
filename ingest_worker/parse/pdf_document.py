"""A PDF opened with pdfium: passwords, fonts, page labels, title.

pdfium is not thread-safe: one process each (the cage sees to that).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ingest_worker.parse.errors import Unreadable
from shared.text import clean_text

_POINTLESS_TITLE: Final = re.compile(
    r"^(untitled.*|document\d*|microsoft (word|powerpoint) - .*|slide \d+|powerpoint presentation"
    r"|.*\.(docx?|pptx?|xlsx?|pdf|indd|tex|dvi|qxd|jpe?g|png|tiff?))$",
    re.IGNORECASE,
)
_TITLE_CHARS: Final = 300
_LABEL_CHARS: Final = 40
_MOST_DOTS: Final = 40_000_000


def open_pdf(data: bytes, passwords: Sequence[str]) -> tuple[pdfium.PdfDocument, str]:
    """Open a PDF, with the first of `passwords` that fits when it asks for one; also returns that one, or nothing.

    Raises:
        Unreadable: `encrypted`, `unsupported_filter`, or `damaged` with pdfium's own reason.
    """
    _use_no_system_fonts()
    encrypted = False
    for password in (None, *dict.fromkeys(form for word in passwords for form in _forms(word))):
        _forget_last_error()
        try:
            return pdfium.PdfDocument(data, password=password), password or ""
        except pdfium.PdfiumError as error:
            if getattr(error, "err_code", None) not in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
                raise _damaged(data, error) from error
            encrypted = True
    if encrypted and passwords:
        message = "The PDF is encrypted, and none of DOCWELL_DOCUMENT_PASSWORDS opens it. Add the right one."
    else:
        message = (
            "The PDF is encrypted and does not open without a password. "
            "Add it to DOCWELL_DOCUMENT_PASSWORDS, or store a copy without one."
        )
    raise Unreadable(message, code="encrypted")


def page_labels(document: pdfium.PdfDocument, pages: int) -> list[str | None]:
    """What is printed on each page, as the file itself says; None where it says nothing."""
    if not pages or not document.get_page_label(0):
        return [None] * pages
    return [clean_text(document.get_page_label(index)).strip()[:_LABEL_CHARS] or None for index in range(pages)]


def document_title(document: pdfium.PdfDocument) -> str | None:
    """The title in the file's own description, unless it is one that programs fill in."""
    title = " ".join(clean_text(document.get_metadata_value("Title")).split())
    return title[:_TITLE_CHARS] if len(title) > 2 and not _POINTLESS_TITLE.match(title) else None


def picture_of(document: pdfium.PdfDocument, index: int, dpi: int) -> bytes:
    """A page as a grey picture (PGM, as netpbm defines it), smaller where it would have more than 40 million dots."""
    page = document[index]
    try:
        width, height = page.get_size()
        scale = min(dpi / 72, (_MOST_DOTS / max(1.0, width * height)) ** 0.5)
        bitmap = page.render(scale=scale, grayscale=True)
        try:
            rows = memoryview(bitmap.buffer).cast("B")
            lines = (bytes(rows[row * bitmap.stride : row * bitmap.stride + bitmap.width]) for row in range(bitmap.height))
            return b"P5 %d %d 255\n" % (bitmap.width, bitmap.height) + b"".join(lines)
        finally:
            bitmap.close()
    finally:
        page.close()


def _forms(password: str) -> tuple[str, str]:
    # Newer files hold the SASLprep form of a password (RFC 4013), older ones what was typed.
    return password, unicodedata.normalize("NFKC", password)


def _damaged(data: bytes, error: pdfium.PdfiumError) -> Unreadable:
    if b"/BrotliDecode" in data:
        return Unreadable(
            "The PDF is compressed with Brotli, which pdfium does not read. Save it anew with another program.",
            code="unsupported_filter",
        )
    return Unreadable(f"The PDF is damaged: {error} Save it anew with another program.", code="damaged")


def _forget_last_error() -> None:
    # pdfium tells the reason of the last failure, whichever file that was, when it has none of its own.
    pdfium_c.FPDF_LoadMemDocument64(b"", 0, None)


class _NoFonts(pdfium.PdfSysfontBase):  # type: ignore[misc]
    """Answers that no font is installed."""

    def EnumFonts(self, _this: Any, _mapper: Any) -> None:  # noqa: N802 - pdfium's name
        """Nothing to list."""

    def MapFont(self, _this: Any, *_wanted: Any) -> None:  # noqa: N802
        """Nothing that would do."""

    def GetFont(self, _this: Any, _face: Any) -> None:  # noqa: N802
        """Nothing of that name."""


@lru_cache(maxsize=1)
def _use_no_system_fonts() -> object:
    """Keep pdfium from the fonts of this machine: the same file has to give the same text everywhere.

    They decide how wide glyphs are that a file does not embed, and so which text pdfium finds: one page of vertical Japanese
    has 28 characters without a Japanese font, 7,384 with one.
    """
    fonts = _NoFonts()
    fonts.setup()
    return fonts
