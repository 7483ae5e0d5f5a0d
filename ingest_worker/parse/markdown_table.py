"""Tables as Markdown: one line for each row, the header first (GitHub Flavored Markdown, section Tables).

A table whose header alone would fill a good part of a passage is laid out as several beside each other: each has all rows, a
part of the columns, and the first column, which says what the row is about. So no value is ever apart from its column's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shared.text import clean_text

_HEADER_TOKENS: Final = 140
"""About what a header may have, with the line below it; one of more than a third of a passage (160 of 480 tokens) is not
repeated where a table is cut (chunk/table.py)."""
_COLUMN_TOKENS: Final = 5
_CHARACTERS_PER_TOKEN: Final = 3


def markdown_tables(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The table, its first row as the header; nothing when no cell holds text. Rows and columns without text are left out."""
    cells = [[cell_text(cell) for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    if not cells:
        return
    width = max(len(row) for row in cells)
    filled = [row + [""] * (width - len(row)) for row in cells]
    kept = [column for column in range(width) if any(row[column] for row in filled)]
    for group in column_groups([filled[0][column] for column in kept]):
        lines = [row_line([row[kept[at]] for at in group]) for row in filled]
        yield "\n".join([lines[0], separator_line(len(group)), *lines[1:]])


def column_groups(names: Sequence[str]) -> list[list[int]]:
    """Which columns stand together, by their places: all, or the first with some others in turn."""
    sizes = [_COLUMN_TOKENS + len(name) // _CHARACTERS_PER_TOKEN for name in names]
    groups: list[list[int]] = [[]]
    total = 0
    for at, size in enumerate(sizes):
        if total + size > _HEADER_TOKENS and len(groups[-1]) > 1:
            groups.append([0])
            total = sizes[0]
        groups[-1].append(at)
        total += size
    return groups


def row_line(cells: Sequence[str]) -> str:
    """One row of cells that are ready."""
    return f"| {' | '.join(cells)} |"


def separator_line(width: int) -> str:
    """The line between the header and the rows."""
    return f"|{' --- |' * width}"


def cell_text(text: str) -> str:
    """A cell on one line, clean, and without a bar that would end it."""
    return " ".join(clean_text(text).split()).replace("|", "\\|")
