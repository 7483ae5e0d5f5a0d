"""Text in DrawingML (ECMA-376 part 1, section 20 and 21): text boxes, charts as tables of their data, diagrams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.number_format import plain_number
from ingest_worker.parse.ooxml import Office
from ingest_worker.parse.xmltree import Node, child, children, descendants, local

_STRUCTURAL: Final = frozenset(("pres", "parTrans", "sibTrans"))
_MOST_POINTS: Final = 5_000
"""Points of a chart that are read; the sheet behind it has them all."""

Table = list[list[str]]


def drawing_parts(office: Office, part: str) -> Iterator[tuple[str, Table]]:
    """The text and the table of each thing in a sheet's drawing."""
    for shape in descendants(office.tree(part), "txBody"):
        yield body_text(shape), []
    for relation in office.relations(part).values():
        if relation.target in office.package:
            if relation.kind == "chart":
                yield chart_parts(office, relation.target)
            elif relation.kind == "diagramData":
                yield diagram_text(office, relation.target), []


def body_text(body: Node | None) -> str:
    """The paragraphs of a text body, one a line; those below the first level as items of a list."""
    lines = []
    for paragraph in children(body, "p"):
        properties = child(paragraph, "pPr")
        level = (properties.get("lvl") if properties is not None else None) or "0"
        text = paragraph_text(paragraph)
        if text.strip():
            depth = int(level) if level.isascii() and level.isdigit() else 0
            lines.append(f"{'  ' * (min(depth, 9) - 1)}- {text}" if depth else text)
    return "\n".join(lines)


def paragraph_text(paragraph: Node) -> str:
    """The runs of one paragraph."""
    marks = {"br": "\n", "tab": "\t"}
    return "".join(marks.get(local(node)) or node.text or "" for node in descendants(paragraph, "t", "br", "tab")).strip()


def chart_parts(office: Office, part: str) -> tuple[str, Table]:
    """A chart's title, and its data as a table: a row for each category, a column for each series."""
    try:
        tree = office.tree(part)
    except Unreadable:
        # A chart is a small part of a document, which is not lost with it.
        return "", []
    title = " ".join(node.text or "" for node in descendants(child(tree, "chart", "title"), "t")).strip()
    names: list[str] = []
    labels: dict[int, str] = {}
    values: list[dict[int, str]] = []
    for series in descendants(tree, "ser"):
        names.append(next((node.text or "" for node in descendants(child(series, "tx"), "v")), ""))
        labels |= {index: text for index, text in _points(child(series, "cat"), child(series, "xVal")) if index not in labels}
        values.append(dict(_points(child(series, "val"), child(series, "yVal"))))
    indexes = sorted({index for column in (labels, *values) for index in column})[:_MOST_POINTS]
    if not indexes:
        return title, []
    header = ["", *names]
    return title, [header, *([labels.get(i, ""), *(column.get(i, "") for column in values)] for i in indexes)]


def diagram_text(office: Office, part: str) -> str:
    """The texts of a diagram (SmartArt), one a line; they stand in a part of their own."""
    try:
        tree = office.tree(part)
    except Unreadable:
        return ""
    lines = []
    for point in descendants(tree, "pt"):
        if point.get("type") not in _STRUCTURAL:
            lines += [text for body in children(point, "t") if (text := body_text(body))]
    return "\n".join(lines)


def _points(*sources: Node | None) -> Iterator[tuple[int, str]]:
    for source in sources:
        for point in descendants(source, "pt"):
            index, value = point.get("idx") or "", child(point, "v")
            if index.isascii() and index.isdigit() and value is not None and value.text:
                yield int(index), _shown(value.text)


def _shown(value: str) -> str:
    try:
        return plain_number(float(value))
    except ValueError:
        return value
