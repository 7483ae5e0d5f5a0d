"""Nodes of storage format by their local names: the prefixes are always the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lxml.etree import _Element as Node


def local(node: Node) -> str:
    """The name without its namespace, lower case; empty for what is no element."""
    tag = node.tag
    return tag.rpartition("}")[2].lower() if isinstance(tag, str) else ""


def attribute(node: Node | None, name: str) -> str:
    """The attribute of this local name; empty where there is none."""
    if node is None:
        return ""
    return next((str(value) for key, value in node.items() if str(key).rpartition("}")[2] == name), "")


def children(node: Node) -> Iterator[Node]:
    """The elements in it."""
    return (one for one in node if isinstance(one.tag, str))


def child(node: Node | None, *names: str) -> Node | None:
    """The first child of one of these names."""
    return None if node is None else next((one for one in children(node) if local(one) in names), None)


def parameters(macro: Node) -> dict[str, Node]:
    """A macro's parameters by name; the one without a name under an empty one."""
    return {attribute(one, "name"): one for one in children(macro) if local(one) == "parameter"}


def whole_text(node: Node | None) -> str:
    """All text in it, as it is."""
    return "" if node is None else "".join(str(text) for text in node.itertext())


def first_text(told: Mapping[str, Node], *names: str) -> str:
    """The text of the first of these parameters that is there."""
    return next((whole_text(told[name]) for name in names if name in told), "")
