"""Pictures in office documents: in their text, on slides, and on sheets, where each is held by a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.ooxml import Office, Relation, relation_id
from ingest_worker.parse.package import Package, resolve
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, parse_xml
from shared.documents import Span
from shared.text import clean_text

_LARGEST_CONTENT: Final = 64 * 1024**2
"""Bytes of XML that are taken apart for the pictures in it."""


def add_member(file: File, package: Package, name: str, span: Span, *, at: int) -> None:
    """Collect the picture that is a member of a package; one that is missing or damaged costs itself."""
    if file.pictures is None or name not in package or not file.pictures.wants_more:
        return
    try:
        data = package.read(name)
    except Unreadable:
        return
    file.pictures.add_file(data, span, at=at)


def add_blips(
    file: File, office: Office, relations: Mapping[str, Relation], node: Node, builder: Builder, span: Span | None = None
) -> None:
    """Collect the pictures below a node of a part with these relations; linked ones are not in the file."""
    if file.pictures is None:
        return
    for blip in descendants(node, "blip"):
        relation = relations.get(attribute(blip, "embed") or relation_id(blip))
        if relation is not None:
            add_member(file, office.package, relation.target, span or builder.span, at=len(builder.elements))


def add_drawing(file: File, office: Office, part: str, builder: Builder) -> None:
    """Collect the pictures of a sheet's drawing, each with its row; a drawing that is damaged has none."""
    if file.pictures is None:
        return
    try:
        tree, relations = office.tree(part), office.relations(part)
        for anchor in children(tree, "twoCellAnchor", "oneCellAnchor", "absoluteAnchor"):
            row = child(anchor, "from", "row")
            text = (row.text or "").strip() if row is not None else ""
            number = int(text) + 1 if text.isascii() and text.isdigit() and len(text) < 8 else None
            add_blips(file, office, relations, anchor, builder, replace(builder.span, row_start=number, row_end=number))
    except Unreadable:
        return


def add_sheet_images(file: File) -> None:
    """Collect the pictures of OpenDocument sheets, each with its sheet; the library that reads the cells sees none."""
    if file.pictures is None or not file.data.startswith(b"PK"):
        return
    with file.pictures.at_own_risk():
        package = Package(file.data, "OpenDocument workbook")
        if not any(name.startswith("Pictures/") for name in package.names):
            return
        content = package.read("content.xml")
        if len(content) > _LARGEST_CONTENT:
            return
        for table in descendants(parse_xml(content, "The workbook's content"), "table"):
            span = Span(sheet=clean_text(attribute(table, "name") or "") or None)
            for image in descendants(table, "image"):
                add_member(file, package, resolve("content.xml", attribute(image, "href") or ""), span, at=0)
