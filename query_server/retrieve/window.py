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

_MOST_HEAD_LINES = 8
"""Lines of a table in which its header is looked for, with what introduces it."""

_SPACES = re.compile(r"\s+")


def cut_round(found: Found, keep: int, query: str) -> Found:
    """The part of a passage that holds most of the query's words, in about `keep` tokens, with marks where text is left out.

    Its lines and rows are those of the part where these can be counted; else, as pages, those of the whole, which hold it. Of a
    table whole rows are kept below its header. What spoke for the passage may stand outside, so it is certain no longer.
    """
    best = replace(found.best, hit=replace(found.best.hit, certain=False))
    text = found.text
    room = max(0, int(len(text) * keep / max(found.tokens, 1) * _MARGIN) - len(FRONT_MARK) - len(MARK))
    if len(text) <= room:
        return replace(found, best=best)
    is_table = found.best.place.kind == "table"
    head = _length_of_head(text, room) if is_table else 0
    choose = choose_rows if is_table else choose_window
    start, end = choose(text[head:], room - head, query) if room else (0, 0)
    start, end = head + start, head + end
    left_out = FRONT_MARK if start > head else ""
    shown = text[:head] + left_out + text[start:end].rstrip() + (MARK if end < len(text) else "")
    return replace(found, best=best, text=shown, span=part_of(found.span, text, start, end, is_table=is_table))


def _length_of_head(text: str, room: int) -> int:
    """Characters of a table up to its first row: without the names of its columns a row says little. 0 where it has no such head,
    or one that would take more than a third of the room."""
    end = 0
    for line in text.splitlines(keepends=True)[:_MOST_HEAD_LINES]:
        end += len(line)
        if "-" in line and not line.strip(" \t\n|:+=-"):
            return end if end <= room // 3 else 0
    return 0


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


def choose_rows(text: str, room: int, query: str) -> tuple[int, int]:
    """The same in whole lines, where lines are short enough for it."""
    longest = max(map(len, text.split("\n"))) + 1
    if room <= 3 * longest:
        return choose_window(text, room, query)
    start, end = choose_window(text, room - 2 * longest, query)
    start = text.rfind("\n", 0, start) + 1
    end = (text.find("\n", end) + 1 or len(text) + 1) - 1
    last = text.rfind("\n", end, start + room + 1) if start + room < len(text) else len(text)
    return start, max(end, last)


def _densest(held: Sequence[tuple[int, int]], reach: int) -> int:
    """The place from which on `reach` characters hold most different words, then most of them."""
    best, best_start = (0, 0), held[0][0]
    for first, (start, _) in enumerate(held):
        inside = [word for place, word in held[first:] if place < start + reach]
        score = (len(set(inside)), len(inside))
        if score > best:
            best, best_start = score, start
    return best_start


def part_of(span: Span, text: str, start: int, end: int, *, is_table: bool = False) -> Span:
    """Where `text[start:end]` stands, of a text that stands at `span`: its own lines where the text has the lines of the file,
    and of a table its own rows; else the whole, which holds it."""
    if is_table:
        return _rows_of(span, text, start, end)
    if span.line_start is None or span.line_end is None or span.line_end - span.line_start != text.count("\n"):
        return span
    first = span.line_start + text.count("\n", 0, start)
    return replace(span, line_start=first, line_end=first + text[start:end].rstrip().count("\n"))


def _rows_of(span: Span, text: str, start: int, end: int) -> Span:
    """The place of some rows. Counted from the last one: the text has a line for each row, and the header before them."""
    last = text.rstrip().count("\n")
    behind = last - text.count("\n", 0, start + len(text[start:end].rstrip()))
    ahead = last - text.count("\n", 0, start) if start else None

    def part(first: int | None, final: int | None) -> tuple[int | None, int | None]:
        if first is None or final is None:
            return first, final
        return first if ahead is None else max(first, final - ahead), max(first, final - behind)

    line_start, line_end = part(span.line_start, span.line_end)
    row_start, row_end = part(span.row_start, span.row_end)
    return replace(span, line_start=line_start, line_end=line_end, row_start=row_start, row_end=row_end)
