"""Where grammars that do not follow the common rule keep their definitions and their names. Data, and how it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from tree_sitter import Node

# Language → type of the node that defines something → where its name stands: steps down the tree, each a field's name or a
# node's type, separated by `/`; alternatives by `|`. `@…` names a function below.
DEFINITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "ada": {
        "subprogram_body": "procedure_specification/name|function_specification/name",
        "package_body": "name",
        "package_declaration": "name",
        "task_body": "name",
    },
    "bicep": dict.fromkeys(
        ("resource_declaration", "module_declaration", "user_defined_function", "type_declaration"), "name|identifier"
    ),
    "bitbake": dict.fromkeys(
        ("function_definition", "python_function_definition", "anonymous_python_function"), "name|identifier|function_name"
    ),
    "capnp": dict.fromkeys(("struct", "interface", "enum"), "type_identifier"),
    "clojure": {"list_lit": "@lisp"},
    "cmake": {
        "function_def": "function_command/argument_list/argument",
        "macro_def": "macro_command/argument_list/argument",
    },
    "cobol": {
        "program_definition": "identification_division/program_name",
        "section_header": "@first_word",
        "paragraph_header": "@first_word",
    },
    "commonlisp": {"list_lit": "@lisp", "defun": "defun_header/function_name"},
    "asm": {"label": "ident"},
    "elisp": {"special_form": "@lisp", "list": "@lisp"},
    "elm": {
        "value_declaration": "functionDeclarationLeft/lower_case_identifier",
        "type_declaration": "name",
        "type_alias_declaration": "name",
    },
    "erlang": {"fun_decl": "clause/name"},
    "fennel": dict.fromkeys(("fn", "lambda", "macro"), "name"),
    "fsharp": {
        "named_module": "name",
        "module_defn": "identifier",
        "namespace": "name",
        "function_or_value_defn": "function_declaration_left/identifier",
        "anon_type_defn": "type_name/type_name",
        "record_type_defn": "type_name/type_name",
        "union_type_defn": "type_name/type_name",
        "enum_type_defn": "type_name/type_name",
        "interface_type_defn": "type_name/type_name",
        "method_or_prop_defn": "property_or_ident/method|property_or_ident/identifier|property_or_ident",
    },
    "hcl": {"block": "@hcl_block"},
    "ini": {"section": "section_name/text"},
    "janet": {"extra_defs": "name"},
    "latex": dict.fromkeys(
        ("part", "chapter", "section", "subsection", "subsubsection", "paragraph"), "text"
    ),
    "llvm": {"fn_define": "function_header/name"},
    "lua": {"function_declaration": "name", "assignment_statement": "@lua_assignment"},
    "luau": {"function_declaration": "name", "assignment_statement": "@lua_assignment"},
    "make": {"rule": "targets"},
    "nim": dict.fromkeys(
        (
            "proc_declaration",
            "func_declaration",
            "method_declaration",
            "iterator_declaration",
            "converter_declaration",
            "template_declaration",
            "macro_declaration",
            "type_declaration",
        ),
        "name|type_symbol_declaration/name",
    ),
    "objc": dict.fromkeys(
        ("class_interface", "class_implementation", "category_interface", "category_implementation", "method_definition"),
        "identifier",
    ),
    "ocaml": {
        "value_definition": "let_binding/pattern",
        "type_definition": "type_binding/name",
        "module_definition": "module_binding/module_name",
        "class_definition": "class_binding/name",
        "method_definition": "name|method_name",
    },
    "ocaml_interface": {
        "value_specification": "value_name",
        "type_definition": "type_binding/name",
        "module_definition": "module_binding/module_name",
    },
    "pascal": {"unit": "moduleName", "program": "moduleName", "declType": "@pascal_type", "defProc": "header/name"},
    "prisma": dict.fromkeys(
        ("model_block", "enum_block", "type_block", "view_block", "datasource_block", "generator_block"), "identifier"
    ),
    "racket": {"list": "@lisp"},
    "rego": {"rule": "rule_head/var"},
    "scheme": {"list": "@lisp"},
    "tcl": {"procedure": "name", "namespace": "@tcl_namespace"},
    "terraform": {"block": "@hcl_block"},
    "toml": {"table": "dotted_key|bare_key|quoted_key", "table_array_element": "dotted_key|bare_key|quoted_key"},
    "typst": {"section": "heading/text"},
    "zig": {"Decl": "@zig"},
}  # fmt: skip
COMPLETE: Final = frozenset(DEFINITIONS) - {"ada", "capnp", "elisp", "fennel", "llvm", "nim", "objc", "pascal"}
"""Languages whose definitions all stand above: the common rule finds wrong names there."""
CONTAINERS: Final[Mapping[str, frozenset[str]]] = {
    "ada": frozenset(("package_body", "package_declaration")),
    "capnp": frozenset(("struct", "interface")),
    "cobol": frozenset(("program_definition",)),
    "fsharp": frozenset(
        (
            "named_module",
            "module_defn",
            "namespace",
            "anon_type_defn",
            "record_type_defn",
            "union_type_defn",
            "interface_type_defn",
        )
    ),
    "hcl": frozenset(("block",)),
    "latex": frozenset(("part", "chapter", "section", "subsection", "subsubsection")),
    "objc": frozenset(("class_interface", "class_implementation", "category_interface", "category_implementation")),
    "ocaml": frozenset(("module_definition", "class_definition")),
    "pascal": frozenset(("unit", "program", "declType")),
    "tcl": frozenset(("namespace",)),
    "typst": frozenset(("section",)),
    "zig": frozenset(("Decl",)),
}
"""What holds definitions of its own, beside what the common rule knows."""
FLAT: Final[Mapping[str, frozenset[str]]] = {
    "asm": frozenset(("label",)),
    "cobol": frozenset(("section_header", "paragraph_header")),
}
"""What only begins a unit, which ends before the next of its kind."""
BODIES: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "dart": (frozenset(("function_signature", "method_signature")), "function_body"),
}
"""Definitions whose body is the node after them."""

_LISP: Final = re.compile(r"^\(?(?:def\S*|define\S*|ns|deftest|class|interface|struct|module)$", re.IGNORECASE)


def name_at(node: Node, where: str) -> Node | None:
    """The node that holds the name of a definition, as `DEFINITIONS` describes its place."""
    if where.startswith("@"):
        return _FUNCTIONS[where](node)
    for path in where.split("|"):
        found: Node | None = node
        for step in path.split("/"):
            found = None if found is None else _step(found, step)
        if found is not None:
            return found
    return None


def _step(node: Node, step: str) -> Node | None:
    return node.child_by_field_name(step) or next((child for child in node.named_children if child.type == step), None)


def _first_word(node: Node) -> Node | None:
    return node


def _lisp(node: Node) -> Node | None:
    """`(define (name …) …)`, `(defn name …)`: the second symbol of a form that begins with a defining word."""
    named = [child for child in node.named_children[:6] if child.type not in ("comment", "block_comment")]
    if node.type == "special_form":
        return named[0] if named and named[0].type == "symbol" and (node.text or b"").startswith(b"(def") else None
    if len(named) < 2 or named[0].text is None or not _LISP.match(named[0].text.decode("utf-8", "replace")):
        return None
    name = named[1]
    while name.type in ("list", "list_lit") and name.named_children:
        name = name.named_children[0]
    return name if name.type in ("symbol", "sym_lit", "kwd_lit", "sym_name") else None


def _hcl_block(node: Node) -> Node | None:
    # `resource "kind" "name" {`: the labels make the name (`_joined`); a block inside another has none.
    return node if node.named_children and any(child.type == "string_lit" for child in node.named_children) else None


def _lua_assignment(node: Node) -> Node | None:
    targets, values = _step(node, "variable_list"), _step(node, "expression_list")
    if targets is None or values is None or len(values.named_children) != 1:
        return None
    return targets if values.named_children[0].type == "function_definition" else None


def _pascal_type(node: Node) -> Node | None:
    held = node.child_by_field_name("type")
    return node.child_by_field_name("name") if held is not None and held.type in ("declClass", "declIntf") else None


def _tcl_namespace(node: Node) -> Node | None:
    words = _step(node, "word_list")
    if words is None or len(words.named_children) < 3 or words.named_children[0].text != b"eval":
        return None
    return words.named_children[1]


def _zig(node: Node) -> Node | None:
    function = _step(node, "FnProto")
    if function is not None:
        return function.child_by_field_name("function")
    held = _step(node, "VarDecl")
    if held is None:
        return None
    value: Node | None = held
    for step in ("ErrorUnionExpr", "SuffixExpr", "ContainerDecl"):
        value = None if value is None else _step(value, step)
    return held.child_by_field_name("variable_type_function") if value is not None else None


_FUNCTIONS: Final[Mapping[str, Callable[[Node], Node | None]]] = {
    "@first_word": _first_word,
    "@hcl_block": _hcl_block,
    "@lisp": _lisp,
    "@lua_assignment": _lua_assignment,
    "@pascal_type": _pascal_type,
    "@tcl_namespace": _tcl_namespace,
    "@zig": _zig,
}
