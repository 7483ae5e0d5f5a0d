"""What the syntax tree of a source file says about its lines: where units begin, how strongly, and which symbol holds a line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, cast

from tree_sitter import Node, Parser
from tree_sitter_language_pack import get_parser

from ingest_worker.chunk.borders import CUT_ONLY
from ingest_worker.chunk.symbols import definition_name, is_container, is_definition

DEFINITION: Final = 1
"""Rank of the boundary before a definition at the outermost level; one inside a class, module or impl is one weaker."""
FIRM: Final = 5
"""Ranks below this are definitions and the lines after them."""
STATEMENT: Final = 10
_DEEPEST: Final = 40
_WRAPPER: Final = re.compile(
    r"decorated_definition|export_statement|template_declaration|type_declaration|(lexical|variable)_declaration"
    r"|expression_statement|type_system_definition|type_definition|definition|statement|document"
)
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Larger files are packed by lines: no file of that size is written by hand."""
_ATTACHED: Final = re.compile(r"comment|attribute|annotation|decorator|pragma|^signature$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A named unit: lines `start` to `end`, both 0-based and inclusive, with the comments that belong to it."""

    path: str
    start: int
    end: int


@dataclass(slots=True)
class Outline:
    """The ranks of the boundaries before lines that begin something, and the definitions in order of their start."""

    ranks: dict[int, int] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)

    def mark(self, line: int, rank: int) -> None:
        """A boundary before `line`; the strongest wins."""
        self.ranks[line] = min(rank, self.ranks.get(line, CUT_ONLY))


@dataclass(frozen=True, slots=True)
class _Context:
    """What holds while the children of a node are visited."""

    path: str = ""
    depth: int = 0
    nesting: int = 0
    inside_function: bool = False
    first: int | None = None
    """First line of the wrapper (decorators, `export`, `template`, a type's declaration) around a definition."""
    started: int = -1
    """First line of the innermost definition: some grammars say the same twice (a module and its binding)."""


def outline(text: str, language: str | None) -> Outline | None:
    """The outline of a file, or None when there is no grammar for it or the file is too large for one.

    Broken syntax gives an outline of what could be read. The walk is a loop, so no nesting can exhaust the stack.
    """
    parser = _parser(language) if language else None
    source = text.encode("utf-8", "replace")
    if parser is None or len(source) > _MOST_BYTES:
        return None
    found = Outline()
    lines = source.split(b"\n")
    tree = parser.parse(source)
    stack = [(tree.root_node, _Context())]
    while stack:
        node, context = stack.pop()
        stack += _visit(node, context, found, lines, language or "")
    found.definitions.sort(key=lambda definition: (definition.start, -definition.end))
    return found


@lru_cache(maxsize=64)
def _parser(language: str) -> Parser | None:
    try:
        return get_parser(cast("Any", language))
    except LookupError:
        return None


def _visit(node: Node, context: _Context, found: Outline, lines: list[bytes], language: str) -> list[tuple[Node, _Context]]:
    """Mark the boundaries before the children of a node; return those that have lines of their own inside."""
    deeper: list[tuple[Node, _Context]] = []
    attached: int | None = None
    attached_end = -2
    for child in node.children:
        start, end = child.start_point.row, child.end_point.row
        if child.end_point.column == 0 and end > start:
            end -= 1
        own_line = not lines[start][: child.start_point.column].strip()
        if own_line and _is_attached(child, language):
            # A comment belongs to what follows it directly.
            if attached_end + 1 < start:
                attached = start
                _mark_statement(found, start, context, lines)
            attached_end = end
            continue
        first = attached if attached is not None and attached_end + 1 >= start else start
        if context.first is not None:
            first = min(first, context.first)
        wrapper = first if _WRAPPER.fullmatch(child.type) else None
        inner = replace(context, depth=context.depth + 1, first=wrapper)
        name = definition_name(child, language) if is_definition(child, language) else None
        if name is not None:
            inner = _define(child, name, first, end, context, found, own_line=own_line)
        elif own_line and child.is_named and first == start:
            _mark_statement(found, start, context, lines)
        if child.child_count and (end > start or wrapper is not None):
            deeper.append((child, inner))
        attached = None
    return deeper


def _is_attached(node: Node, language: str) -> bool:
    if language == "elixir" and node.type == "unary_operator":
        return node.child_count > 0 and node.children[0].type == "@"
    return node.is_named and bool(_ATTACHED.search(node.type)) and not is_definition(node, language)


def _define(node: Node, name: str, first: int, end: int, context: _Context, found: Outline, *, own_line: bool) -> _Context:
    if context.path.rpartition(".")[2] == name and context.started == node.start_point.row:
        return replace(context, depth=context.depth + 1, first=None)
    path = f"{context.path}.{name}" if context.path else name
    found.definitions.append(Definition(path=path, start=first, end=end))
    if own_line or first != node.start_point.row:
        if context.inside_function:
            found.mark(first, STATEMENT + 2 * min(context.depth, _DEEPEST) - 1)
        else:
            rank = min(DEFINITION + context.nesting, FIRM - 1)
            found.mark(first, rank)
            found.mark(end + 1, rank)
    return _Context(
        path=path,
        depth=context.depth + 1,
        nesting=context.nesting + 1,
        inside_function=context.inside_function or not is_container(node),
        started=node.start_point.row,
    )


def _mark_statement(found: Outline, line: int, context: _Context, lines: list[bytes]) -> None:
    after_blank = line > 0 and not lines[line - 1].strip()
    found.mark(line, STATEMENT + 2 * min(context.depth, _DEEPEST) - (1 if after_blank else 0))
