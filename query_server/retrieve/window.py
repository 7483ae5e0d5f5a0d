"""A passage that is longer than its budget, cut to the part round what was asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from query_server.retrieve.budget import MARK
from query_server.retrieve.collapse import Found
from shared.documents import Span
from shared.lexical import term_places
from shared.query_terms import query_terms

FRONT_MARK = "[…] "
LEAD = 0.2
"""The share of a window that stands before the first of the words it was made for, so that their sentence begins."""

_MARGIN = 0.9
"""Tokens are not spread evenly over a text: a window takes this share of the characters that would be its own."""

_SPACES = re.compile(r"\s+")


def cut_round(found: Found, keep: int, query: str) -> Found:
    """The part of a passage that holds most of the query's words, in about `keep` tokens, with marks where text is left out.

    Its lines are those of the part where the text has the lines of the file; else, as pages, those of the whole, which hold it.
    What spoke for the passage may stand outside, so it is certain no longer.
    """
    best = replace(found.best, hit=replace(found.best.hit, certain=False))
    text = found.text
    room = max(0, int(len(text) * keep / max(found.tokens, 1) * _MARGIN) - len(FRONT_MARK) - len(MARK))
    if len(text) <= room:
        return replace(found, best=best)
    start, end = choose_window(text, room, query) if room else (0, 0)
    shown = (FRONT_MARK if start else "") + text[start:end].rstrip() + (MARK if end < len(text) else "")
    return replace(found, best=best, text=shown, span=part_of(found.span, text, start, end))


def choose_window(text: str, room: int, query: str) -> tuple[int, int]:
    """Where a part of at most `room` characters begins and ends: the one with most of the query's words, the first of several."""
    held = term_places(text, set(query_terms(query).numbers))
    start = 0
    if held:
        start = max(0, _densest(held, int(room * (1 - LEAD))) - int(room * LEAD))
    start = min(start, len(text) - room)
    end = start + room
    # At white space on both sides, where there is some near enough.
    if start:
        space = _SPACES.search(text, start, start + room // 4)
        start = space.end() if space is not None else start
    if end < len(text):
        spaces = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = spaces if spaces > start + room // 2 else end
    return start, end


def _densest(held: Sequence[tuple[int, int]], reach: int) -> int:
    """The place from which on `reach` characters hold most different words, then most of them."""
    best, best_start = (0, 0), held[0][0]
    for first, (start, _) in enumerate(held):
        inside = [word for place, word in held[first:] if place < start + reach]
        score = (len(set(inside)), len(inside))
        if score > best:
            best, best_start = score, start
    return best_start


def part_of(span: Span, text: str, start: int, end: int) -> Span:
    """Where `text[start:end]` stands, of a text that stands at `span`: its own lines where the text has the lines of the file,
    else the whole, which holds it."""
    if span.line_start is None or span.line_end is None or span.line_end - span.line_start != text.count("\n"):
        return span
    first = span.line_start + text.count("\n", 0, start)
    return replace(span, line_start=first, line_end=first + text[start:end].rstrip().count("\n"))
