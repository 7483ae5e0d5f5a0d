"""Pictures in office documents: in their text, on slides, and on sheets, where each is held by a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.ooxml import Office, Relation, relation_id
from ingest_worker.parse.package import Package
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants
from shared.documents import Span


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
