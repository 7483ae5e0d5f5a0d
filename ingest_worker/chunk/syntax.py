"""What the syntax tree of a source file says about its lines: where units begin, how strongly, and which symbol holds a line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, cast

from tree_sitter import Node, Parser, Range
from tree_sitter_language_pack import get_language, get_parser

from ingest_worker.chunk.apart import SECONDS, outline_apart
from ingest_worker.chunk.grammars import BODIES, FLAT
from ingest_worker.chunk.outlines import Definition, Outline
from ingest_worker.chunk.symbols import Named, read_definition

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
MAY_HANG: Final = frozenset(("cobol", "perl"))
"""Grammars that were seen to run for ever (`make fuzz` looks for more): they run in a process of their own."""
_TAGGED: Final = frozenset(("astro", "html", "svelte", "vue", "xml"))
_MOST_TAGGED: Final = 32 * 1024
"""Characters: the scanners of these take time in the square of the depth, a second for so many, minutes for a megabyte."""
_WITH_SCRIPTS: Final = frozenset(("vue", "svelte", "astro", "html"))
_ATTACHED: Final = re.compile(r"comment|attribute|annotation|decorator|pragma|^signature$")


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


def outline(text: str, language: str | None, *, seconds: int = SECONDS) -> Outline | None:
    """The outline of a file, or None when there is no grammar for it, or none that comes to an end with it in time."""
    apart = language in MAY_HANG or (language in _TAGGED and len(text) > _MOST_TAGGED)
    if language is not None and apart and len(text) <= _MOST_BYTES:
        return outline_apart(text, language, seconds=seconds)
    return read_outline(text, language)


def read_outline(text: str, language: str | None) -> Outline | None:
    """The outline of a file, or None when there is no grammar for it or the file is too large for one.

    Broken syntax gives an outline of what could be read. The walk is a loop, so no nesting can exhaust the stack.
    """
    parser = _parser(language) if language else None
    source = text.encode("utf-8", "replace")
    if language is None or parser is None or len(source) > _MOST_BYTES:
        return None
    found = Outline()
    lines = source.split(b"\n")
    root = parser.parse(source).root_node
    _walk(root, found, lines, language)
    if language in _WITH_SCRIPTS:
        for script in _scripts(root):
            _walk(_script_parser(script).parse(source).root_node, found, lines, "tsx")
    found.definitions.sort(key=lambda definition: (definition.start, -definition.end))
    return found


@lru_cache(maxsize=64)
def _parser(language: str) -> Parser | None:
    try:
        return get_parser(cast("Any", language))
    except LookupError:
        return None


def _scripts(root: Node) -> list[Node]:
    """The scripts in a page or component, in whichever language they are written: JavaScript or TypeScript."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "script_element":
            found += [child for child in node.named_children if child.type == "raw_text"]
        elif node.type in ("frontmatter", "frontmatter_js_block"):
            found.append(node)
        else:
            stack += node.named_children
    return found


def _script_parser(script: Node) -> Parser:
    part = Range(script.start_point, script.end_point, script.start_byte, script.end_byte)
    return Parser(get_language("tsx"), included_ranges=[part])


def _walk(root: Node, found: Outline, lines: list[bytes], language: str) -> None:
    stack = [(root, _Context())]
    while stack:
        node, context = stack.pop()
        stack += _visit(node, context, found, lines, language)


def _visit(node: Node, context: _Context, found: Outline, lines: list[bytes], language: str) -> list[tuple[Node, _Context]]:
    """Mark the boundaries before the children of a node; return those that have lines of their own inside."""
    deeper: list[tuple[Node, _Context]] = []
    attached: int | None = None
    attached_end = -2
    before: _Context | None = None
    children = node.children
    for i, child in enumerate(children):
        start, end = child.start_point.row, _last_row(child)
        own_line = not lines[start][: child.start_point.column].strip()
        named = read_definition(child, language)
        if own_line and named is None and _is_attached(child, language):
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
        inner = before if before is not None and child.type == BODIES[language][1] else None
        before = None
        if named is not None:
            whole = max(end, _end_of_unit(children, i, language))
            inner = _define(child, named, (first, whole), context, found, own_line=own_line)
            before = inner if whole > end and language in BODIES else None
        elif own_line and child.is_named and first == start and inner is None:
            _mark_statement(found, start, context, lines)
        if child.child_count and (end > start or wrapper is not None):
            deeper.append((child, inner or replace(context, depth=context.depth + 1, first=wrapper)))
        attached = None
    return deeper


def _last_row(node: Node) -> int:
    start, end = node.start_point.row, node.end_point
    return end.row - 1 if end.column == 0 and end.row > start else end.row


def _end_of_unit(children: list[Node], at: int, language: str) -> int:
    """The last line of a definition that goes on after its own node: in its body, or until the next one of its kind."""
    node = children[at]
    heads, body = BODIES.get(language, (frozenset(), ""))
    if node.type in heads and at + 1 < len(children) and children[at + 1].type == body:
        return _last_row(children[at + 1])
    flat = FLAT.get(language, ())
    if node.type not in flat:
        return -1
    following = next((child for child in children[at + 1 :] if child.type in flat), None)
    return following.start_point.row - 1 if following is not None else _last_row(children[-1])


def _is_attached(node: Node, language: str) -> bool:
    if language == "elixir" and node.type == "unary_operator":
        return node.child_count > 0 and node.children[0].type == "@"
    return node.is_named and bool(_ATTACHED.search(node.type))


def _define(node: Node, named: Named, lines: tuple[int, int], context: _Context, found: Outline, *, own_line: bool) -> _Context:
    if context.path.rpartition(".")[2] == named.name and context.started == node.start_point.row:
        return replace(context, depth=context.depth + 1, first=None)
    path = f"{context.path}.{named.name}" if context.path else named.name
    first, end = lines
    found.definitions.append(Definition(path=path, start=first, end=end, head=named.row))
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
        inside_function=context.inside_function or not named.holds_members,
        started=node.start_point.row,
    )


def _mark_statement(found: Outline, line: int, context: _Context, lines: list[bytes]) -> None:
    after_blank = line > 0 and not lines[line - 1].strip()
    found.mark(line, STATEMENT + 2 * min(context.depth, _DEEPEST) - (1 if after_blank else 0))
