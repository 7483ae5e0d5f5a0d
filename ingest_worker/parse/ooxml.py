"""The parts of an Office package (ECMA-376 part 2) and how they refer to each other, in its Transitional and Strict dialects."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from ingest_worker.parse.package import Package, resolve
from ingest_worker.parse.xmltree import Node, children, parse_xml


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A reference of one part to another: the last word of its type (`footnotes`) and the name of the other part."""

    kind: str
    target: str


class Office:
    """An Office document. Both dialects are met by local names; what lies outside of the package is never fetched."""

    def __init__(self, data: bytes, what: str) -> None:
        """Open the package; `what` names the format for messages.

        Raises:
            Unreadable: it is damaged or too large.
        """
        self.package = Package(data, what)
        self._what = what

    def main_part(self) -> str:
        """The name of the part that everything begins with."""
        found = next((relation.target for relation in self.relations("").values() if relation.kind == "officeDocument"), None)
        if found is not None and found in self.package:
            return found
        guess = next(
            (name for name in ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml") if name in self.package), ""
        )
        return guess or found or "_rels/.rels"

    def tree(self, name: str) -> Node:
        """The root of a part.

        Raises:
            Unreadable: it is missing or damaged.
        """
        return parse_xml(self.package.read(name), f"The {self._what}'s part {name}")

    def relations(self, part: str) -> dict[str, Relation]:
        """What a part refers to inside of the package, by the reference's id."""
        folder, name = posixpath.split(part)
        relations = f"{folder}/_rels/{name}.rels" if folder else f"_rels/{name}.rels"
        if relations not in self.package:
            return {}
        found = {}
        for node in children(self.tree(relations), "Relationship"):
            if node.get("TargetMode") != "External":
                kind = (node.get("Type") or "").rpartition("/")[2]
                target = resolve(part, node.get("Target") or "")
                found[node.get("Id") or ""] = Relation(kind=kind, target=target)
        return found

    def related(self, part: str, kind: str) -> list[str]:
        """The parts of one kind that a part refers to and that are there, in order of the ids."""
        return [r.target for r in self.relations(part).values() if r.kind == kind and r.target in self.package]

    def title(self) -> str | None:
        """The title among the document's properties."""
        for name in self.related("", "core-properties"):
            for node in children(self.tree(name), "title"):
                return " ".join("".join(node.itertext()).split())[:300] or None
        return None


def relation_id(node: Node, name: str = "id") -> str:
    """The id of the reference that an element holds (`r:id`), which may stand beside an `id` of its own; empty when none."""
    return next((value for key, value in node.items() if key.endswith(f"}}{name}")), "")
