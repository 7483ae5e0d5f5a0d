"""The walk through a page: inline text is gathered until a block begins or ends."""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import unquote

from lxml import etree

from ingest_worker.parse.building import Builder
from ingest_worker.parse.html_table import Table, is_layout
from ingest_worker.parse.pictures import Pictures
from ingest_worker.parse.xmltree import Node

_SPACE: Final = re.compile(r"\s+")
_BREAK: Final = "\x01"
_BREAKS: Final = re.compile(rf" ?{_BREAK} ?")
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
# fmt: off
_SKIPPED: Final = frozenset((
    "head", "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "canvas", "audio", "video", "select",
    "datalist", "input",
))
_BLOCKS: Final = frozenset((
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "nav",
    "ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", *_HEADINGS,
))
# fmt: on
_LISTS: Final = frozenset(("ul", "ol", "menu", "dl"))
_HIDDEN: Final = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_LANGUAGE: Final = re.compile(r"(?:^|\s)(?:language|lang|highlight-source|highlight|brush:)[-\s]?([\w+#-]+)", re.IGNORECASE)
_ANCHOR: Final = re.compile(r"\s*[¶#🔗]\s*$")


class Blocks:
    """Walks a page and adds its blocks to a builder. `everything`: what stands in navigation too. `pictures` collects those that
    the page holds itself.
    """

    def __init__(self, builder: Builder, *, everything: bool = False, pictures: Pictures | None = None) -> None:
        self._builder = builder
        self._pictures = pictures
        self._everything = everything
        self._inline: list[str] = []
        self._list: list[str] = []  # the lines of the outermost list
        self._open_lists: list[tuple[str, int]] = []  # kind and number of the last item
        self._marker = ""
        self._pre: Node | None = None
        self._table: Table | None = None

    def walk(self, root: Node) -> None:
        """Add all that is below `root`."""
        context = etree.iterwalk(root, events=("start", "end"))
        for event, node in context:
            name = node.tag if isinstance(node.tag, str) else ""
            if event == "start":
                if self._is_left_out(node, name):
                    context.skip_subtree()
                    continue
                self._start(node, name)
                if node.text:
                    self._inline.append(node.text)
            else:
                if not self._is_left_out(node, name):
                    self._end(node, name)
                if node.tail and node is not root:
                    self._inline.append(node.tail)
        self._flush()
        self._end_list()

    def _is_left_out(self, node: Node, name: str) -> bool:
        if not name or name in _SKIPPED or (name == "nav" and not self._everything):
            return True
        if name in ("html", "body"):
            return False
        return node.get("hidden") is not None or bool(_HIDDEN.search(node.get("style") or ""))

    def _start(self, node: Node, name: str) -> None:
        if name == "br":
            self._inline.append(_BREAK)
        elif name == "img":
            self._inline.append(f" {node.get('alt') or ''} ")
            if self._pictures is not None and self._pictures.wants_more:
                self._pictures.add_file(_own_data(node), self._builder.span, at=len(self._builder.elements))
        elif name in _BLOCKS and self._pre is None:
            self._flush()
            if name in _LISTS:
                self._open_lists.append((name, _number(node.get("start")) - 1))
            elif name == "li" and self._table is None:
                self._begin_item()
            elif name == "pre" and self._table is None:
                self._end_list()
                self._pre = node
            elif name == "table" and self._table is None and not is_layout(node):
                self._end_list()
                self._table = Table(node)
            elif self._table is not None:
                self._table.start(node, name)

    def _end(self, node: Node, name: str) -> None:
        if self._pre is not None:
            if node is self._pre:
                self._end_code(node)
        elif name in _BLOCKS:
            if name in _HEADINGS and self._table is None:
                self._end_list()
                self._builder.heading(_ANCHOR.sub("", self._take()), _HEADINGS[name])
            self._flush()
            if name in _LISTS and self._open_lists:
                self._open_lists.pop()
                if not self._open_lists:
                    self._end_list()
            elif self._table is not None:
                self._table.end(name)
                if node is self._table.node:
                    self._builder.text("\n".join(self._table.caption))
                    self._builder.table(self._table.rows)
                    self._table = None

    def _begin_item(self) -> None:
        kind, number = self._open_lists[-1] if self._open_lists else ("ul", 0)
        indent = "  " * max(0, len(self._open_lists) - 1)
        if kind == "ol":
            self._open_lists[-1] = (kind, number + 1)
            self._marker = f"{indent}{number + 1}. "
        else:
            self._marker = f"{indent}- "

    def _take(self) -> str:
        text = _SPACE.sub(" ", "".join(self._inline)).strip()
        self._inline.clear()
        return _BREAKS.sub("\n", text).strip("\n")

    def _flush(self) -> None:
        if not self._inline:
            return
        text = self._take()
        if not text:
            return
        if self._table is not None:
            self._table.text(text)
        elif self._open_lists or self._marker:
            indent = " " * len(self._marker) if self._marker else "  " * len(self._open_lists)
            self._list.append((self._marker or indent) + text.replace("\n", f"\n{indent}"))
            self._marker = ""
            if not self._open_lists:
                self._end_list()
        else:
            self._builder.text(text)

    def _end_list(self) -> None:
        if self._list:
            self._builder.text("\n".join(self._list))
            self._list.clear()
        self._marker = ""

    def _end_code(self, node: Node) -> None:
        text = "".join(self._inline).replace(_BREAK, "\n").expandtabs(4)
        self._inline.clear()
        self._pre = None
        self._builder.code(text, _language(node))


def _language(node: Node) -> str | None:
    """The language that the class of a block of code, or of what is in or around it, names."""
    parent = node.getparent()
    for one in (node, next(node.iter("code"), None), parent):
        match = _LANGUAGE.search(one.get("class") or "") if one is not None else None
        if match:
            return match[1].lower()
    return None


def _own_data(image: Node) -> bytes:
    """The bytes of a picture that stands in the page itself (RFC 2397); empty for one elsewhere, which is never fetched."""
    head, comma, data = (image.get("src") or "").partition(",")
    if not comma or not head.lower().startswith("data:image/") or not head.lower().endswith(";base64"):
        return b""
    try:
        return base64.b64decode(unquote(data))
    except ValueError:
        return b""


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else 1
