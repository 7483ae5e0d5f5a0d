"""PDF to elements with pypdfium2: the text layer, one page at a time, with the PDF's own 1-based page index.

pdfium is not thread-safe: one process each (the cage sees to that).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ingest_worker.parse.errors import Unreadable
from shared.documents import Element, ElementKind, ParsedDocument, Span
from shared.text import clean_text

# pdfium marks a hyphen at a line's end with U+FFFE, newer versions with U+0002.
_HYPHEN_AT_LINE_END: Final = re.compile("(?<=\\w)[\x02\ufffe\u00ad]\r?\n?(?=\\w)|\ufffe")
_GLYPH_NAME: Final = re.compile(r"\(cid:\d+\)|/g\d{2,}")
_SPACE: Final = re.compile(r"\s")
_STRANGE: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
_UNMAPPED: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f]")
_GARBAGE: Final = 0.3
"""Share of a page's visible characters that may be glyph numbers, private or control characters; above it is no text."""
_SENTENCE_END: Final = re.compile(r"[.!?:;。！？][\"'”’)\]]*$")
_BULLET: Final = re.compile(r"^\s*(?:[•▪◦‣·–—*-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+")
_POINTLESS_TITLE: Final = re.compile(
    r"^(untitled.*|document\d*|microsoft (word|powerpoint) - .*|slide \d+|powerpoint presentation"
    r"|.*\.(docx?|pptx?|xlsx?|pdf|indd|tex|dvi|qxd|jpe?g|png|tiff?))$",
    re.IGNORECASE,
)
_SHORT_LINE: Final = 0.8
"""A line below this share of the page's usual line length ends its paragraph when it ends a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfLimits:
    """What is read of one file at most."""

    pages: int = 20_000
    characters: int = 60_000_000


def parse_pdf(data: bytes, media_type: str, limits: PdfLimits, on_page: Callable[[int], None]) -> ParsedDocument:
    """The text layer of each page. A page whose text is garbage (no Unicode map) counts as a page without text.

    Raises:
        Unreadable: `encrypted`, `damaged` with pdfium's own reason, or `too_large`.
    """
    document = _open(data)
    try:
        page_count = len(document)
        if page_count > limits.pages:
            raise Unreadable(f"The PDF has {page_count} pages; at most {limits.pages} are read. Split it.", code="too_large")
        elements: list[Element] = []
        failed: list[int] = []
        with_text = characters = 0
        for index in range(page_count):
            on_page(index + 1)
            text = _page_text(document, index)
            if text is None:
                failed.append(index + 1)
                continue
            characters += len(text)
            if characters > limits.characters:
                raise Unreadable(
                    f"The PDF holds more than {limits.characters} characters (reached on page {index + 1}). Split it.",
                    code="too_large",
                )
            if not text.strip():
                continue
            with_text += 1
            span = Span(page_start=index + 1, page_end=index + 1)
            elements.extend(Element(kind=ElementKind.TEXT, text=paragraph, span=span) for paragraph in split_paragraphs(text))
        title = _title(document)
    finally:
        document.close()
    warnings = (f"Pages that could not be read: {', '.join(map(str, failed[:50]))}.",) if failed else ()
    return ParsedDocument(
        elements=tuple(elements),
        media_type=media_type,
        title=title,
        page_count=page_count,
        pages_with_text=with_text,
        warnings=warnings,
    )


def is_garbage(text: str) -> bool:
    """Whether a page's characters are mostly glyph numbers, private-use or control characters instead of text."""
    visible = len(text) - len(_SPACE.findall(text))
    names = sum(len(match) for match in _GLYPH_NAME.findall(text))
    return names + len(_STRANGE.findall(text)) >= max(1, visible * _GARBAGE)


def split_paragraphs(page: str) -> list[str]:
    """A page's text in paragraphs: at blank lines, bullets, and after a short line that ends a sentence."""
    lines = page.split("\n")
    widths = sorted(len(line) for line in lines if line.strip())
    usual = widths[int(len(widths) * 0.75)] if widths else 0
    paragraphs: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            paragraphs.append([])
            continue
        if _BULLET.match(line):
            paragraphs.append([])
        paragraphs[-1].append(line.rstrip())
        if len(line) < usual * _SHORT_LINE and _SENTENCE_END.search(line.rstrip()):
            paragraphs.append([])
    return ["\n".join(paragraph) for paragraph in paragraphs if paragraph]


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
            raise Unreadable(
                "The PDF is encrypted and does not open without a password. Store a copy without one.", code="encrypted"
            ) from error
        raise Unreadable(f"The PDF is damaged: {error} Save it anew with another program.", code="damaged") from error


def _page_text(document: pdfium.PdfDocument, index: int) -> str | None:
    """A page's clean text, empty when it has none or only garbage, or None when pdfium cannot read the page."""
    try:
        page = document[index]
        try:
            layer = page.get_textpage()
            try:
                raw = layer.get_text_bounded() if layer.count_chars() else ""
            finally:
                layer.close()
        finally:
            page.close()
    except pdfium.PdfiumError:
        return None
    raw = _HYPHEN_AT_LINE_END.sub("", raw)
    # Characters of a font without a Unicode map: keep their number visible until the garbage test has seen them.
    raw = _UNMAPPED.sub("\ufffd", raw)
    text = clean_text(raw).replace("\f", "\n")
    return "" if is_garbage(text) else text.replace("\ufffd", "")


def _title(document: pdfium.PdfDocument) -> str | None:
    title = " ".join(clean_text(document.get_metadata_value("Title")).split())
    return title[:300] if len(title) > 2 and not _POINTLESS_TITLE.match(title) else None
