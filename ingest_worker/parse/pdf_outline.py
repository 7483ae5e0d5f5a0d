"""The outline of a PDF (its bookmarks) as headings in its text: only where a bookmark's words stand on the page it leads to."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pypdfium2 as pdfium

from shared.text import clean_text

_DEEPEST: Final = 6
_MOST: Final = 20_000
_LINES: Final = 4
"""Lines that one heading may fill."""
_NUMBERING: Final = re.compile(
    r"^(?:(?:chapter|part|section|appendix|annex|kapitel|teil|abschnitt|anhang|chapitre|partie)\b)?[\s.:]*"
    r"(?:\d{1,3}(?:\.\d{1,3})*|[ivxlcdm]{1,7}|[a-z])?[\s.):–—-]+",
    re.IGNORECASE,
)
_LETTERS: Final = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """An entry of the outline: its title, its level from 1, and the 0-based page it leads to."""

    title: str
    level: int
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A bookmark and its lines on its page, `start` to `end` (exclusive); no lines when its words do not stand there.

    What comes after such a bookmark is in a section whose beginning is not known.
    """

    title: str
    level: int
    start: int = 0
    end: int = 0


def read_outline(document: pdfium.PdfDocument) -> list[Bookmark]:
    """The bookmarks in their order; those without a title or a page are left out."""
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    bookmarks: list[Bookmark] = []
    for entry in document.get_toc(max_depth=_DEEPEST):
        try:
            title = " ".join(clean_text(entry.get_title()).split())
            target = entry.get_dest()
            page = None if target is None else target.get_index()
        except pdfium.PdfiumError:
            continue
        if title and page is not None:
            bookmarks.append(Bookmark(title=title, level=entry.level + 1, page=page))
        if len(bookmarks) >= _MOST:
            break
    return bookmarks


def find_headings(bookmarks: Sequence[Bookmark], pages: Sequence[Sequence[str]]) -> dict[int, list[Heading]]:
    """The headings of each page that has any, in the order of their lines; those without lines come first."""
    found: dict[int, list[Heading]] = {}
    after: dict[int, int] = {}
    plain: dict[int, list[tuple[str, str]]] = {}
    for mark in bookmarks:
        if not 0 <= mark.page < len(pages):
            continue
        if mark.page not in plain:
            plain[mark.page] = [_forms(line) for line in pages[mark.page]]
        place = _find(mark.title, plain[mark.page], after.get(mark.page, 0))
        headings = found.setdefault(mark.page, [])
        if place is None:
            headings.append(Heading(title=mark.title, level=mark.level))
        else:
            headings.append(Heading(title=mark.title, level=mark.level, start=place[0], end=place[1]))
            after[mark.page] = place[1]
    return {page: sorted(headings, key=lambda heading: heading.start) for page, headings in found.items()}


def _forms(line: str) -> tuple[str, str]:
    whole = _plain(line)
    numbering = _NUMBERING.match(line.lstrip())
    return whole, _plain(line.lstrip()[numbering.end() :]) if numbering else whole


def _find(title: str, lines: Sequence[tuple[str, str]], start: int) -> tuple[int, int] | None:
    """Lines whose letters are those of the title, with or without the number before either; `lines` are given in both forms."""
    wanted = {_plain(title), _plain(_NUMBERING.sub("", title))} - {""}
    for first in range(start, len(lines)):
        for text in lines[first]:
            for form in wanted:
                if not text or not form.startswith(text):
                    continue
                end, so_far = first + 1, text
                while so_far != form and end < min(first + _LINES, len(lines)):
                    following = lines[end][0]
                    if not following or not form.startswith(so_far + following):
                        break
                    so_far += following
                    end += 1
                if so_far == form:
                    return first, end
    return None


def _plain(text: str) -> str:
    return "".join(_LETTERS.findall(text)).casefold()
