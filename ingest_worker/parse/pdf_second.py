"""A second opinion on pages that pdfium reads badly: pdfminer.six, slower, with the character maps of CJK fonts and columns that
are written downwards."""

from __future__ import annotations

import io
import logging
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from ingest_worker.parse.pdf_page import clean_page, is_spaced_out

_SPACE: Final = re.compile(r"\s")
_MOST_SCRIPTS: Final = 3


def second_opinion(data: bytes, password: str, pages: Sequence[int]) -> dict[int, str]:
    """The text of pages by their 0-based index, as pdfminer.six reads them; empty when it cannot read the file."""
    from pdfminer.high_level import extract_text
    from pdfminer.layout import LAParams

    logging.getLogger("pdfminer").setLevel(logging.ERROR)
    wanted = sorted(pages)
    try:
        text = extract_text(io.BytesIO(data), password=password, page_numbers=wanted, laparams=LAParams(detect_vertical=True))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - it raises whatever a broken file makes it raise; the first opinion stands then
        return {}
    return {index: clean_page(page.strip("\n")) for index, page in zip(wanted, text.split("\f"), strict=False)}


def is_better(second: str, first: str) -> bool:
    """Whether the second text of a page is to be believed: much more of it, or the same with its words whole; and no mixture of
    scripts, which is what a wrong character map makes."""
    one, two = len(_SPACE.sub("", first)), len(_SPACE.sub("", second))
    if not is_plausible(second):
        return False
    if is_spaced_out(first) and not is_spaced_out(second):
        return two >= one * 0.9
    return two >= one * 1.3 + 20


def is_plausible(text: str) -> bool:
    """Whether a text has letters of few scripts and none that do not exist."""
    scripts: set[str] = set()
    for character in dict.fromkeys(text):
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cc") and character not in "\n\t":
            return False
        if category.startswith("L"):
            scripts.add(unicodedata.name(character, "").split(" ", 1)[0])
    return (
        len(scripts - {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "FULLWIDTH", "HALFWIDTH", "MODIFIER", "IDEOGRAPHIC"})
        <= _MOST_SCRIPTS
    )
