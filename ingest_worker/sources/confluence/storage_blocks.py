"""Elements of storage format that stand for themselves: headings, paragraphs, lists, layouts; macros and tables next door."""

from __future__ import annotations

from typing import Final

from lxml.etree import _Element as Node

from ingest_worker.sources.confluence import storage_macros, storage_table
from ingest_worker.sources.confluence.storage_inline import INLINE, Inline, is_inline_macro
from ingest_worker.sources.confluence.storage_text import People, around, collapse, fenced, indented, tidy
from ingest_worker.sources.confluence.storage_tree import child, children, local

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_SILENT: Final = frozenset(
    (
        "parameter",
        "task-id",
        "task-uuid",
        "adf-attribute",
        "adf-parameter",
        "default-parameter",
        "script",
        "style",
        "colgroup",
        "col",
    )
)
"""Elements whose text no reader sees."""


class Writer:
    """Writes one page. Blocks are texts without an empty line at either end; they are put together with one between them."""

    def __init__(self, people: People) -> None:
        self.inline = Inline(people, self)
        self._in_list = 0

    def document(self, root: Node) -> str:
        """The whole page."""
        return "\n\n".join(self.blocks(root))

    def blocks(self, node: Node) -> list[str]:
        """The blocks of what stands in an element: runs of inline text are paragraphs."""
        found: list[str] = []
        run: list[str] = [self.inline.text(node.text)]

        def end_run() -> None:
            text = tidy("".join(run))
            run.clear()
            if text:
                found.append(text)

        for one in node:
            if self._is_inline(one):
                run.append(self.inline.element(one))
            else:
                end_run()
                found.extend(self.block(one))
            run.append(self.inline.text(one.tail))
        end_run()
        return found

    def _is_inline(self, node: Node) -> bool:
        name = local(node)
        if name == "structured-macro" or name == "macro":
            return is_inline_macro(node)
        if name in {"span", "link", "inline-comment-marker", "placeholder", "a"}:
            return not any(local(one) in _BLOCKS for one in node.iterdescendants())
        return name in INLINE

    def block(self, node: Node) -> list[str]:
        """The blocks of one element."""
        name = local(node)
        if name in _SILENT:
            return []
        if name in _HEADINGS:
            return self._heading(node, _HEADINGS[name])
        match name:
            case "ul" | "ol":
                return self._list(node, ordered=name == "ol")
            case "task-list":
                return self._tasks(node)
            case "table":
                return storage_table.table(node, self)
            case "blockquote":
                inner = "\n\n".join(self.blocks(node))
                return ["\n".join(f"> {line}".rstrip() for line in inner.split("\n"))] if inner else []
            case "pre":
                code = self.inline.verbatim(node)
                return [fenced(code)] if code.strip() else []
            case "hr":
                return ["---"] if not self._in_list else []
            case "structured-macro" | "macro":
                return storage_macros.macro(node, self)
            case "adf-extension":
                return self._extension(node)
            case "adf-node":
                return self.labelled(storage_macros.label_of_node(node), self.blocks(node))
            case "dl":
                return self.blocks(node)
            case "dt":
                return [around("**", text) for text in self.blocks(node)]
        return self.blocks(node)

    def _heading(self, node: Node, level: int) -> list[str]:
        text = collapse(self.inline.children(node))
        if not text:
            return []
        if self._in_list:  # a heading within a list or a cell would end it
            return [around("**", text)]
        if text.endswith("#"):
            text = (
                text[: len(text.rstrip("#"))] + "\\" + text[len(text.rstrip("#")) :] if text.rstrip("#").endswith(" ") else text
            )
        return ["#" * min(6, level + 1) + " " + text]

    def nested(self, node: Node) -> list[str]:
        """Blocks of a list's item or a table's cell."""
        self._in_list += 1
        try:
            return self.blocks(node)
        finally:
            self._in_list -= 1

    def _list(self, node: Node, *, ordered: bool) -> list[str]:
        start = node.get("start") or "1"
        number = int(start) if start.isascii() and start.isdigit() and len(start) < 9 else 1
        lines = []
        for one in children(node):
            mark = f"{number}. " if ordered else "- "
            item = self._item(self.block(one) if local(one) in {"ul", "ol"} else self.nested(one), mark)
            if item:
                lines.append(item)
                number += 1
        lines.extend(f"- {text}" for text in _between(node))
        return ["\n".join(lines)] if lines else []

    def _tasks(self, node: Node) -> list[str]:
        lines = []
        for task in children(node):
            if local(task) != "task":
                lines.extend(self.blocks(task))
                continue
            status = child(task, "task-status")
            done = status is not None and (status.text or "").strip() == "complete"
            body = child(task, "task-body")
            item = self._item(self.nested(body) if body is not None else [], "- [x] " if done else "- [ ] ", width=2)
            if item:
                lines.append(item)
            lines.extend(f"- {text}" for text in _between(task))
        lines.extend(f"- {text}" for text in _between(node))
        return ["\n".join(lines)] if lines else []

    @staticmethod
    def _item(blocks: list[str], mark: str, *, width: int | None = None) -> str:
        if not blocks:
            return ""
        width = len(mark) if width is None else width
        text = blocks[0]
        for block in blocks[1:]:
            text += ("\n" if block.lstrip().startswith(("- ", "1. ")) else "\n\n") + block
        return mark + indented(text, width)

    def _extension(self, node: Node) -> list[str]:
        """What Cloud's editor writes for what storage format has no word for; the fallback says it again for old readers."""
        written = [block for one in children(node) if local(one) == "adf-node" for block in self.block(one)]
        if written:
            return written
        return [block for one in children(node) if local(one) != "adf-node" for block in self.block(one)]

    def labelled(self, label: str, blocks: list[str]) -> list[str]:
        """Blocks under a label: it leads the first paragraph, or stands alone before what is none."""
        if not label:
            return blocks
        if blocks and not blocks[0].startswith(("#", "-", "`", "|", ">", "*", "~", "1.")) and "\n" not in blocks[0]:
            return [f"**{label}:** {blocks[0]}", *blocks[1:]]
        return [f"**{label}:**", *blocks]


_BLOCKS: Final = frozenset(
    (
        *_HEADINGS,
        "p",
        "ul",
        "ol",
        "table",
        "pre",
        "blockquote",
        "div",
        "task-list",
        "layout",
        "rich-text-body",
        "hr",
        "adf-extension",
    )
)


def _between(node: Node) -> list[str]:
    """Text between elements where none belongs."""
    return [text for one in (node.text, *(child.tail for child in node)) if (text := collapse(one or ""))]
