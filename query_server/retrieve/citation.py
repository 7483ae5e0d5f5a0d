"""How a passage is cited: `[billing.md, page 3]`."""

from __future__ import annotations

from shared.documents import Span


def cite(path: str, span: Span, section: str | None) -> str:
    """The file's name with what is known of the place: pages, else lines, else the innermost heading."""
    name = path.rsplit("/", 1)[-1] or path
    place = _range("page", span.page_start, span.page_end) or _range("line", span.line_start, span.line_end)
    if place is None and section:
        place = section.rsplit(" > ", 1)[-1]
    return f"[{name}, {place}]" if place else f"[{name}]"


def _range(word: str, start: int | None, end: int | None) -> str | None:
    if start is None:
        return None
    if end is None or end == start:
        return f"{word} {start}"
    return f"{word}s {start}–{end}"
