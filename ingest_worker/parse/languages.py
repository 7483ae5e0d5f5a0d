"""Which grammar reads which file: by extension, by well-known name, by the interpreter after `#!`, by a look at the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ingest_worker.parse.language_names import BY_EXTENSION, BY_NAME

__all__ = ["BY_EXTENSION", "BY_NAME", "language_of"]

_LOOKED_AT: Final = 20_000
"""Bytes from the beginning of a file that decide between languages."""
_INTERPRETERS: Final[tuple[tuple[str, str], ...]] = (
    (r"(ba|z|k|mk|pdk|da|a)?sh|bats", "bash"),
    (r"python[\d.]*|pypy[\d.]*|uv", "python"),
    (r"node|nodejs|bun|gjs|qjs|d8|rhino", "javascript"),
    (r"deno|ts-node|tsx", "typescript"),
    (r"c?perl[\d.]*", "perl"),
    (r"ruby[\d.]*|macruby|jruby|rake", "ruby"),
    (r"php[\d.]*", "php"),
    (r"lua[\d.]*|luajit", "lua"),
    (r"luau", "luau"),
    (r"fish", "fish"),
    (r"tclsh[\d.]*|wish[\d.]*|expect", "tcl"),
    (r"Rscript", "r"),
    (r"julia", "julia"),
    (r"pwsh|powershell", "powershell"),
    (r"g?make", "make"),
    (r"elixir", "elixir"),
    (r"escript", "erlang"),
    (r"runghc|runhaskell|runhugs|stack", "haskell"),
    (r"groovy", "groovy"),
    (r"racket", "racket"),
    (r"bb|clojure", "clojure"),
    (r"sbcl|ccl|clisp|ecl", "commonlisp"),
    (r"guile|gosh|csi|chicken|bigloo|scheme", "scheme"),
    (r"emacs", "elisp"),
    (r"dart", "dart"),
    (r"fennel", "fennel"),
    (r"janet", "janet"),
    (r"nix-shell|nix", "nix"),
    (r"ocaml|ocamlrun|ocamlscript", "ocaml"),
    (r"rust-script|cargo", "rust"),
    (r"scala|amm", "scala"),
    (r"swift", "swift"),
    (r"instantfpc", "pascal"),
    (r"osascript|awk|gawk|sed", ""),
)
_SHEBANG: Final = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+|\w+=\S*\s+)*)?([\w.+-]+)")
# Emacs: `-*- mode: python -*-` or `-*- python -*-` in the first two lines. Vim: `vim: set ft=python :` near the beginning or end.
_EMACS: Final = re.compile(rb"-\*-[ \t]*(?:[^\r\n]*?\bmode:[ \t]*)?([\w+#-]+)[ \t]*(?:;[^\r\n]*)?-\*-", re.IGNORECASE)
_VIM: Final = re.compile(rb"\b(?:vim?|ex):[^\r\n]*?\b(?:ft|filetype|syntax)=(\w+)")
_MODES: Final[dict[str, str]] = {
    "c++": "cpp", "sh": "bash", "shell-script": "bash", "zsh": "bash", "js": "javascript", "js2": "javascript",
    "emacs-lisp": "elisp", "lisp": "commonlisp", "lisp-interaction": "elisp", "makefile": "make", "cperl": "perl",
    "python3": "python", "objc": "objc",
    "objective-c": "objc", "csharp": "csharp", "f90": "fortran", "tex": "latex", "nxml": "xml", "sgml": "xml", "tf": "terraform",
    "yml": "yaml", "conf": "ini", "dosini": "ini", "systemverilog": "verilog", "proto": "proto", "rst": "", "text": "",
}  # fmt: skip
_TEMPLATES: Final = frozenset(
    ("in", "j2", "jinja", "jinja2", "tmpl", "tpl", "template", "example", "sample", "dist", "orig", "bak")
)
"""Endings that say what the file is for, after the one that says what it holds: `nginx.conf.j2`, `config.yaml.example`."""


def _first(*rules: tuple[str, str], otherwise: str | None) -> Callable[[str], str | None]:
    compiled = [(re.compile(pattern, re.MULTILINE), language) for pattern, language in rules]

    def decide(text: str) -> str | None:
        return next((language for pattern, language in compiled if pattern.search(text)), otherwise)

    return decide


_XML: Final = r"\A\s*(?:<\?xml|<!DOCTYPE|<[A-Za-z])"
# Extensions that several languages claim, decided by a look at the first characters; None is text that no grammar reads.
_AMBIGUOUS: Final[dict[str, Callable[[str], str | None]]] = {
    "as": _first((r"^\s*#|^\s*(?:shared |mixin )?(?:class|void|interface)\b.*@", "cpp"), otherwise="actionscript"),
    "bb": _first((r"^\s*\((?:ns|def|defn|let|require)\b", "clojure"), otherwise="bitbake"),
    "cl": _first((r"^\s*\((?i:defun|defmacro|in-package|defpackage|defvar|defparameter)\b", "commonlisp"), otherwise="c"),
    "cls": _first((r"\\(?:NeedsTeXFormat|ProvidesClass)", "latex"), otherwise="apex"),
    "cs": _first((r"![\w\s]+methodsFor: ", ""), otherwise="csharp"),
    "d": _first(
        (r"^\s*(?:module\s+[\w.]+\s*;|import\s+[\w.]+|unittest\b|(?:class|struct|enum|template)\s+\w+)", "d"),
        (r"^[\w./\\-]+\s*:(?:\s|$)", "make"),
        otherwise="d",
    ),
    "es": _first((r"^\s*%%|^main\s*\(.*\)\s*->", "erlang"), otherwise="javascript"),
    "ex": _first((r"^\s*(?:--|include\s+\S+\.e$|(?:global\s+)?(?:procedure|function)\s)", ""), otherwise="elixir"),
    "f": _first((r"^: \S", ""), otherwise="fortran"),
    "for": _first((r"^: \S", ""), otherwise="fortran"),
    "frag": _first((r"^\s*(?:#version|uniform|precision|void main|varying|in vec|out vec)", "glsl"), otherwise="javascript"),
    "fs": _first(
        (r"^\s*(?:#version|precision|uniform|varying|void main)", "glsl"),
        (r"^(?:: |new-device)", ""),
        otherwise="fsharp",
    ),
    "gs": _first((r"^#version\s+\d", "glsl"), (r"^\s*(?:function|var|const|let)\s", "javascript"), otherwise=None),
    "h": _first(
        (r"^\s*(?:@interface|@protocol|@class|@property|#import)\b", "objc"),
        (r"^\s*(?:class|namespace|template)\b[^;]*|\bstd::|^\s*(?:public|private|protected)\s*:", "cpp"),
        otherwise="c",
    ),
    "hh": _first((r"\A(?:#!.*\n)?<\?hh", "hack"), otherwise="cpp"),
    "inc": _first(
        (r"<\?(?:php|=)", "php"),
        (r"^\s*(?:mov|push|pop|jmp|call|db|dw|equ)\s", "asm"),
        (r"^(?:inherit|require|SUMMARY|DESCRIPTION|LICENSE|SRC_URI|DEPENDS|\w+:append)\b", "bitbake"),
        (r"^\s*(?:#include|#define|#if)", "c"),
        (r"(?i)^\s*(?:procedure|begin|end[.;]|\{\$)", "pascal"),
        otherwise=None,
    ),
    "m": _first(
        (r"^\s*(?:#import|@interface|@implementation|@protocol|@import|@end)\b", "objc"),
        (r":- module|^\s*\(\*|\*\)\s*$|^: \S", ""),
        otherwise="matlab",
    ),
    "ml": _first((r"^\s*(?:fun |structure |signature |val \w+ = fn )", ""), otherwise="ocaml"),
    "mm": _first((_XML, "xml"), otherwise="objc"),
    "mod": _first((r"^module\s+\S+\s*$", "gomod"), (r"<!ENTITY |\A\s*<\?xml", "xml"), otherwise=None),
    "p8": _first((r"__lua__", "lua"), otherwise=None),
    "pl": _first((r"^#!.*perl|^\s*(?:use\s+\w|my\s+[$@%]|sub\s+\w|package\s+\w)", "perl"), (r"^[^#\n]*:-", ""), otherwise="perl"),
    "pm": _first((r"/\* XPM \*/", "c"), otherwise="perl"),
    "pp": _first((r"(?i)^\s*(?:unit|program|library|uses|interface|begin|end[.;])", "pascal"), otherwise="puppet"),
    "pro": _first((r"last_client=", "ini"), otherwise=None),
    "r": _first((r"\bREBOL\b|\bRebol\b", ""), otherwise="r"),
    "rs": _first((_XML, "xml"), (r"^\s*#pragma\s+(?:rs|version)", "c"), otherwise="rust"),
    "sc": _first((r"\^(?:this|super)\.|^\s*~\w+\s*=|\bSynthDef\b", ""), otherwise="scala"),
    "scm": _first((r"^\s*\((?:define|let|lambda|import|library|use-modules|module)\b", "scheme"), otherwise="query"),
    "sol": _first((r"^[DGMT]\d\d\*\s*$", ""), otherwise="solidity"),
    "t": _first(
        (r"^\s*(?:use\s+\w|my\s+[$@%]|sub\s+\w)", "perl"),
        (r"^\s*(?:local|return|import)\s", "lua"),
        (r"^\s*%[ \t]|^\s*var\s+\w+\s*:", ""),
        otherwise="perl",
    ),
    "ts": _first((_XML, "xml"), otherwise="typescript"),
    "tsx": _first((r"\A\s*<\?xml", "xml"), otherwise="tsx"),
    "typ": _first((_XML, "xml"), otherwise="typst"),
    "v": _first(
        (r"^\s*(?:endmodule|module\s+\w+\s*(?:#?\s*\(|;)|`(?:timescale|define|include|ifdef))|^\s*always\s*@", "verilog"),
        (r"(?:^|\s)(?:Proof|Qed)\.(?:$|\s)|^\s*Require\s+(?:Import|Export)\s", ""),
        otherwise="v",
    ),
}  # fmt: skip


def language_of(name: str, head: bytes) -> str | None:
    """The grammar's name for a file, or None when it is no source code that we know. `head` is the file's beginning."""
    lowered = name.lower()
    if lowered in BY_NAME:
        return BY_NAME[lowered]
    if lowered.startswith(("dockerfile.", "containerfile.")):
        return "dockerfile"
    for extension in _extensions(lowered):
        if extension in _AMBIGUOUS:
            return _AMBIGUOUS[extension](_text(head)) or None
        if extension in BY_EXTENSION:
            return BY_EXTENSION[extension]
    return _by_content(head)


def _extensions(name: str) -> Iterator[str]:
    """What stands after each of the last dots, the longest first; then without an ending such as `.example`."""
    parts = name.split(".")
    if len(parts) > 2:
        yield ".".join(parts[-2:])
    if len(parts) > 1:
        yield parts[-1]
        if len(parts) > 2 and parts[-1] in _TEMPLATES:
            yield from _extensions(".".join(parts[:-1]))


def _by_content(head: bytes) -> str | None:
    shebang = _SHEBANG.match(head)
    if shebang is not None:
        program = shebang[1].decode("ascii", "replace")
        return next((language for pattern, language in _INTERPRETERS if re.fullmatch(pattern, program)), "") or None
    start = head[:200].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<?xml"):
        return "xml"
    if start.startswith((b"<?php", b"<?hh")):
        return "php" if start.startswith(b"<?php") else "hack"
    return _by_modeline(head)


def _by_modeline(head: bytes) -> str | None:
    lines = head.split(b"\n", 5)[:5]
    found = next((match for line in lines[:2] if (match := _EMACS.search(line))), None) or next(
        (match for line in lines if (match := _VIM.search(line))), None
    )
    if found is None:
        return None
    mode = found[1].decode("ascii", "replace").lower()
    language = _MODES.get(mode, mode)
    return language if language in _GRAMMARS else None


def _text(head: bytes) -> str:
    return head[:_LOOKED_AT].decode("utf-8", "replace")


_GRAMMARS: Final = frozenset((*BY_EXTENSION.values(), *BY_NAME.values()))
