"""PowerPoint presentations to elements, slide by slide in the order in which they are shown: titles, text, tables, charts,
diagrams, speaker's notes and comments.

Not python-pptx: it does not see diagrams (SmartArt), which keep their text in parts of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.drawing import body_text, chart_parts, diagram_text, paragraph_text
from ingest_worker.parse.embedded import read_embedded
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.inside import Inside
from ingest_worker.parse.office_pictures import add_blips
from ingest_worker.parse.ooxml import Office, Relation, relation_id
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, local
from shared.documents import ElementKind, ParsedDocument, Span

_TITLES: Final = frozenset(("title", "ctrTitle"))
# What every slide repeats from its master.
_FURNITURE: Final = frozenset(("dt", "ftr", "sldNum", "hdr"))


def parse(file: File) -> ParsedDocument:
    """The presentation's text. A slide counts as a page; one that holds nothing but pictures is a page without text.

    Raises:
        Unreadable: it is damaged or too large.
    """
    office = Office(file.data, "PowerPoint presentation")
    main = office.main_part()
    relations = office.relations(main)
    builder = Builder()
    inside = Inside()
    warnings: list[str] = []
    unread: list[str] = []
    slides = pictures_only = 0
    for number, slide in enumerate(children(child(office.tree(main), "sldIdLst"), "sldId"), start=1):
        file.on_page(number)
        relation = relations.get(relation_id(slide))
        if relation is None or relation.target not in office.package:
            unread.append(f"Slide {number} is named, but is not in the file.")
            continue
        slides += 1
        builder.span = Span(slide=number)
        before = len(builder.elements)
        try:
            reader = _Slide(file, office, relation.target, builder, inside)
            reader.read()
        except Unreadable as error:
            unread.append(f"Slide {number} could not be read: {error}")
            continue
        if reader.is_hidden:
            warnings.append(f"Slide {number} is hidden.")
        if len(builder.elements) == before and reader.has_pictures:
            pictures_only += 1
    elements = (*builder.elements, *inside.elements)
    if unread and not elements:
        raise Unreadable(unread[0], code="damaged")
    first = next((element.text for element in elements if element.kind is ElementKind.HEADING), None)
    return ParsedDocument(
        elements=elements,
        media_type=file.media_type,
        title=office.title() or first,
        page_count=slides,
        pages_with_text=slides - pictures_only,
        warnings=(*warnings, *inside.notes),
        unread=(*unread, *inside.unread),
    )


class _Slide:
    def __init__(self, file: File, office: Office, part: str, builder: Builder, inside: Inside) -> None:
        self._file = file
        self._office = office
        self._part = part
        self._tree = office.tree(part)
        self._relations = office.relations(part)
        self._builder = builder
        self._inside = inside
        self._objects: set[str] = set()
        self.has_pictures = False

    @property
    def is_hidden(self) -> bool:
        """Whether the slide is left out of the show."""
        return attribute(self._tree, "show") in ("0", "false")

    def read(self) -> None:
        """The title first, wherever it stands; then the shapes in their order; then notes and comments."""
        shapes = list(_shapes(child(self._tree, "cSld", "spTree")))
        titles = [shape for shape in shapes if _placeholder(shape) in _TITLES]
        for title in titles[:1]:
            self._builder.heading(body_text(child(title, "txBody")).replace("\n", " "), 1)
        for shape in shapes:
            if shape not in titles[:1] and _placeholder(shape) not in _FURNITURE:
                self._shape(shape)
        for kind in ("notesSlide", "comments"):
            for part in self._office.related(self._part, kind):
                self._beside(kind, self._office.tree(part))

    def _shape(self, shape: Node) -> None:
        name = local(shape)
        self.has_pictures = self.has_pictures or name == "pic" or child(shape, "spPr", "blipFill") is not None
        add_blips(self._file, self._office, self._relations, shape, self._builder)
        if name == "sp":
            self._builder.text(body_text(child(shape, "txBody")))
        elif name == "graphicFrame":
            for table in descendants(shape, "tbl"):
                self._builder.table([[_cell(cell) for cell in children(row, "tc")] for row in children(table, "tr")])
            for node in descendants(shape, "chart", "relIds", "oleObj"):
                self._object(self._relations.get(relation_id(node, "dm") or relation_id(node)))

    def _object(self, relation: Relation | None) -> None:
        if relation is None or relation.target not in self._office.package or relation.target in self._objects:
            return
        # An object stands twice where old programs get a form of their own.
        self._objects.add(relation.target)
        if relation.kind == "chart":
            title, table = chart_parts(self._office, relation.target)
            self._builder.text(title)
            self._builder.table(table)
        elif relation.kind == "diagramData":
            self._builder.text(diagram_text(self._office, relation.target))
        else:
            read_embedded(self._file, self._office, relation, self._inside)

    def _beside(self, kind: str, tree: Node) -> None:
        if kind == "notesSlide":
            for shape in _shapes(child(tree, "cSld", "spTree")):
                text = body_text(child(shape, "txBody")) if _placeholder(shape) == "body" else ""
                if text:
                    self._builder.text(f"Notes: {text}")
        else:
            for comment in descendants(tree, "cm"):
                body = child(comment, "txBody")
                text = body_text(body) if body is not None else "".join(node.text or "" for node in children(comment, "text"))
                if text.strip():
                    self._builder.text(f"Comment: {text}")


def _shapes(tree: Node | None) -> Iterator[Node]:
    """The shapes of a slide, those in groups too."""
    for shape in children(tree):
        name = local(shape)
        if name == "grpSp":
            yield from _shapes(shape)
        elif name == "AlternateContent":
            yield from _shapes(child(shape, "Choice") if child(shape, "Choice") is not None else child(shape, "Fallback"))
        elif name in ("sp", "graphicFrame", "pic"):
            yield shape


def _placeholder(shape: Node) -> str | None:
    """The kind of placeholder that a shape fills; None for one that stands by itself."""
    place = child(shape, "nvSpPr", "nvPr", "ph")
    return None if place is None else place.get("type") or "body"


def _cell(cell: Node) -> str:
    if attribute(cell, "hMerge") == "1" or attribute(cell, "vMerge") == "1":
        return ""
    return "\n".join(paragraph_text(paragraph) for paragraph in children(child(cell, "txBody"), "p"))
