"""Rows of a sheet, or of a table of separated values, to tables with their row numbers.

Only cells that hold something are ever held, so a lone value in a far corner costs nothing. Long tables come in windows, each
with the header: a window ends at a row that its content picks, so that an inserted row moves one border and not all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final
from zlib import crc32

from ingest_worker.parse.markdown_table import cell_text, column_groups, row_line, separator_line
from shared.documents import Element, ElementKind, Span

_LEAST_ROWS: Final = 250
_MOST_ROWS: Final = 4_000
_PICK: Final = 500
"""One row in so many ends a window that has the least rows; the most rows end it anyway."""
_TITLE_ROWS: Final = 3
"""Rows of one cell above a table that are read as its title."""
_NUMBER: Final = re.compile(
    r"[-+(]?(?:[$€£¥]|[A-Z]{3}[ \u00a0])?[ \u00a0]?\d[\d.,'\u00a0 ]*(?:[eE][-+]?\d+)?[ \u00a0]?(?:%|[$€£¥]|[A-Z]{3})?\)?"
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].{0,20})?|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_VALUE_CHARS: Final = 64
_YEAR: Final = re.compile(r"(?:1[89]|20|21)\d\d")


@dataclass(frozen=True, slots=True)
class Row:
    """A row that holds something: its 1-based number, and its texts by column from 0."""

    number: int
    cells: Mapping[int, str]


def grid_elements(rows: Iterable[Row], span: Span, *, blocks: bool = True) -> Iterator[Element]:
    """The elements of a sheet: tables, and text where there is only one column. `span` names the sheet.

    With `blocks` a blank row ends a table; the next one has its own header, or goes on under the last one.
    """
    header: Row | None = None
    for window, begins in _windows(_filled(rows), blocks=blocks):
        body: Sequence[Row] = window
        if begins:
            titles = _titles(window)
            yield from _text(window[:titles], span)
            body = window[titles:]
            own = _is_header(body)
            if own:
                header, body = body[0], body[1:]
                yield from _table(header, body, replace(span, row_start=header.number))
                continue
            lone = all(len(row.cells) == 1 for row in body)
            # Notes below a table are no rows of it, and neither is a table with other columns.
            if header is not None and (lone or not body[0].cells.keys() <= header.cells.keys()):
                header = None
        if header is None and all(len(row.cells) == 1 for row in body):
            yield from _text(body, span)
        else:
            yield from _table(header, body, replace(span, row_start=body[0].number))


def column_name(column: int) -> str:
    """The letters of a column that is counted from 0: A, B, … Z, AA."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _filled(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        cells = {column: text for column, value in row.cells.items() if (text := cell_text(value))}
        if cells:
            yield Row(row.number, cells)


def _windows(rows: Iterable[Row], *, blocks: bool) -> Iterator[tuple[list[Row], bool]]:
    """Runs of neighbouring rows, each with whether a table may begin there."""
    window: list[Row] = []
    begins = True
    for row in rows:
        gap = bool(window) and row.number != window[-1].number + 1
        if gap or len(window) >= _MOST_ROWS or (len(window) >= _LEAST_ROWS and _picks(row)):
            yield window, begins
            window, begins = [], gap and blocks
        window.append(row)
    if window:
        yield window, begins


def _picks(row: Row) -> bool:
    return crc32("\t".join(row.cells.values()).encode("utf-8", "replace")) % _PICK == 0


def _titles(window: Sequence[Row]) -> int:
    """How many rows at the top are the title of the table below them."""
    count = next((i for i, row in enumerate(window) if len(row.cells) > 1), 0)
    return count if count <= _TITLE_ROWS else 0


def _is_header(rows: Sequence[Row]) -> bool:
    """Whether the first row names the columns: it holds no values, or others than the row below it."""
    first = rows[0]
    if len(rows) < 2 or (len(first.cells) == 1 and all(len(row.cells) == 1 for row in rows)):
        return False
    values = {column: text for column, text in first.cells.items() if _kind(text) and not _YEAR.fullmatch(text)}
    if not values or _is_count(list(values.values())):
        return True
    return all(_kind(rows[1].cells.get(column, "")) not in ("", _kind(text)) for column, text in values.items())


def _kind(text: str) -> str:
    if len(text) > _VALUE_CHARS:
        return ""
    return "date" if _DATE.fullmatch(text) else "number" if _NUMBER.fullmatch(text) else ""


def _is_count(values: Sequence[str]) -> bool:
    """Whether these are numbers of columns: 1, 2, 3."""
    if len(values) < 3 or not all(value.isascii() and value.isdigit() and len(value) < 5 for value in values):
        return False
    return all(int(after) == int(before) + 1 for before, after in pairwise(values))


def _text(rows: Sequence[Row], span: Span) -> Iterator[Element]:
    for row in rows:
        text = " | ".join(row.cells[column] for column in sorted(row.cells)).replace("\\|", "|")
        yield Element(kind=ElementKind.TEXT, text=text, span=replace(span, row_start=row.number, row_end=row.number))


def _table(header: Row | None, body: Sequence[Row], span: Span) -> Iterator[Element]:
    """One table, or several beside each other; columns in which nothing stands are left out.

    Without a header the columns have their letters.
    """
    used = set(header.cells) if header is not None else set()
    for row in body:
        used |= row.cells.keys()
    columns = sorted(used)
    names = [column_name(column) if header is None else header.cells.get(column, "") for column in columns]
    last = body[-1] if body else header
    where = replace(span, row_end=last.number if last is not None else None)
    for group in column_groups(names):
        chosen = [columns[at] for at in group]
        lines = [row_line([names[at] for at in group]), separator_line(len(group))]
        lines += [row_line([row.cells.get(column, "") for column in chosen]) for row in body]
        yield Element(kind=ElementKind.TABLE, text="\n".join(lines), span=where)
