"""Word documents to elements: headings with their numbers, lists, tables, notes, comments, text boxes, headers and footers.

A Word document has no pages until a program lays it out: none are told. Not python-docx, which knows neither text boxes nor
notes nor parts in other formats (altChunk), and refuses the Strict dialect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.docx_styles import Numbering, Style, list_place, outline_level, read_styles
from ingest_worker.parse.docx_text import Found, chosen, paragraph_text
from ingest_worker.parse.drawing import chart_parts, diagram_text
from ingest_worker.parse.embedded import read_embedded
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.inside import Inside
from ingest_worker.parse.office_pictures import add_member
from ingest_worker.parse.ooxml import Office
from ingest_worker.parse.xmltree import Node, attribute, child, children, local
from shared.documents import ElementKind, ParsedDocument

_WRAPPERS: Final = ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag")
_MOST_BOXES: Final = 1_000
"""Text boxes in text boxes could go on for ever; no document has so many."""


def parse(file: File) -> ParsedDocument:
    """The document's text.

    Raises:
        Unreadable: it is damaged or too large.
    """
    office = Office(file.data, "Word document")
    reader = _Reader(file, office)
    reader.read()
    elements = (*reader.builder.elements, *reader.inside.elements)
    # Only pictures: a scan that was put into a document.
    pages = reader.found.pictures if not elements and reader.found.pictures else None
    first = next((e.text for e in elements if e.kind is ElementKind.HEADING and e.level == 1), None)
    return ParsedDocument(
        elements=elements,
        media_type=file.media_type,
        title=office.title() or (first or "")[:300] or None,
        page_count=pages,
        pages_with_text=0 if pages else None,
        warnings=tuple(reader.inside.notes),
        unread=tuple(reader.inside.unread),
    )


class _Reader:
    def __init__(self, file: File, office: Office) -> None:
        self.builder = Builder()
        self.inside = Inside()
        self.found = Found()
        self._file = file
        self._office = office
        self._main = office.main_part()
        self._relations = office.relations(self._main)
        self._styles: dict[str, Style] = {}
        for tree in self._side_trees("styles"):
            self._styles = read_styles(tree)
        self._numbering = Numbering(next(self._side_trees("numbering"), None))
        self._notes = {kind: self._side_part(kind) for kind in ("footnotes", "endnotes", "comments")}
        self._items: list[str] = []
        self._boxes = 0

    def read(self) -> None:
        """Headers and footers come first: after the text they would seem to belong to its last section."""
        body = child(self._office.tree(self._main), "body")
        seen: set[str] = set()
        for kind in ("header", "footer"):
            for tree in self._side_trees(kind):
                text = self._plain(tree)
                if text not in seen and any(character.isalpha() for character in text):
                    seen.add(text)
                    self.builder.text(text)
        # Pictures of headers are decoration, and their references are those of another part.
        self.found.blips.clear()
        self._blocks(body)
        self._end_list()
        self._hangers()

    def _side_part(self, kind: str) -> dict[str, Node]:
        return {attribute(node, "id") or "": node for tree in self._side_trees(kind) for node in children(tree)}

    def _side_trees(self, kind: str) -> Iterator[Node]:
        """The parts of one kind beside the main one; a damaged one costs itself."""
        for part in self._office.related(self._main, kind):
            try:
                yield self._office.tree(part)
            except Unreadable as error:
                self.inside.unread.append(str(error))

    def _blocks(self, node: Node | None) -> None:
        for block in children(node):
            name = local(block)
            if name == "p":
                self._paragraph(block)
            elif name == "tbl":
                self._end_list()
                self._table(block)
            elif name == "altChunk":
                self._end_list()
                self._other_format(attribute(block, "id") or "")
            elif name == "AlternateContent":
                self._blocks(chosen(block))
            elif name in _WRAPPERS:
                self._blocks(block)

    def _paragraph(self, paragraph: Node) -> None:
        properties = child(paragraph, "pPr")
        style = self._styles.get(attribute(child(properties, "pStyle"), "val") or "", Style())
        number_id, depth = list_place(properties)
        if number_id is None:
            number_id, depth = style.number_id, style.depth
        level = outline_level(properties) or style.level
        text = paragraph_text(paragraph, self.found)
        label = self._numbering.label(number_id, depth) if number_id is not None and text else None
        if level is not None:
            self._end_list()
            self.builder.heading(f"{label} {text}" if label and label != "-" else text, level)
        elif label is not None and text:
            self._items.append(f"{'  ' * min(depth, 8)}{label} {text}")
        else:
            self._end_list()
            self.builder.text(text)
        self._hangers()

    def _end_list(self) -> None:
        if self._items:
            self.builder.text("\n".join(self._items))
            self._items.clear()

    def _hangers(self) -> None:
        """What hangs on the paragraph or table just read, each by itself after it."""
        found = self.found
        self._take_pictures(found.blips)
        if not (found.footnotes or found.endnotes or found.comments or found.boxes or found.references):
            return
        self._end_list()
        notes = [("footnotes", name, f"[^{name}]") for name in found.footnotes]
        notes += [("endnotes", name, f"[^e{name}]") for name in found.endnotes]
        comments, boxes, references = found.comments, found.boxes, found.references
        self.found = Found(pictures=found.pictures)
        for kind, name, mark in notes:
            self.builder.text(f"{mark}: {self._plain(self._notes[kind].get(name))}")
        for name in comments:
            comment = self._notes["comments"].get(name)
            author = attribute(comment, "author")
            self.builder.text(f"Comment{f' by {author}' if author else ''}: {self._plain(comment)}")
        for box in boxes:
            self._boxes += 1
            if self._boxes <= _MOST_BOXES:
                self._blocks(box)
                self._end_list()
        for reference in references:
            self._object(reference)

    def _take_pictures(self, references: list[str]) -> None:
        for relation in filter(None, map(self._relations.get, references)):
            at = len(self.builder.elements)
            add_member(self._file, self._office.package, relation.target, self.builder.span, at=at)
        references.clear()

    def _object(self, reference: str) -> None:
        relation = self._relations.get(reference)
        if relation is None or relation.target not in self._office.package:
            return
        if relation.kind == "chart":
            title, table = chart_parts(self._office, relation.target)
            self.builder.text(title)
            self.builder.table(table)
        elif relation.kind == "diagramData":
            self.builder.text(diagram_text(self._office, relation.target))
        else:
            read_embedded(self._file, self._office, relation, self.inside)

    def _other_format(self, reference: str) -> None:
        """A part of the text that is stored in another format: HTML, RTF, another Word document."""
        relation = self._relations.get(reference)
        if relation is None or relation.target not in self._office.package or self._file.parse is None:
            return
        data = self._office.package.read(relation.target)
        if self._file.depth > 2 or not self._file.allowance.take(len(data)):
            self.inside.unread.append(f"A part of the text ({relation.target}) lies too deep in other parts and was not read.")
            return
        try:
            parsed = self._file.parse(self._file.inner(relation.target, data))
        except (Skipped, Unreadable) as error:
            self.inside.unread.append(f"A part of the text ({relation.target}) could not be read: {error}")
            return
        self.builder.extend(parsed.elements)
        self.inside.unread += parsed.unread

    def _table(self, table: Node) -> None:
        rows = [[*_wrapped(row, "tc")] for row in _wrapped(table, "tr")]
        if len(rows) < 2 or max(map(len, rows)) < 2:
            # A frame around text, no table.
            for cell in (cell for row in rows for cell in row):
                self._blocks(cell)
                self._end_list()
            return
        above: dict[int, str] = {}
        lines: list[list[str]] = []
        for row in rows:
            line: list[str] = []
            for cell in row:
                properties = child(cell, "tcPr")
                merged = child(properties, "vMerge")
                column = len(line)
                if merged is not None and attribute(merged, "val") != "restart":
                    text = above.get(column, "")
                else:
                    text = self._plain(cell)
                above[column] = text
                span = attribute(child(properties, "gridSpan"), "val") or "1"
                line += [text] + [""] * (min(int(span), 60) - 1 if span.isascii() and span.isdigit() else 0)
            lines.append(line)
        self.builder.table(lines)
        self._hangers()

    def _plain(self, node: Node | None) -> str:
        """The text of a cell, a note, a header: its paragraphs, one a line."""
        # Paragraphs of a text box are not taken here: they hang on the paragraph around it.
        return "\n".join(text for one in _paragraphs(node) if (text := paragraph_text(one, self.found)))


def _paragraphs(node: Node | None) -> Iterator[Node]:
    for one in children(node):
        name = local(one)
        if name == "p":
            yield one
        elif name == "AlternateContent":
            yield from _paragraphs(chosen(one))
        elif name in (*_WRAPPERS, "tbl", "tr", "tc", "comment", "footnote"):
            yield from _paragraphs(one)


def _wrapped(node: Node, name: str) -> Iterator[Node]:
    """The rows of a table, or the cells of a row, where content controls stand around some of them."""
    for one in children(node):
        if local(one) == name:
            yield one
        elif local(one) in _WRAPPERS:
            yield from _wrapped(one, name)
