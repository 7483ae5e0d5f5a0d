"""Which nodes of a syntax tree define something, and under which name: one rule for all grammars, and a few exceptions.

Grammars name their nodes alike (`function_definition`, `class_declaration`, `impl_item`); most give a definition a field `name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from tree_sitter import Node

from ingest_worker.chunk.grammars import COMPLETE, CONTAINERS, DEFINITIONS, name_at

_WORDS: Final = (
    "function|method|class|interface|struct|impl|module|mod|enum|trait|constructor|namespace|object|protocol|extension|record"
    "|macro|contract|message|service|rpc|subroutine|procedure|package|union|mixin|library|event|modifier|entity|architecture"
    "|task|type|instance|predicate|actor|annotation_type|subprogram|operator|init|deinit"
)
_SUFFIXES: Final = "definition|declaration|decl|item|spec|specifier|statement|clause|def|binding|signature|alias|block"
_DEFINES: Final = re.compile(
    rf"^(?:\w+_)?(?:{_WORDS})(?:_(?:{_SUFFIXES}))+$"
    r"|^(?:class|module|method|singleton_method|function|subroutine|program|submodule|message|service|rpc|enum|instance|bind)$"
    r"|^create_(?:table|view|materialized_view|function|procedure|trigger|index|type)$|^fun_decl$|^Decl$"
)
_NEVER: Final = re.compile(
    r"^(?:interface|class|enum|module|message|service|object|struct|union|record|trait|impl|mixin|package|type|namespace|protocol"
    r"|extension|method|function)_(?:block|clause|specifier_list|use_declaration)$"
    r"|^(?:package_(?:clause|statement|declaration)|object_creation_expression)$"
    r"|^(?:type_declaration|type_definition|type_system_definition|type_specifier|macro_type_specifier|instance_declarations"
    r"|program_statement|subroutine_statement|operator_declaration|type_binding|type_clause|rpc_statement|type_block)$"
)
_CONTAINS: Final = re.compile(
    r"class|interface|struct|impl|module|^mod|_mod|enum|trait|namespace|object|protocol|extension|record|contract|message"
    r"|service|package|union|library|mixin|instance|singleton_class|^program"
)
_TYPE_NAME: Final = re.compile(r"(?:^|_)type_identifier$")
_IDENTIFIER: Final = re.compile(r"(?:^|_)(?:(?<!type_)identifier|name|constant|word|variable|alias|symbol|command_name)$")
_BODY: Final = re.compile(
    r"body|block|compound|(?:^|_)(?:statements|statement_list|members?|member_list|arguments|argument_list|parameters?|parameter_list)$"
)
_FUNCTION_VALUE: Final = re.compile(
    r"^(?:arrow_function|function|function_expression|function_definition|generator_function|class|lambda)$"
)
# Nodes that give a function value a name: the fields that hold the name and the value.
_ASSIGNMENTS: Final = {
    "variable_declarator": ("name", "value"),
    "assignment_expression": ("left", "right"),
    "pair": ("key", "value"),
    "binary_operator": ("lhs", "rhs"),
}
_NAME_CHARS: Final = 120
_ELIXIR_MODULES: Final = frozenset(("defmodule", "defprotocol", "defimpl"))
_ELIXIR: Final = frozenset(("defmodule", "def", "defp", "defmacro", "defmacrop", "defprotocol", "defimpl", "defguard"))


class Named(NamedTuple):
    """A definition's name as people write it (`cancel`; `Invoice.Cancel` for a Go method), the 0-based line that says it, and
    whether it holds members, which are units of their own, and not statements."""

    name: str
    row: int
    holds_members: bool


def read_definition(node: Node, language: str) -> Named | None:
    """What a node defines: a function, a method, a class, a module…; None when it defines nothing that has a name."""
    if language == "elixir" and node.type == "call":
        return _elixir(node)
    own = DEFINITIONS.get(language)
    where = own.get(node.type) if own else None
    if where is not None:
        found = name_at(node, where)
        name = _text(found) if found is not None and found is not node else _own_name(node) if found is not None else None
        holds = node.type in CONTAINERS.get(language, ())
    elif not node.is_named or (own and language in COMPLETE):
        return None
    elif node.type in _ASSIGNMENTS:
        left, right = _ASSIGNMENTS[node.type]
        value = node.child_by_field_name(right)
        if value is None or not _FUNCTION_VALUE.match(value.type):
            return None
        found = node.child_by_field_name(left)
        name = _text(found) if found is not None else None
        holds = value.type == "class"
    elif _defines(node.type) and not (language == "r" and node.type == "function_definition"):
        found = _name_node(node)
        name = _text(found) if found is not None else None
        holds = bool(_CONTAINS.search(node.type))
    else:
        return None
    if not name or found is None:
        return None
    if language == "go" and node.type == "method_declaration":
        receiver = next(_descend(node.child_by_field_name("receiver"), "type_identifier"), None)
        name = f"{_text(receiver)}.{name}" if receiver is not None else name
    return Named(name, found.start_point.row, holds)


@lru_cache(maxsize=4096)
def _defines(node_type: str) -> bool:
    return bool(_DEFINES.match(node_type)) and not _NEVER.match(node_type)


def _name_node(node: Node) -> Node | None:
    found = node.child_by_field_name("name")
    if found is not None and found.is_named:
        return found
    if node.type.startswith("impl"):
        return node.child_by_field_name("type")
    declarator = node.child_by_field_name("declarator")
    for _ in range(8):
        if declarator is None:
            break
        inner = declarator.child_by_field_name("declarator")
        if inner is None and declarator.type == "reference_declarator" and declarator.named_children:
            inner = declarator.named_children[-1]
        if inner is None:
            return declarator
        declarator = inner
    return _first_identifier(node)


def _first_identifier(node: Node) -> Node | None:
    """The first identifier in the head of a definition, for grammars without a name field."""
    head = [child for child in node.named_children[:6] if not _BODY.search(child.type)]
    for child in head:
        named = child.child_by_field_name("name")
        if named is not None and named.is_named:
            return named
    for pattern in (_IDENTIFIER, _TYPE_NAME):
        direct = next((child for child in head if pattern.search(child.type)), None)
        if direct is not None:
            return direct
    stack = [(child, 1) for child in reversed(head[:3])]
    while stack:
        current, depth = stack.pop()
        if _IDENTIFIER.search(current.type) or _TYPE_NAME.search(current.type):
            return current
        if depth < 3:
            stack += [(child, depth + 1) for child in reversed(current.named_children[:3]) if not _BODY.search(child.type)]
    return None


def _own_name(node: Node) -> str | None:
    """The name of a node that is its own name: the words of a block's head (`resource.kind.name`), or a line of a label."""
    labels = [child for child in node.named_children if child.type in ("identifier", "string_lit")]
    if labels:
        return ".".join(filter(None, ((_text(child) or "").strip('"') for child in labels)))[:_NAME_CHARS] or None
    words = (node.text or b"").decode("utf-8", "replace").split()
    return words[0].rstrip(".:")[:_NAME_CHARS] or None if words else None


def _elixir(node: Node) -> Named | None:
    target = _elixir_target(node)
    if target not in _ELIXIR:
        return None
    name = _elixir_name(node)
    return Named(name, node.start_point.row, target in _ELIXIR_MODULES) if name else None


def _elixir_target(node: Node) -> str | None:
    target = node.child_by_field_name("target")
    return _text(target) if target is not None else None


def _elixir_name(node: Node) -> str | None:
    arguments = next((child for child in node.named_children if child.type == "arguments"), None)
    first = arguments.named_children[0] if arguments is not None and arguments.named_children else None
    if first is not None and first.type == "binary_operator":
        first = first.child_by_field_name("left")
    if first is None:
        return None
    return _elixir_target(first) if first.type == "call" else _text(first)


def _descend(node: Node | None, node_type: str) -> Iterator[Node]:
    stack = [node] if node is not None else []
    while stack:
        current = stack.pop()
        if current.type == node_type:
            yield current
        stack += reversed(current.named_children)


def _text(node: Node) -> str | None:
    raw = node.text
    if raw is None or len(raw) > _NAME_CHARS or b"\n" in raw:
        return None
    name = raw.decode("utf-8", "replace").strip().replace("::", ".")
    return name[1:-1].strip() if name[:1] in '{"' and name[-1:] in '}"' and len(name) > 2 else name or None
