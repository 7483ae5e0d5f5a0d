"""Tables: a cell that spans rows stands in each of them, one that spans columns in the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lxml.etree import _Element as Node

from ingest_worker.sources.confluence.storage_text import collapse
from ingest_worker.sources.confluence.storage_tree import children, local

if TYPE_CHECKING:
    from ingest_worker.sources.confluence.storage_blocks import Writer

_MOST_SPAN: Final = 60
_MOST_COLUMNS: Final = 500
_BREAK: Final = "<br>"


def table(node: Node, writer: Writer) -> list[str]:
    """A table as Markdown. One of a single column is no table but a frame: its cells are blocks of the page."""
    rows = list(_rows(node))
    outside = [block for one in children(node) if local(one) in {"caption", "p"} for block in writer.blocks(one)]
    if not rows:
        return outside or writer.blocks(node)
    if all(len(cells) < 2 for cells in rows):
        return [*outside, *(block for cells in rows for cell in cells for block in writer.blocks(cell))]
    grid, header = _grid(rows, writer)
    width = max(len(row) for row in grid)
    lines = [row + [""] * (width - len(row)) for row in grid]
    if not header:
        lines.insert(0, [""] * width)
    text = [_line(lines[0]), _line(["---"] * width), *(_line(row) for row in lines[1:])]
    return [*outside, "\n".join(text)]


def _rows(node: Node) -> list[list[Node]]:
    found: list[list[Node]] = []
    for one in children(node):
        name = local(one)
        if name in {"thead", "tbody", "tfoot"}:
            found.extend(_rows(one))
        elif name == "tr":
            cells = [cell for cell in children(one) if local(cell) in {"td", "th"}]
            if cells:
                found.append(cells)
    return found


def _grid(rows: list[list[Node]], writer: Writer) -> tuple[list[list[str]], bool]:
    """The texts by row and column, and whether the first row names the columns."""
    grid: list[list[str]] = []
    below: dict[int, tuple[str, int]] = {}  # column: text of a cell from above, rows that it still covers
    for cells in rows:
        row: dict[int, str] = {}
        for column, (text, left) in list(below.items()):
            row[column] = text
            if left > 1:
                below[column] = (text, left - 1)
            else:
                del below[column]
        column = 0
        for cell in cells:
            while column in row:
                column += 1
            text = _cell(cell, writer)
            across, down = _span(cell.get("colspan")), _span(cell.get("rowspan"))
            column = min(column, _MOST_COLUMNS)
            for offset in range(across):
                place = column + offset
                row[place] = (row.get(place, "") + " " + text).strip() if offset == 0 else row.get(place, "")
                if down > 1:
                    below[place] = (text if offset == 0 else "", down - 1)
            column += across
        grid.append([row.get(place, "") for place in range(max(row) + 1)])
    above = rows[0][0].getparent()
    section = None if above is None else above.getparent()
    header = all(local(cell) == "th" for cell in rows[0]) or (section is not None and local(section) == "thead")
    return grid, header


def _cell(cell: Node, writer: Writer) -> str:
    lines = [line for block in writer.nested(cell) for line in block.split("\n")]
    kept = (collapse(line) for line in lines if not line.lstrip().startswith("```"))
    return _BREAK.join(line for line in kept if line).replace("|", "\\|")


def _span(text: str | None) -> int:
    return min(int(text), _MOST_SPAN) if text and text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) else 1


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
