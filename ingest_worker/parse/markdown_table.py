"""Tables as Markdown: one line for each row, the header first (GitHub Flavored Markdown, section Tables)."""

from __future__ import annotations

from collections.abc import Sequence

from shared.text import clean_text


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The table, its first row as the header; empty when no cell holds text. Rows and columns without text are left out."""
    cells = [[cell_text(cell) for cell in row] for row in rows]
    cells = [row for row in cells if any(row)]
    if not cells:
        return ""
    width = max(len(row) for row in cells)
    filled = [row + [""] * (width - len(row)) for row in cells]
    kept = [column for column in range(width) if any(row[column] for row in filled)]
    lines = [row_line([row[column] for column in kept]) for row in filled]
    return "\n".join([lines[0], separator_line(len(kept)), *lines[1:]])


def row_line(cells: Sequence[str]) -> str:
    """One row of cells that are ready."""
    return f"| {' | '.join(cells)} |"


def separator_line(width: int) -> str:
    """The line between the header and the rows."""
    return f"|{' --- |' * width}"


def cell_text(text: str) -> str:
    """A cell on one line, clean, and without a bar that would end it."""
    return " ".join(clean_text(text).split()).replace("|", "\\|")
