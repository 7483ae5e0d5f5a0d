"""OpenDocument texts, presentations and drawings (ISO/IEC 26300) to elements. Sheets are read by `workbook`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.file import File
from ingest_worker.parse.odf_encryption import opened
from ingest_worker.parse.office_pictures import add_member
from ingest_worker.parse.package import Package, resolve
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, local, parse_xml
from shared.documents import ElementKind, ParsedDocument, Span

_MOST_REPEATED: Final = 60
"""How often a cell that is written once is taken; a file may claim millions."""
_LEFT_OUT: Final = frozenset(("tracked-changes", "forms", "ruby-text", "desc", "title", "sequence-decls", "variable-decls"))
_BREAKS: Final = {"tab": "\t", "line-break": "\n"}


def parse(file: File) -> ParsedDocument:
    """The document's text. A slide counts as a page; a text has none until a program lays it out.

    Raises:
        Unreadable: `encrypted`, `damaged` or `too_large`.
    """
    file = opened(file)
    package = Package(file.data, "OpenDocument file")
    body = child(parse_xml(package.read("content.xml"), "The OpenDocument file's content"), "body")
    reader = _Reader(file, package)
    slides = without_text = 0
    for content in children(body):
        pages = list(children(content, "page")) if local(content) in ("presentation", "drawing") else []
        if pages:
            slides, without_text = reader.pages(pages)
        else:
            reader.furniture()
            reader.blocks(content)
    elements = tuple(reader.builder.elements)
    if not elements and not slides and reader.pictures:
        slides = without_text = reader.pictures
    first = next((e.text for e in elements if e.kind is ElementKind.HEADING and e.level == 1), None)
    return ParsedDocument(
        elements=elements,
        media_type=file.media_type,
        title=_title(package) or first,
        page_count=slides or None,
        pages_with_text=slides - without_text if slides else None,
        warnings=tuple(reader.warnings),
    )


def _title(package: Package) -> str | None:
    data = package.get("meta.xml")
    if data is None:
        return None
    tree = parse_xml(data, "The OpenDocument file's description")
    title = next((" ".join((node.text or "").split()) for node in descendants(tree, "title")), "")
    return title[:300] or None


class _Reader:
    def __init__(self, file: File, package: Package) -> None:
        self.builder = Builder()
        self.warnings: list[str] = []
        self.pictures = 0
        self._file = file
        self._package = package
        self._hanging: list[tuple[str, Node]] = []

    def pages(self, pages: list[Node]) -> tuple[int, int]:
        """Read slides; returns their number, and how many hold nothing but pictures."""
        without_text = 0
        for number, page in enumerate(pages, start=1):
            self._file.on_page(number)
            self.builder.span = Span(slide=number)
            before, pictures = len(self.builder.elements), self.pictures
            frames = sorted(children(page), key=lambda frame: attribute(frame, "class") != "title")
            for frame in frames:
                if local(frame) == "notes":
                    notes = "\n".join(text for box in descendants(frame, "text-box") if (text := self._plain(box)))
                    self.builder.text(f"Notes: {notes}" if notes else "")
                elif attribute(frame, "class") == "title":
                    self.builder.heading(self._plain(frame), 1)
                else:
                    self._frame(frame)
            if len(self.builder.elements) == before and self.pictures > pictures:
                without_text += 1
        return len(pages), without_text

    def furniture(self) -> None:
        """Headers and footers, first: after the text they would seem to belong to its last section."""
        data = self._package.get("styles.xml")
        if data is None:
            return
        seen: set[str] = set()
        for node in descendants(parse_xml(data, "The OpenDocument file's styles"), "header", "footer"):
            text = self._plain(node)
            if text not in seen and any(character.isalpha() for character in text):
                seen.add(text)
                self.builder.text(text)

    def blocks(self, node: Node | None) -> None:
        """The paragraphs, lists and tables below a node."""
        for block in children(node):
            name = local(block)
            if name == "h":
                level = attribute(block, "outline-level") or "1"
                self.builder.heading(self._text(block), int(level) if level.isascii() and level.isdigit() else 1)
                self._hang()
            elif name == "p":
                self.builder.text(self._text(block))
                self._hang()
            elif name == "list":
                self.builder.text("\n".join(self._items(block, 0)))
                self._hang()
            elif name == "table":
                self._table(block)
                self._hang()
            elif name == "frame" or name.startswith("custom-shape"):
                self._frame(block)
            elif name not in _LEFT_OUT:
                self.blocks(block)

    def _items(self, items: Node, depth: int) -> Iterator[str]:
        for item in children(items, "list-item", "list-header"):
            mark = "- "
            for one in children(item):
                if local(one) == "list":
                    yield from self._items(one, depth + 1)
                elif local(one) in ("p", "h") and (text := self._text(one)):
                    yield f"{'  ' * min(depth, 8)}{mark}{text}"
                    mark = "  "

    def _table(self, table: Node) -> None:
        rows = [list(_cells(row)) for row in _rows(table)]
        if len(rows) < 2 or max(map(len, rows)) < 2:
            # A frame around text, no table.
            for cell in (cell for row in rows for cell in row if cell is not None):
                self.blocks(cell)
            return
        self.builder.table([[self._plain(cell) for cell in row] for row in rows])

    def _frame(self, frame: Node) -> None:
        """A box on the page: text, a table, a picture, an object."""
        for one in (frame, *descendants(frame, "image")):
            if local(one) == "image":
                self.pictures += 1
                place = resolve("content.xml", attribute(one, "href") or "")
                add_member(self._file, self._package, place, self.builder.span, at=len(self.builder.elements))
        objects = list(descendants(frame, "object"))
        for node in objects:
            self._object(attribute(node, "href") or "")
        if not objects:
            self.blocks(frame)

    def _object(self, name: str) -> None:
        """A chart or a small sheet: the table in it."""
        data = self._package.get(resolve("content.xml", f"{name}/content.xml")) if name else None
        if data is None:
            return
        tree = parse_xml(data, f"The OpenDocument file's object {name}")
        for chart in descendants(tree, "chart"):
            title = child(chart, "title")
            self.builder.text(self._plain(title) if title is not None else "")
        for table in descendants(tree, "table"):
            self.builder.table([[self._plain(cell) for cell in _cells(row)] for row in _rows(table)])

    def _hang(self) -> None:
        """Notes, comments and boxes that were met in the text before."""
        hanging, self._hanging = self._hanging, []
        for mark, node in hanging:
            if mark:
                self.builder.text(f"{mark}: {self._plain(node)}")
            else:
                self._frame(node)

    def _plain(self, node: Node | None) -> str:
        """The paragraphs below a node, one a line."""
        return "\n".join(text for one in _paragraphs(node) if (text := self._text(one)))

    def _text(self, paragraph: Node) -> str:
        parts: list[str] = []
        self._gather(paragraph, parts)
        return "".join(parts).strip()

    def _gather(self, node: Node, parts: list[str]) -> None:
        parts.append(node.text or "")
        for one in children(node):
            name = local(one)
            if name in _BREAKS:
                parts.append(_BREAKS[name])
            elif name == "s":
                count = attribute(one, "c") or "1"
                parts.append(" " * (min(int(count), 100) if count.isascii() and count.isdigit() else 1))
            elif name == "note":
                citation = child(one, "note-citation")
                mark = f"[^{'' if citation is None else ''.join(citation.itertext())[:20]}]"
                parts.append(mark)
                self._hanging.append((mark, one))
            elif name == "annotation":
                author = "".join(text for node in children(one, "creator") for text in node.itertext())
                self._hanging.append((f"Comment by {author}" if author else "Comment", one))
            elif name == "frame" or name.startswith("custom-shape"):
                self._hanging.append(("", one))
            elif name not in _LEFT_OUT:
                self._gather(one, parts)
            parts.append(one.tail or "")


def _paragraphs(node: Node | None) -> Iterator[Node]:
    for one in children(node):
        if local(one) in ("p", "h"):
            yield one
        elif local(one) not in _LEFT_OUT:
            yield from _paragraphs(one)


def _rows(table: Node) -> Iterator[Node]:
    for one in children(table):
        if local(one) == "table-row":
            yield one
        elif local(one) in ("table-header-rows", "table-rows", "table-row-group"):
            yield from _rows(one)


def _cells(row: Node) -> Iterator[Node | None]:
    """The cells of a row; None for those that another one covers."""
    for cell in children(row, "table-cell", "covered-table-cell"):
        repeated = attribute(cell, "number-columns-repeated") or "1"
        count = min(int(repeated), _MOST_REPEATED) if repeated.isascii() and repeated.isdigit() else 1
        for _ in range(count):
            yield cell if local(cell) == "table-cell" else None
