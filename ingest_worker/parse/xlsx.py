"""Excel workbooks to tables: row by row, values as they are shown, formulas by their last results.

Not openpyxl, which is about as fast, but sees no sheets in the Strict dialect and fills the space before a far cell; not
calamine, which is ten times as fast, but tells no number formats (5 % becomes 0.05) and dies of a far cell.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterator
from typing import Final

from lxml import etree

from ingest_worker.parse.building import Builder
from ingest_worker.parse.drawing import drawing_parts
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.grid import Row, grid_elements
from ingest_worker.parse.number_format import GENERAL, NumberFormat, read_format, show_number
from ingest_worker.parse.office_pictures import add_drawing
from ingest_worker.parse.ooxml import Office, relation_id
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, local
from shared.documents import ElementKind, ParsedDocument, Span

_REFERENCE: Final = re.compile(r"([A-Z]{1,3})(\d{1,7})$")


def parse(file: File) -> ParsedDocument:
    """The sheets in their order; sheets that are hidden are read and said to be.

    Raises:
        Unreadable: it is damaged or too large.
    """
    office = Office(file.data, "Excel workbook")
    main = office.main_part()
    book = office.tree(main)
    relations = office.relations(main)
    properties = child(book, "workbookPr")
    reader = _Reader(office, main, mac_dates=attribute(properties, "date1904") in ("1", "true"))
    builder = Builder()
    warnings: list[str] = []
    unread: list[str] = []
    for number, sheet in enumerate(children(child(book, "sheets"), "sheet"), start=1):
        file.on_page(number)
        name = sheet.get("name") or f"Sheet {number}"
        relation = relations.get(relation_id(sheet))
        if relation is None or relation.target not in office.package:
            unread.append(f"The sheet {name} is named, but is not in the file.")
            continue
        if (sheet.get("state") or "visible") != "visible":
            warnings.append(f"The sheet {name} is hidden.")
        try:
            _add_sheet(builder, reader, name, relation.target, relation.kind, file)
        except Unreadable as error:
            unread.append(f"The sheet {name} could not be read: {error}")
    if unread and all(element.kind is ElementKind.HEADING for element in builder.elements):
        raise Unreadable(unread[0], code="damaged")
    return ParsedDocument(
        elements=tuple(builder.elements),
        media_type=file.media_type,
        title=office.title(),
        warnings=tuple(warnings),
        unread=tuple(unread),
    )


def _add_sheet(builder: Builder, reader: _Reader, name: str, part: str, kind: str, file: File) -> None:
    builder.span = Span(sheet=name)
    before = len(builder.elements)
    builder.heading(name, 1)
    if kind == "worksheet":
        builder.extend(tuple(grid_elements(reader.rows(part), builder.span)))
        for place, text in reader.comments(part):
            builder.text(text, Span(sheet=name, row_start=place, row_end=place))
    for drawing in reader.office.related(part, "drawing"):
        for text, table in drawing_parts(reader.office, drawing):
            builder.text(text)
            builder.table(table)
        add_drawing(file, reader.office, drawing, builder)
    if len(builder.elements) == before + 1:
        del builder.elements[before:]


class _Reader:
    """What all sheets share: strings, formats of numbers, the date system."""

    def __init__(self, office: Office, main: str, *, mac_dates: bool) -> None:
        self.office = office
        self._mac_dates = mac_dates
        self._strings = [text for part in office.related(main, "sharedStrings") for text in self._shared(part)]
        self._formats = [shown for part in office.related(main, "styles")[:1] for shown in self._styles(part)]

    def rows(self, part: str) -> Iterator[Row]:
        """The rows of a sheet that hold something."""
        number = 0
        for row in self._stream(part, "row"):
            number = _positive(row.get("r")) or number + 1
            cells: dict[int, str] = {}
            column = -1
            for cell in row:
                match = _REFERENCE.match(cell.get("r") or "")
                column = _column(match[1]) if match else column + 1
                # Most cells hold their value alone: what else there may be is looked for in the others.
                parts = list(cell)
                if len(parts) == 1 and str(parts[0].tag).endswith("}v"):
                    text = self._shown(parts[0].text or "", cell.get("t"), cell.get("s"))
                else:
                    text = self._value(cell) if parts else ""
                if text:
                    cells[column] = text
            if cells:
                yield Row(number, cells)

    def comments(self, part: str) -> Iterator[tuple[int, str]]:
        """Notes on cells, each with its row."""
        for name in self.office.related(part, "comments"):
            tree = self.office.tree(name)
            authors = ["".join(node.itertext()).strip() for node in descendants(tree, "author")]
            for comment in descendants(tree, "comment"):
                match = _REFERENCE.match(comment.get("ref") or "")
                text = "".join(node.text or "" for node in descendants(comment, "t")).strip()
                if not match or not text:
                    continue
                who = _positive(comment.get("authorId"), least=0)
                author = authors[who] if who is not None and who < len(authors) else ""
                # Excel writes the author's name into the text as well.
                text = text.removeprefix(f"{author}:").strip() if author else text
                yield int(match[2]), f"Comment on {match[0]}{f' by {author}' if author else ''}: {text}"

    def _value(self, cell: Node) -> str:
        kind = cell.get("t")
        if kind == "inlineStr":
            return _text(child(cell, "is"))
        value = formula = None
        for part in cell:
            name = local(part)
            value = part.text if name == "v" else value
            formula = part.text if name == "f" else formula
        if value is None:
            return f"={formula}" if formula else ""
        return self._shown(value, kind, cell.get("s"))

    def _shown(self, value: str, kind: str | None, style: str | None) -> str:
        if kind == "s":
            index = _positive(value, least=0)
            return self._strings[index] if index is not None and index < len(self._strings) else ""
        if kind == "b":
            return "TRUE" if value.strip() == "1" else "FALSE"
        if kind in ("str", "e", "d"):
            return str(value)
        return self._number(value, style)

    def _number(self, value: str, style: str | None) -> str:
        try:
            number = float(value)
        except ValueError:
            return str(value)
        index = _positive(style, least=0)
        shown = self._formats[index] if index is not None and index < len(self._formats) else GENERAL
        return show_number(number, shown, mac_dates=self._mac_dates)

    def _shared(self, part: str) -> Iterator[str]:
        for item in self._stream(part, "si"):
            yield _text(item)

    def _styles(self, part: str) -> Iterator[NumberFormat]:
        tree = self.office.tree(part)
        codes = {node.get("numFmtId"): node.get("formatCode") for node in children(child(tree, "numFmts"), "numFmt")}
        for style in children(child(tree, "cellXfs"), "xf"):
            number = style.get("numFmtId") or "0"
            yield read_format(_positive(number, least=0) or 0, codes.get(number))

    def _stream(self, part: str, name: str) -> Iterator[Node]:
        """The elements of one name, one by one: a sheet of a hundred megabytes is never held whole."""
        source = io.BytesIO(self.office.package.read(part))
        events = etree.iterparse(
            source,
            events=("end",),
            tag=f"{{*}}{name}",
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            remove_comments=True,
        )
        try:
            for _, node in events:
                yield node
                node.clear()
                parent = node.getparent()
                while parent is not None and node.getprevious() is not None:
                    del parent[0]
        except etree.XMLSyntaxError as error:
            raise Unreadable(f"The Excel workbook's part {part} is damaged: {error}. Save it anew.", code="damaged") from error


def _text(node: Node | None) -> str:
    """The text of a string with its runs, without the reading aids (`rPh`) of Japanese ones."""
    parts: list[str] = []
    for part in children(node, "t", "r"):
        text = part if local(part) == "t" else child(part, "t")
        parts.append(str(text.text or "") if text is not None else "")
    return "".join(parts)


@functools.cache
def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _positive(text: str | None, *, least: int = 1) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    number = int(text)
    return number if number >= least else None
