"""Brackets that a model writes itself: only what names a passage that was shown may look like a citation."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.ask.shown import Shown

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_BRACKETS = re.compile(r"(?P<space>[ \t]*)(?:\[(?P<square>[^\[\]\n]{1,300})\]|【(?P<other>[^【】\n]{1,300})】)")
_NUMBERS = re.compile(r"\^?\d{1,3}(?:\s*[,;–-]\s*\^?\d{1,3})*")
_PLACE = re.compile(
    r"\b(?:pages?|pp?\.|lines?|slides?|sheets?|rows?|attachments?|sections?|sources?)\s*:?\s*[\w\"'“]", re.IGNORECASE
)
_FILE = re.compile(r"\w{2,}\.[a-z][a-z0-9]{0,4}\b", re.IGNORECASE)
# `the range [1, 2]`, `x = [3]`: numbers that say something. A list of them does so after more words than one alone.
_MEANT = re.compile(r"(?:\b(?:intervals?|ranges?|vectors?|arrays?|lists?)\s*|[=∈({]\s*)\Z", re.IGNORECASE)
_LIST_MEANT = re.compile(r"\b(?:values?|in|between|from|of|is|are)\s*\Z", re.IGNORECASE)


def read_brackets(text: str, known: Mapping[str, Shown]) -> tuple[str, list[Shown]]:
    """The text without what only looks like a citation, and the passages that its brackets name by `Shown.citation`.

    Those are taken out, to be written where citations stand. Bare numbers are taken out too; what names a file or a place in one
    is marked as not cited. Code, links and all other brackets stay.
    """
    named: list[Shown] = []
    by_form = {_form(citation): shown for citation, shown in known.items()}
    written = []
    start = 0
    for code in _CODE.finditer(text):
        written += [_tidy(text[start : code.start()], by_form, named), code[0]]
        start = code.end()
    written.append(_tidy(text[start:], by_form, named))
    return "".join(written), named


def _tidy(text: str, by_form: Mapping[str, Shown], named: list[Shown]) -> str:
    def one(found: re.Match[str]) -> str:
        inner = found["square"] if found["square"] is not None else found["other"]
        shown = by_form.get(_form(f"[{inner}]"))
        if shown is not None:
            named.append(shown)
            return ""
        if _NUMBERS.fullmatch(inner.strip()):
            return found[0] if found["other"] is None and _is_meant(inner, text[: found.start("square") - 1]) else ""
        if found["other"] is not None or _PLACE.search(inner) or _FILE.search(inner):
            return f"{found['space']}(not cited: {inner})"
        return found[0]

    return _BRACKETS.sub(one, text)


def _is_meant(numbers: str, before: str) -> bool:
    """Whether these numbers are part of what is said, and no mark of a footnote: those count from 1."""
    if re.match(r"\s*0\b", numbers) or _MEANT.search(before):
        return True
    return not numbers.strip("^ ").isdecimal() and _LIST_MEANT.search(before) is not None


def _form(citation: str) -> str:
    """The same for what reads the same."""
    return re.sub(r"\s+", " ", citation.replace("-", "–")).casefold().replace(" ,", ",").strip()
