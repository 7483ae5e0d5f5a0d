"""Tables of a page: which of them only make the layout, and the cells of the others."""

from __future__ import annotations

from itertools import islice
from typing import Final

from ingest_worker.parse.xmltree import Node

_MOST_SPAN: Final = 60
"""Columns or rows that one cell may stand for; a page may claim millions."""
_MOST_COLUMNS: Final = 500
_LONG_CELL: Final = 600
"""Characters of a cell above which a table without a header is taken for a frame around text."""
_LOOKED_AT: Final = 5_000
"""Nodes of a table that are looked at to see whether it is one."""


def is_layout(table: Node) -> bool:
    """Whether a table only places things on the page: it holds others, headings or long texts, or has one row or column."""
    if table.get("role") in ("presentation", "none"):
        return True
    rows = widest = 0
    current = characters = longest = 0
    has_header = False
    for node in islice(table.iterdescendants(), _LOOKED_AT):
        name = node.tag
        if name in ("table", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "form"):
            return True
        if name == "tr":
            rows, current = rows + 1, 0
        elif name in ("td", "th"):
            current += 1
            characters = 0
            widest = max(widest, current)
            has_header = has_header or name == "th"
        characters += len((node.text or "").strip()) + len((node.tail or "").strip())
        longest = max(longest, characters)
    return widest < 2 or (not has_header and (rows < 2 or longest > _LONG_CELL))


class Table:
    """The cells of one table as they are met. A cell that spans rows stands in each of them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.rows: list[list[str]] = []
        self.caption: list[str] = []
        self._row: dict[int, str] = {}
        self._below: dict[int, tuple[str, int]] = {}  # column: text of a cell from above, rows that it still covers
        self._column = 0
        self._cell: list[str] | None = None
        self._span = (1, 1)

    def start(self, node: Node, name: str) -> None:
        """A row or cell begins."""
        if name == "tr":
            self._end_row()
        elif name in ("td", "th"):
            self._end_cell()
            self._cell = []
            self._span = (_span(node.get("colspan")), _span(node.get("rowspan")))

    def end(self, name: str) -> None:
        """A row, a cell or the table ends."""
        if name in ("td", "th"):
            self._end_cell()
        elif name in ("tr", "table"):
            self._end_cell()
            self._end_row()

    def text(self, text: str) -> None:
        """Text of the open cell; outside of cells it is the caption's."""
        (self.caption if self._cell is None else self._cell).append(text)

    def _end_cell(self) -> None:
        if self._cell is None:
            return
        while self._column in self._below:
            self._column += 1
        text = " ".join(self._cell)
        across, down = self._span
        if self._column < _MOST_COLUMNS:
            self._row[self._column] = text
        if down > 1:
            self._below |= {self._column + i: (text if i == 0 else "", down) for i in range(across)}
        self._column += across
        self._cell = None

    def _end_row(self) -> None:
        if not self._row:
            return
        for column, (text, left) in list(self._below.items()):
            self._row.setdefault(column, text)
            if left > 1:
                self._below[column] = (text, left - 1)
            else:
                del self._below[column]
        self.rows.append([self._row.get(column, "") for column in range(min(max(self._row) + 1, _MOST_COLUMNS))])
        self._row = {}
        self._column = 0


def _span(text: str | None) -> int:
    return min(int(text), _MOST_SPAN) if text and text.isascii() and text.isdigit() and 0 < len(text) < 9 and int(text) else 1
