"""Macros that are blocks: code, panels, expands, excerpts; of one that nobody knows the body is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lxml.etree import _Element as Node

from ingest_worker.sources.confluence.storage_text import collapse, fenced, tidy
from ingest_worker.sources.confluence.storage_tree import attribute, children, first_text, local, parameters, whole_text

if TYPE_CHECKING:
    from ingest_worker.sources.confluence.storage_blocks import Writer

_PANELS: Final = {
    "info": "Info",
    "note": "Note",
    "tip": "Tip",
    "warning": "Warning",
    "success": "Success",
    "error": "Error",
    "panel": "",
}
_TITLES: Final = ("title", "expand-title", "caption")
_SHOWS_TITLE: Final = frozenset(
    ("panel", "expand", "ui-expand", "code", "noformat", "section", "column", "details", "ui-tab", *_PANELS)
)
_DRAWINGS: Final = {"gliffy": "name", "drawio": "diagramName", "inc-drawio": "diagramName", "drawio-sketch": "diagramName"}
_INCLUDES: Final = {
    "include": "Includes the page",
    "excerpt-include": "Includes an excerpt of the page",
    "inherit-excerpt": "Includes an excerpt of the page",
}
_PLAIN: Final = frozenset(
    ("code", "noformat", "preformatted", "codeblock", "html", "sql", "plantuml", "mermaid", "mermaid-macro")
)


def macro(node: Node, writer: Writer) -> list[str]:
    """The blocks of a macro."""
    name = attribute(node, "name")
    told = parameters(node)
    title = collapse(first_text(told, *_TITLES))
    blocks = _body(node, name, writer)
    if name in _PANELS:
        label = _PANELS[name]
        if title:
            return [f"**{f'{label}: ' if label else ''}{title}**", *blocks]
        return writer.labelled(label, blocks) if blocks else []
    if name in _INCLUDES:
        shown = _named(told, writer)
        return [tidy(f"({_INCLUDES[name]} “{shown}”)"), *blocks] if shown else blocks
    if name in _DRAWINGS:
        drawing = collapse(whole_text(told.get(_DRAWINGS[name])))
        return [*([tidy(f"(Drawing: {drawing})")] if drawing else []), *blocks]
    has_body = any(local(one) in {"rich-text-body", "plain-text-body"} for one in children(node))
    if title and (has_body or blocks or name in _SHOWS_TITLE):
        return [f"**{title}**", *blocks]
    if not blocks:
        shown = _named(told, writer)
        return [tidy(shown)] if shown else []
    return blocks


def _body(node: Node, name: str, writer: Writer) -> list[str]:
    """The bodies of a macro, in their order; it has one, but nobody checks that."""
    found: list[str] = []
    for one in children(node):
        if local(one) == "plain-text-body":
            text = whole_text(one)
            if not text.strip():
                continue
            if name == "markdown":
                found.append(text.replace("\r\n", "\n").strip("\n"))
            elif name in _PLAIN or "\n" in text.strip():
                language = collapse(first_text(parameters(node), "language", "lang"))
                found.append(fenced(text, language or (name if name in {"html", "sql", "plantuml", "mermaid"} else "")))
            else:
                found.append(tidy(text))
        elif local(one) == "rich-text-body":
            found.extend(writer.blocks(one))
        elif local(one) != "parameter":
            found.extend(writer.block(one))
    stray = [text for one in (node.text, *(one.tail for one in node)) if (text := collapse(one or ""))]
    return [*found, *(tidy(text) for text in stray)]


def _named(told: dict[str, Node], writer: Writer) -> str:
    """What a macro's parameters name: pages, files, people, addresses."""
    found = [
        writer.inline.element(one)
        for key, parameter in told.items()
        if key != "atlassian-macro-output-type"
        for one in children(parameter)
        if local(one) in {"link", "page", "blog-post", "attachment", "url", "user", "content-entity", "shortcut"}
    ]
    return collapse(", ".join(text for text in found if text))


def label_of_node(node: Node) -> str:
    """The word for a panel of Cloud's editor."""
    if attribute(node, "type") != "panel":
        return ""
    for one in children(node):
        if local(one) == "adf-attribute" and attribute(one, "key") in {"panel-type", "panelType"}:
            return _PANELS.get((one.text or "").strip(), "")
    return ""
