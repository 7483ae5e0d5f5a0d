"""XML of documents to trees that fetch nothing, expand nothing, and are met by local names, whatever the dialect's namespaces."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree
from lxml.etree import _Element as Node

from ingest_worker.parse.errors import Unreadable

__all__ = ["Node", "attribute", "child", "children", "descendants", "local", "parse_xml"]


def parse_xml(data: bytes, what: str) -> Node:
    """The root of a document. Entities are not expanded, no DTD is loaded, nothing is fetched; `what` names it in messages.

    libxml2 refuses what is nested more than 256 deep.

    Raises:
        Unreadable: `damaged` when it is not well-formed, `too_deep` when its elements are nested without end.
    """
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        if "depth" in str(error).lower():
            raise Unreadable(f"{what} is nested too deeply to be read.", code="too_deep") from error
        raise Unreadable(f"{what} is damaged: {error}. Save it anew.", code="damaged") from error
    return root


def local(node: Node) -> str:
    """The name without its namespace; empty for what is no element (an entity that was not expanded)."""
    tag = node.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def children(node: Node | None, *names: str) -> Iterator[Node]:
    """The child elements of these local names, all without names."""
    if node is not None:
        for one in node:
            if isinstance(one.tag, str) and (not names or local(one) in names):
                yield one


def child(node: Node | None, *path: str) -> Node | None:
    """The first child of this name, or its first child of the next name, and so on; None when one is missing."""
    for name in path:
        node = next(children(node, name), None)
    return node


def descendants(node: Node | None, *names: str) -> Iterator[Node]:
    """All elements below and with the node of these local names, in order."""
    if node is not None:
        yield from node.iter(*(f"{{*}}{name}" for name in names))


def attribute(node: Node | None, *names: str) -> str | None:
    """The value of the first attribute of one of these local names, in whatever namespace."""
    if node is None:
        return None
    for name in names:
        if name in node.attrib:
            return str(node.attrib[name])
    return next((str(value) for key, value in node.items() if key.rpartition("}")[2] in names), None)
