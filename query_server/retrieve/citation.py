"""How a passage is cited: `[billing.md, page 3]`, `[q1.xlsx, sheet Sales, rows 2–40]`, `[mail.eml, attachment offer.docx]`."""

from __future__ import annotations

from shared.documents import Span
from shared.text import visible


def cite(path: str, span: Span, section: str | None, kind: str = "text") -> str:
    """The file's name with what is known of the place: the file inside it, then its page, slide, sheet, rows or lines, else the
    innermost heading. What a model said of a picture is never cited as the document's own words. Names stand there as they may be
    shown (`visible`)."""
    parts = [path.rsplit("/", 1)[-1] or path]
    if span.attachment:
        parts.append(f"attachment {span.attachment}")
    parts += _place(span, section)
    if kind == "caption":
        parts.append("picture described by a model")
    return visible(f"[{', '.join(parts)}]")


def _place(span: Span, section: str | None) -> list[str]:
    rows = _range("row", span.row_start, span.row_end)
    if span.sheet:
        return [f"sheet {span.sheet}", *rows]
    places = (
        _range("page", span.page_start, span.page_end),
        _range("slide", span.slide, span.slide),
        rows,
        _range("line", span.line_start, span.line_end),
        [section.rsplit(" > ", 1)[-1]] if section else [],
    )
    return next((place for place in places if place), [])


def _range(word: str, start: int | None, end: int | None) -> list[str]:
    if start is None:
        return []
    if end is None or end == start:
        return [f"{word} {start}"]
    return [f"{word}s {start}–{end}"]
