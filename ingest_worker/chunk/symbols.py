"""Which nodes of a syntax tree define something, and under which name: one rule for all grammars, and a few exceptions.

Grammars name their nodes alike (`function_definition`, `class_declaration`, `impl_item`); most give a definition a field `name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tree_sitter import Node

_DEFINES: Final = re.compile(
    r"""^(?:\w+_)?
    (?:function|method|class|interface|struct|impl|module|mod|enum|trait|constructor|namespace|object|protocol|extension
      |record|macro|contract|message|service|rpc|subroutine|procedure|package|union|type|singleton|property|mixin|library
      |event|modifier|entity|architecture|task|program|signature|instance|functor|bind|class_type|predicate|term)
    (?:_(?:definition|declaration|item|spec|specifier|statement|type_definition|signature|block|clause|def|binding
      |constructor|method|type))*$
    |^create_(?:table|view|function|procedure|trigger|index|type)\w*$|^rule_definition$|^(?:short_)?function_(?:def|decl)$
    |^fun_decl$|^func_literal_named$|^subprogram_body$|^test_declaration$|^Decl$""",
    re.VERBOSE,
)
_NEVER: Final = re.compile(
    r"^(?:function_type|type|object|property|method|modifier|signature|event|program|term|macro|message_body"
    r"|object_type|union_type|record_type|package_clause|package_statement|package_declaration|module_statement"
    r"|subroutine_statement|function_statement|interface_body|class_body|type_declaration|enum_body|module_reference"
    r"|function_signature|method_signature|type_definition|type_system_definition|object_creation_expression"
    r"|property_declaration|macro_type_specifier|program_statement|type_specifier|namespace_use_declaration)$"
)
_CONTAINS: Final = re.compile(
    r"class|interface|struct|impl|module|^mod|_mod|enum|trait|namespace|object|protocol|extension|record|contract|message"
    r"|service|package|union|library|mixin|instance|singleton_class|^program"
)
_IDENTIFIER: Final = re.compile(r"(?:^|_)(?:identifier|name|constant|type_identifier|word|variable|alias|symbol|command_name)$")
_FUNCTION_VALUE: Final = re.compile(r"^(?:arrow_function|function|function_expression|generator_function|class|lambda)$")
_NAME_CHARS: Final = 120
_ELIXIR: Final = frozenset(("defmodule", "def", "defp", "defmacro", "defmacrop", "defprotocol", "defimpl", "defguard"))


def is_definition(node: Node, language: str) -> bool:
    """Whether a node defines a named unit: a function, a method, a class, a module…"""
    if language == "elixir" and node.type == "call":
        return _elixir_target(node) in _ELIXIR
    if node.type in ("variable_declarator", "assignment_expression", "pair"):
        value = node.child_by_field_name("right" if node.type == "assignment_expression" else "value")
        return value is not None and bool(_FUNCTION_VALUE.match(value.type))
    return node.is_named and _defines(node.type)


def is_container(node: Node) -> bool:
    """Whether a definition holds members, which are units of their own, and not statements."""
    if node.type == "call":
        return _elixir_target(node) in ("defmodule", "defprotocol", "defimpl")
    value = node.child_by_field_name("value")
    return bool(_CONTAINS.search(node.type)) or (value is not None and value.type == "class")


def definition_name(node: Node, language: str) -> str | None:
    """The name of a definition as people write it (`cancel`; `Invoice.Cancel` for a Go method), or None when it has none."""
    if language == "elixir" and node.type == "call":
        return _elixir_name(node)
    named = _name_node(node)
    name = _text(named) if named is not None else None
    if name and language == "go" and node.type == "method_declaration":
        receiver = next(_descend(node.child_by_field_name("receiver"), "type_identifier"), None)
        return f"{_text(receiver)}.{name}" if receiver is not None else name
    return name


@lru_cache(maxsize=4096)
def _defines(node_type: str) -> bool:
    return bool(_DEFINES.match(node_type)) and not _NEVER.match(node_type)


def _name_node(node: Node) -> Node | None:
    for name in ("name", "left" if node.type == "assignment_expression" else "key"):
        found = node.child_by_field_name(name)
        if found is not None:
            return found
    if node.type.startswith("impl"):
        return node.child_by_field_name("type")
    declarator = node.child_by_field_name("declarator")
    for _ in range(8):
        if declarator is None:
            break
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            return declarator
        declarator = inner
    return _first_identifier(node)


def _first_identifier(node: Node) -> Node | None:
    """The first identifier near the beginning, for grammars without a name field."""
    level = [node]
    for _ in range(3):
        level = [child for parent in level for child in parent.named_children[:3]]
        found = next((child for child in level if _IDENTIFIER.search(child.type)), None)
        if found is not None:
            return found
    return None


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
    return raw.decode("utf-8", "replace").strip().replace("::", ".") or None
