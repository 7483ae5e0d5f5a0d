# ruff: noqa: E501 - small programs in one line each
"""Definitions and their names, in a program or two of each language whose grammar goes its own way."""

from __future__ import annotations

from typing import get_args

import pytest
from tree_sitter_language_pack import SupportedLanguage

from ingest_worker.chunk.apart import outline_apart
from ingest_worker.chunk.syntax import MAY_HANG, outline
from ingest_worker.parse.languages import BY_EXTENSION, BY_NAME

_PROGRAMS = [
    ("ada", "package body P is\n  function F (X : Integer) return Integer is\n  begin\n    return X;\n  end F;\nend P;\n", ["P", "P.F"]),
    ("agda", "module A where\nfoo : Nat\nfoo = 1\n", ["A", "foo"]),
    ("asm", "foo:\n  mov eax, 1\n  ret\nbar:\n  ret\n", ["foo", "bar"]),
    ("bicep", "resource a 'x' = {\n  b: 1\n}\nfunc foo(x int) int => x\n", ["a", "foo"]),
    ("bitbake", "do_install() {\n  install\n}\npython do_x() {\n  pass\n}\n", ["do_install", "do_x"]),
    ("capnp", "struct A {\n  x @0 :Int32;\n}\n", ["A"]),
    ("clojure", "(ns a.b)\n(defn foo [x]\n  (inc x))\n(defprotocol P\n  (m [x]))\n", ["a.b", "foo", "P"]),
    ("cmake", "function(foo a)\n  message(1)\nendfunction()\nmacro(bar)\nendmacro()\n", ["foo", "bar"]),
    ("cobol", "       IDENTIFICATION DIVISION.\n       PROGRAM-ID. HELLO.\n       PROCEDURE DIVISION.\n       MAIN-PARA.\n           DISPLAY \"HI\".\n", ["HELLO", "HELLO.MAIN-PARA"]),
    ("commonlisp", "(defun foo (x)\n  (1+ x))\n(defclass a ()\n  ())\n", ["foo", "a"]),
    ("cpp", "namespace n {\nint Foo::bar(int x) {\n  return x;\n}\n}\n", ["n", "n.Foo.bar"]),
    ("csharp", "class A {\n  [Obsolete]\n  public void B(int x) {\n  }\n}\n", ["A", "A.B"]),
    ("dart", "class A {\n  int foo(int x) {\n    return x;\n  }\n}\nint bar() {\n  return 1;\n}\n", ["A", "A.foo", "bar"]),
    ("elisp", "(defun foo (x)\n  \"doc\"\n  (1+ x))\n", ["foo"]),
    ("elixir", "defmodule A do\n  def foo(x) do\n    x\n  end\nend\n", ["A", "A.foo"]),
    ("elm", "module A exposing (..)\n\nfoo : Int -> Int\nfoo x =\n    x + 1\n\ntype Msg\n    = A\n    | B\n", ["foo", "Msg"]),
    ("erlang", "-module(a).\nfoo(X) ->\n  X.\n", ["foo"]),
    ("fennel", "(fn foo [x]\n  (+ x 1))\n", ["foo"]),
    ("fortran", "module m\ncontains\n  subroutine s(x)\n    x = 1\n  end subroutine\nend module\n", ["m", "m.s"]),
    ("fsharp", "module A\n\nlet foo x =\n    x + 1\n\ntype T() =\n    member this.Bar x =\n        x\n\n    member this.Baz y =\n        y\n", ["A", "A.foo", "A.T", "A.T.Bar", "A.T.Baz"]),
    ("gdscript", "class_name A\nfunc foo(x):\n\treturn x\n", ["foo"]),
    ("gleam", "pub fn foo(x) {\n  x\n}\n", ["foo"]),
    ("go", "package a\n\nfunc (i *Invoice) Cancel() error {\n\treturn nil\n}\n", ["Invoice.Cancel"]),
    ("graphql", "type A {\n  x: Int\n}\n", ["A"]),
    ("hare", "fn foo(x: int) int = {\n  return x;\n};\n", ["foo"]),
    ("haskell", "module A where\n\nfoo :: Int -> Int\nfoo x =\n  x + 1\n", ["foo"]),
    ("haxe", "class A {\n  function foo(x:Int) {\n    return x;\n  }\n}\n", ["A", "A.foo"]),
    ("hcl", 'job "a" {\n  group "b" {\n  }\n}\n', ["job.a", "job.a.group.b"]),
    ("ini", "[a]\nx=1\n[b]\ny=2\n", ["a", "b"]),
    ("janet", "(defn foo [x]\n  (+ x 1))\n", ["foo"]),
    ("java", "class A {\n  @Override\n  public int b() {\n    return 1;\n  }\n}\n", ["A", "A.b"]),
    ("javascript", "class A {\n  foo() {\n    return 1;\n  }\n}\nconst bar = (x) => {\n  return x;\n};\n", ["A", "A.foo", "bar"]),
    ("julia", "function foo(x)\n  x\nend\n", ["foo"]),
    ("kotlin", "class A {\n  fun foo(x: Int): Int {\n    return x\n  }\n}\n", ["A", "A.foo"]),
    ("latex", "\\section{One}\ntext\n\\subsection{Two}\nmore\n", ["One", "One.Two"]),
    ("llvm", "define i32 @foo(i32 %x) {\n  ret i32 %x\n}\n", ["@foo"]),
    ("lua", "local function foo(x)\n  return x\nend\nM.bar = function(y)\n  return y\nend\nfunction M:baz()\n  return 1\nend\n", ["foo", "M.bar", "M:baz"]),
    ("magik", "_method a.foo(x)\n  _return x\n_endmethod\n", ["foo"]),
    ("make", "all: foo\n\techo\n\nfoo.o: foo.c\n\tcc\n", ["all", "foo.o"]),
    ("matlab", "function y = foo(x)\n  y = x;\nend\n", ["foo"]),
    ("nim", "proc foo(x: int): int =\n  x + 1\n\ntype A = object\n  x: int\n", ["foo", "A"]),
    ("objc", "@implementation A\n- (int)foo:(int)x {\n  return x;\n}\n@end\n", ["A", "A.foo"]),
    ("ocaml", "let foo x =\n  x + 1\n\nmodule M = struct\n  let bar y =\n    y\nend\n", ["foo", "M", "M.bar"]),
    ("odin", "foo :: proc(x: int) -> int {\n  return x\n}\n", ["foo"]),
    ("pascal", "unit A;\ninterface\ntype\n  TFoo = class(TObject)\n    procedure Bar;\n  end;\nimplementation\nprocedure TFoo.Bar;\nbegin\nend;\nend.\n", ["A", "A.TFoo", "A.TFoo.Bar"]),
    ("perl", "package A;\nsub foo {\n  1;\n}\n", ["foo"]),
    ("php", "<?php\nclass A {\n  public function foo($x) {\n    return $x;\n  }\n}\n", ["A", "A.foo"]),
    ("powershell", "function Foo {\n  1\n}\n", ["Foo"]),
    ("prisma", "model User {\n  id Int @id\n}\nenum Role {\n  A\n}\n", ["User", "Role"]),
    ("proto", "message A {\n  int32 x = 1;\n}\nservice S {\n  rpc Foo(A) returns (A);\n}\n", ["A", "S", "S.Foo"]),
    ("puppet", "class a {\n  file { 'x':\n  }\n}\n", ["a"]),
    ("python", "class A:\n    @property\n    def foo(self):\n        return 1\n", ["A", "A.foo"]),
    ("r", "foo <- function(x) {\n  x\n}\n", ["foo"]),
    ("racket", "#lang racket\n(define (foo x)\n  (+ x 1))\n", ["foo"]),
    ("rego", "package a\n\nallow {\n  input.x == 1\n}\n", ["allow"]),
    ("ruby", "module M\n  class A\n    def foo(x)\n      x\n    end\n  end\nend\n", ["M", "M.A", "M.A.foo"]),
    ("rust", "impl Invoice {\n    pub fn cancel(&mut self) {\n        1;\n    }\n}\n", ["Invoice", "Invoice.cancel"]),
    ("scala", "object A {\n  def foo(x: Int) = {\n    x\n  }\n}\n", ["A", "A.foo"]),
    ("scheme", "(define (foo x)\n  (+ x 1))\n(define y\n  1)\n", ["foo", "y"]),
    ("solidity", "contract A {\n  function foo(uint x) public {\n  }\n}\n", ["A", "A.foo"]),
    ("sql", "CREATE TABLE a (\n  x int\n);\n", ["a"]),
    ("squirrel", "function foo(x) {\n  return x\n}\n", ["foo"]),
    ("starlark", "def foo(x):\n    return x\n", ["foo"]),
    ("swift", "class A {\n  func foo(x: Int) -> Int {\n    return x\n  }\n}\n", ["A", "A.foo"]),
    ("tablegen", "class A<int x> {\n  int y = x;\n}\n", ["A"]),
    ("tcl", "proc foo {x} {\n  return $x\n}\nnamespace eval ns {\n  proc bar {} {\n  }\n}\n", ["foo", "ns", "ns.bar"]),
    ("terraform", 'resource "aws_x" "y" {\n  a = 1\n}\nvariable "z" {\n}\n', ["resource.aws_x.y", "variable.z"]),
    ("thrift", "struct A {\n  1: i32 x\n}\nservice B {\n  void foo()\n}\n", ["A", "B", "B.foo"]),
    ("toml", "[a.b]\nx = 1\n[[c]]\ny = 1\n", ["a.b", "c"]),
    ("typescript", "export class A {\n  async foo(x: string): Promise<void> {\n    await x;\n  }\n}\n", ["A", "A.foo"]),
    ("typst", "= Head\ntext\n", ["Head"]),
    ("vim", "function! Foo(x)\n  return 1\nendfunction\n", ["Foo"]),
    ("vue", "<script setup lang=\"ts\">\nfunction foo(x: number) {\n  return x;\n}\n</script>\n<template>\n  <p/>\n</template>\n", ["foo"]),
    ("wat", "(module\n  (func $foo (param i32)\n    i32.const 1))\n", ["$foo"]),
    ("zig", "pub fn foo(x: u8) u8 {\n    return x;\n}\nconst A = struct {\n    fn bar() void {\n    }\n};\n", ["foo", "A", "A.bar"]),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "symbols"), _PROGRAMS, ids=[language for language, _, _ in _PROGRAMS])
def test_definitions_are_found_under_the_names_that_people_give_them(language: str, text: str, symbols: list[str]) -> None:
    found = outline(text, language)
    assert found is not None
    assert [definition.path for definition in found.definitions] == symbols


def test_a_definition_reaches_from_its_comment_to_its_last_line() -> None:
    found = outline("x = 1\n\n# Adds.\n# Both.\n@cache\ndef add(a, b):\n    return a + b\n\n\ny = 2\n", "python")
    assert found is not None
    assert [(d.path, d.start, d.head, d.end) for d in found.definitions] == [("add", 2, 5, 6)]


def test_every_bundled_grammar_has_files_or_is_read_by_another_parser() -> None:
    bundled = set(get_args(SupportedLanguage))
    without_files = {"comment", "doxygen", "gitcommit", "gstlaunch", "jsdoc", "luadoc", "luap", "pem", "printf", "test"}
    of_other_parsers = {"csv", "html", "markdown", "markdown_inline", "org", "psv", "rst", "tsv"}
    named = {*BY_EXTENSION.values(), *BY_NAME.values()}
    assert bundled - named == without_files | of_other_parsers
    assert named <= bundled


def test_every_grammar_that_comes_to_an_end_reads_a_file() -> None:
    for language in sorted({*BY_EXTENSION.values(), *BY_NAME.values()} - MAY_HANG):
        assert outline("x = 1\n", language) is not None


def test_a_grammar_that_never_comes_back_costs_seconds_and_no_line() -> None:
    assert outline_apart("1234\n", "cobol", seconds=1) is None


def test_tags_in_tags_without_end_cost_their_time_and_no_more() -> None:
    assert outline("<a>" * 60_000, "xml", seconds=1) is None, "its scanner takes time in the square of the depth"
