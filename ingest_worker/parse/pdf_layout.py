"""What the pages of a PDF share and what they divide: running lines, page numbers, words over two lines, paragraphs.

Pure functions over the text of pages, in the order of the document.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ingest_worker.parse.pdf_page import HYPHEN

_EDGE: Final = 3
"""Lines at the top and at the bottom of a page that may be running ones."""
_FEWEST: Final = 3
"""Pages with the same distance between printed number and index: fewer are chance."""
_COMES_BACK: Final = 5
"""Pages on which a line has to stand to be a running one; in a short document half of its pages, three at least."""
_DENSITY: Final = 0.6
"""Share of the pages from the first to the last of these (of the left ones, or the right ones) on which it has to stand."""
_LONGEST: Final = 150
_NUMBER: Final = re.compile(r"\d{1,5}")
_ROMAN: Final = re.compile(r"^[ivxlcdm]{1,8}$", re.IGNORECASE)
_ONLY_NUMBER: Final = re.compile(
    r"^(?:page|p\.|pp\.|seite|página|pagina|strona|стр\.?|страница|sida|side|第|-|–|—|\||\[|\()?\s*(?P<number>\d{1,5}|[ivxlcdm]{1,8})"
    r"\s*(?:(?:of|/|von|de|sur|di|из|\|)\s*\d{1,5})?\s*(?:页|頁|ページ|쪽|-|–|—|\||\]|\))?$",
    re.IGNORECASE,
)
# A number that counts these is no page number, though there may be one of them on each page.
_COUNTED: Final = re.compile(
    r"^(?:question|q|chapter|section|figure|fig|table|step|part|lesson|exercise|problem|appendix|annex|article|item|day|week|unit"
    r"|module|exhibit|form|slide|case|example|task|frage|kapitel|abschnitt|abbildung|tabelle|schritt|teil|übung|aufgabe|anhang|anlage"
    r"|artikel|tag|woche|chapitre|tableau|étape|leçon|exercice|annexe|capítulo|sección|figura|tabla|paso|ejercicio|anexo)\W*$",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"[.!?:;。！？][\"'”’)\]]*$")
_BULLET: Final = re.compile(r"^\s*(?:[•▪◦‣·–—*-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+")
_SHORT_LINE: Final = 0.8
"""A line below this share of the page's usual line length ends its paragraph when it ends a sentence."""
_DIVIDED: Final = re.compile(rf"(\w*){HYPHEN}\n(\w+)")


@dataclass(slots=True)
class _Seen:
    """One line as it comes back: on which pages, and at which numbers."""

    pages: list[int] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)


def without_running_lines(pages: Sequence[list[str]]) -> list[list[str]]:
    """The lines of each page without headers and footers that come back, and without page numbers.

    A line that comes back word for word stays where it stands first, so that no text is lost; one that differs by its page number
    does too. Bare page numbers go everywhere. Fewer than three pages have nothing that runs.
    """
    if sum(1 for lines in pages if any(line.strip() for line in lines)) < _FEWEST:
        return [list(lines) for lines in pages]
    removed: set[tuple[int, int]] = set()
    for edge in (_top, _bottom):
        places = [(page, at) for page, lines in enumerate(pages) for at in edge(lines)]
        removed |= _repeated(pages, places)
        removed |= _numbered(pages, places)
    return [[line for at, line in enumerate(lines) if (page, at) not in removed] for page, lines in enumerate(pages)]


def join_divided_words(texts: Sequence[str]) -> list[str]:
    """The texts with words whole that a line end divided, and without the marks of it.

    A hyphen stays before a capital letter or a number, and where the document has the word with its hyphen elsewhere, or both
    parts as words of their own.
    """
    if not any(HYPHEN in text for text in texts):
        return list(texts)
    words = {word.strip(".,;:!?()[]\"'“”").casefold() for word in set().union(*map(str.split, texts))}

    def whole(match: re.Match[str]) -> str:
        before, after = match[1], match[2]
        joined, kept = f"{before}{after}", f"{before}-{after}"
        if not before or not before[-1].isalpha() or not after[0].islower():
            return kept
        if joined.casefold() in words:
            return joined
        return kept if kept.casefold() in words or {before.casefold(), after.casefold()} <= words else joined

    return [_DIVIDED.sub(whole, text).replace(f"{HYPHEN}\n", "-\n") if HYPHEN in text else text for text in texts]


def split_paragraphs(lines: Sequence[str]) -> list[str]:
    """Lines in paragraphs: at blank lines, bullets, and after a short line that ends a sentence."""
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


def _top(lines: Sequence[str]) -> list[int]:
    return list(islice((at for at, line in enumerate(lines) if line.strip()), _EDGE))


def _bottom(lines: Sequence[str]) -> list[int]:
    top = _top(lines)
    return list(islice((at for at in range(len(lines) - 1, top[-1] if top else -1, -1) if lines[at].strip()), _EDGE))


def _key(line: str) -> str:
    return " ".join(line.split()).casefold()


def _repeated(pages: Sequence[Sequence[str]], places: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Places of lines that come back word for word, but for the first of each."""
    return _after_the_first(pages, places, lambda _page, line: _key(line))


def _numbered(pages: Sequence[Sequence[str]], places: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Places of page numbers: alone on a line, or beside a text that comes back with them."""
    bare: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for page, at in places:
        match = _ONLY_NUMBER.match(" ".join(pages[page][at].split()))
        number = _value(match["number"]) if match else None
        if number is not None:
            bare[number - page].append((page, at))
    removed = {place for run in bare.values() if len({page for page, _ in run}) >= _FEWEST for place in run}
    steps: Counter[int] = Counter()
    for page, at in places:
        steps.update({int(number) - page for number in _NUMBER.findall(pages[page][at])})

    def key(page: int, line: str) -> str | None:
        text = _key(line)
        for match in _NUMBER.finditer(text):
            rest = f"{text[: match.start()]}#{text[match.end() :]}"
            at_an_end = not text[: match.start()].strip(" |-–—") or not text[match.end() :].strip(" |-–—")
            if at_an_end and steps[int(match[0]) - page] >= _FEWEST and not _COUNTED.match(rest.replace("#", "").strip()):
                return f"{int(match[0]) - page} {rest}"
        return None

    return removed | _after_the_first(pages, places, key)


def _after_the_first(
    pages: Sequence[Sequence[str]], places: Sequence[tuple[int, int]], key: Callable[[int, str], str | None]
) -> set[tuple[int, int]]:
    seen: dict[str, _Seen] = defaultdict(_Seen)
    for page, at in places:
        line = pages[page][at]
        if len(line) > _LONGEST:
            continue
        name = key(page, line)
        if name:
            seen[name].places.append((page, at))
            if not seen[name].pages or seen[name].pages[-1] != page:
                seen[name].pages.append(page)
    removed: set[tuple[int, int]] = set()
    fewest = min(_COMES_BACK, max(_FEWEST, len(pages) // 2))
    for one in seen.values():
        # Left and right pages have headers of their own.
        step = 2 if all((page - one.pages[0]) % 2 == 0 for page in one.pages) else 1
        reach = (one.pages[-1] - one.pages[0]) // step + 1
        if len(one.pages) >= fewest and len(one.pages) >= reach * _DENSITY:
            removed.update(sorted(one.places)[1:])
    return removed


def _value(number: str) -> int | None:
    if number.isdigit():
        return int(number)
    if not _ROMAN.match(number):
        return None
    values = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
    digits = [values[letter] for letter in number.lower()]
    return sum(-one if one < following else one for one, following in zip(digits, [*digits[1:], 0], strict=True))
