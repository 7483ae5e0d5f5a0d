"""The text of one page of a PDF, as pdfium finds it, and what has to be mended in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from ingest_worker.parse.pdf_extras import page_notes
from shared.text import clean_text

HYPHEN: Final = "\u2010"
"""Stands, with the line end after it, where a word was divided or a hyphen ended a line."""

# pdfium marks a hyphen at a line's end with U+FFFE, newer versions with U+0002.
_HYPHEN_AT_LINE_END: Final = re.compile("(?<=\\w)[\x02\ufffe\u00ad](?:\r?\n)?(?=\\w)")
_TYPED_HYPHEN: Final = re.compile(r"(?<=\w)-\n(?=\w)")
_GLYPH_NAME: Final = re.compile(r"\(cid:\d+\)|/[gG]\d{2,}")
_SPACE: Final = re.compile(r"\s")
_STRANGE: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
_UNMAPPED: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f]")
_GARBAGE: Final = 0.3
"""Share of a page's visible characters that may be glyph numbers, private or control characters; above it is no text."""
_RTL: Final = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_HAS_RTL: Final = re.compile(f"[{_RTL}]")
_RTL_WORD: Final = re.compile(f"[{_RTL}]{{2,}}")
_RTL_STRETCH: Final = re.compile(f"[{_RTL}](?:[{_RTL} ]*[{_RTL}])?")
_LAM_ALEF: Final = re.compile("[\u0622\u0623\u0625\u0627]\u0644")
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LITTLE: Final = 800
"""Visible characters; a page that has more cannot lack much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageText:
    """What pdfium found on a page. `failed`: it could not read the page. `doubtful`: there are signs that it read it badly.

    `blank`: nothing at all is drawn on the page, so that it has nothing to read. `by_ocr`: its text was read from its
    picture. `notes` are what is written on it beside its text.
    """

    text: str = ""
    failed: bool = False
    doubtful: bool = False
    blank: bool = False
    by_ocr: bool = False
    notes: tuple[str, ...] = ()


def read_page(document: pdfium.PdfDocument, index: int) -> PageText:
    """The clean text of a page; empty when it has none, or only garbage (a font without a Unicode map)."""
    try:
        page = document[index]
        try:
            layer = page.get_textpage()
            try:
                raw = _raw_text(layer)
            finally:
                layer.close()
            text = clean_page(raw)
            notes = page_notes(page)
            if len(raw) > _LITTLE:
                return PageText(text=text, notes=notes)
            if not raw.strip() and next(page.get_objects(max_depth=1), None) is None:
                return PageText(blank=not notes, notes=notes)
            doubtful = is_spaced_out(text) or ((not raw.strip() or bool(_CJK.search(text))) and _has_flat_text(page))
            return PageText(text=text, doubtful=doubtful, notes=notes)
        finally:
            page.close()
    except pdfium.PdfiumError:
        return PageText(failed=True)


def clean_page(raw: str) -> str:
    """A page's text without what only typesetting needs; `HYPHEN` and a line end where a hyphen stood. Empty if it is garbage."""
    if "\x02" in raw or "\ufffe" in raw or "\u00ad" in raw:
        raw = _HYPHEN_AT_LINE_END.sub(f"{HYPHEN}\n", raw)
    # Characters of a font without a Unicode map: keep their number visible until the garbage test has seen them.
    raw = _UNMAPPED.sub("\ufffd", raw)
    text = clean_text(raw).replace("\f", "\n")
    if is_garbage(text):
        return ""
    text = text.replace("\ufffd", "")
    return _TYPED_HYPHEN.sub(f"{HYPHEN}\n", text) if "-\n" in text else text


def is_garbage(text: str) -> bool:
    """Whether a page's characters are mostly glyph numbers, private-use or control characters instead of text."""
    strange = len(_STRANGE.findall(text))
    if "(cid:" in text or "/g" in text or "/G" in text:
        strange += sum(len(match) for match in _GLYPH_NAME.findall(text))
    if not strange:
        return not text or text.isspace()
    return strange >= max(1, (len(text) - len(_SPACE.findall(text))) * _GARBAGE)


def is_spaced_out(text: str) -> bool:
    """Whether words are torn into letters (`H e re i s so me te xt`), which happens where a font lacks widths."""
    words = text.split()
    short = sum(1 for word in words if len(word) <= 2 and word.isalpha())
    return len(words) >= 5 and short > len(words) * 0.6 and text.isascii()


def _raw_text(layer: pdfium.PdfTextPage) -> str:
    if not layer.count_chars():
        return ""
    text: str = layer.get_text_bounded()
    return _right_to_left(layer) if _HAS_RTL.search(text) else text


def _right_to_left(layer: pdfium.PdfTextPage) -> str:
    """The text of a page with Hebrew or Arabic on it, in the order in which it is read.

    pdfium turns right-to-left lines around, character by character. So the two letters of a lam-alef ligature come out in the
    wrong order, which is seen by their one box; and what a file holds in reading order already is turned the wrong way, which is
    seen by words whose first letter stands left of their last.
    """
    text: str = layer.get_text_range()
    if len(text) != layer.count_chars():
        return text
    characters = list(text)
    for match in _LAM_ALEF.finditer(text):
        at = match.start()
        if layer.get_charbox(at) == layer.get_charbox(at + 1):
            characters[at], characters[at + 1] = characters[at + 1], characters[at]
    mended = "".join(characters)
    wrong = right = 0
    for match in _RTL_WORD.finditer(text):
        first, last = layer.get_charbox(match.start()), layer.get_charbox(match.end() - 1)
        across, down = last[0] - first[0], last[1] - first[1]
        if abs(across) > abs(down):
            wrong, right = wrong + (across > 0), right + (across < 0)
    return _RTL_STRETCH.sub(lambda stretch: stretch[0][::-1], mended) if wrong > right else mended


def _has_flat_text(page: pdfium.PdfPage) -> bool:
    """Whether much of the page's text has no width: vertical writing in a font that is not embedded, which pdfium skips."""
    flat = texts = 0
    for one in page.get_objects(filter=[pdfium_c.FPDF_PAGEOBJ_TEXT], max_depth=3):
        left, _, right, _ = one.get_bounds()
        texts += 1
        flat += right - left < 0.01
        if texts >= 400:
            break
    return flat > 3 and flat > texts * 0.5
