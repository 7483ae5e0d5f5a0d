"""Which grammar reads which file: by extension, by well-known name, by the interpreter after `#!`, by a look at the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_EXTENSIONS_OF: Final[dict[str, str]] = {
    "actionscript": "as",
    "ada": "ada adb ads",
    "agda": "agda",
    "apex": "cls trigger",
    "arduino": "ino",
    "asm": "asm s nas nasm a51",
    "astro": "astro",
    "bash": "sh bash zsh ksh bats command ebuild eclass",
    "beancount": "beancount",
    "bibtex": "bib",
    "bicep": "bicep bicepparam",
    "bitbake": "bb bbappend bbclass",
    "bsl": "bsl os",
    "c": "c h",
    "cairo": "cairo",
    "capnp": "capnp",
    "chatito": "chatito",
    "clarity": "clar",
    "clojure": "clj cljs cljc edn",
    "cmake": "cmake",
    "cobol": "cob cbl cobol cpy",
    "commonlisp": "lisp lsp cl asd",
    "cpon": "cpon",
    "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp tpp inl ixx cppm",
    "csharp": "cs csx",
    "css": "css less",
    "cuda": "cu cuh",
    "d": "d di",
    "dart": "dart",
    "dockerfile": "dockerfile containerfile",
    "dtd": "dtd ent",
    "elisp": "el",
    "elixir": "ex exs",
    "elm": "elm",
    "embeddedtemplate": "erb ejs",
    "erlang": "erl hrl escript",
    "fennel": "fnl",
    "firrtl": "fir",
    "fish": "fish",
    "fortran": "f f77 f90 f95 f03 f08 for fpp ftn",
    "fsharp": "fs fsx",
    "fsharp_signature": "fsi",
    "func": "fc",
    "gdscript": "gd",
    "gleam": "gleam",
    "glsl": "glsl vert frag geom comp tesc tese",
    "gn": "gn gni",
    "go": "go",
    "graphql": "graphql gql graphqls",
    "groovy": "groovy gradle gvy",
    "hack": "hack hh",
    "hare": "ha",
    "haskell": "hs",
    "haxe": "hx",
    "hcl": "hcl nomad",
    "heex": "heex",
    "hlsl": "hlsl fx fxh hlsli",
    "hyprlang": "hl",
    "ini": "ini cfg conf desktop service editorconfig",
    "ispc": "ispc",
    "janet": "janet",
    "java": "java",
    "javascript": "js mjs cjs jsx es6",
    "json": "json jsonc json5 jsonl ndjson geojson webmanifest avsc",
    "jsonnet": "jsonnet libsonnet",
    "julia": "jl",
    "kdl": "kdl",
    "kotlin": "kt kts",
    "latex": "tex sty ltx dtx ins",
    "linkerscript": "ld lds",
    "llvm": "ll",
    "lua": "lua rockspec",
    "luau": "luau",
    "magik": "magik",
    "make": "mk mak make",
    "matlab": "m",
    "mermaid": "mmd mermaid",
    "netlinx": "axs axi",
    "nim": "nim nims nimble",
    "ninja": "ninja",
    "nix": "nix",
    "nqc": "nqc",
    "objc": "mm",
    "ocaml": "ml",
    "ocaml_interface": "mli",
    "odin": "odin",
    "pascal": "pas pp dpr lpr",
    "perl": "pl pm t",
    "pgn": "pgn",
    "php": "php phtml php5 inc",
    "po": "po pot",
    "pony": "pony",
    "powershell": "ps1 psm1 psd1",
    "prisma": "prisma",
    "properties": "properties",
    "proto": "proto",
    "purescript": "purs",
    "python": "py pyi pyw pyx wsgi",
    "qmljs": "qml",
    "query": "scm",
    "r": "r",
    "racket": "rkt",
    "re2c": "re2c",
    "rego": "rego",
    "ron": "ron",
    "ruby": "rb rake gemspec podspec ru jbuilder",
    "rust": "rs",
    "scala": "scala sc sbt",
    "scheme": "ss sld sls",
    "scss": "scss",
    "smali": "smali",
    "smithy": "smithy",
    "solidity": "sol",
    "sparql": "sparql rq",
    "sql": "sql ddl psql",
    "squirrel": "nut",
    "starlark": "bzl star bazel",
    "svelte": "svelte",
    "swift": "swift",
    "tablegen": "td",
    "tcl": "tcl tm",
    "terraform": "tf tfvars",
    "thrift": "thrift",
    "toml": "toml",
    "tsx": "tsx",
    "twig": "twig",
    "typescript": "ts mts cts",
    "typst": "typ",
    "udev": "rules",
    "ungrammar": "ungram",
    "uxntal": "tal",
    "v": "vsh",
    "verilog": "v sv svh vh",
    "vhdl": "vhd vhdl",
    "vim": "vim vimrc",
    "vue": "vue",
    "wast": "wast",
    "wat": "wat",
    "wgsl": "wgsl",
    "xml": "xml xsd xsl xslt xmi wsdl rng plist csproj vbproj fsproj props targets xaml resx dita ditamap pom kml gpx jats",
    "yaml": "yaml yml",
    "yuck": "yuck",
    "zig": "zig zon",
}
BY_EXTENSION: Final[dict[str, str]] = {
    extension: language for language, extensions in _EXTENSIONS_OF.items() for extension in extensions.split()
}

_NAMES_OF: Final[dict[str, str]] = {
    "bash": ".bashrc .bash_profile .bash_aliases .profile .zshrc .zprofile .envrc pkgbuild apkbuild",
    "cmake": "cmakelists.txt",
    "dockerfile": "dockerfile containerfile",
    "gitattributes": ".gitattributes",
    "gitignore": ".gitignore .dockerignore .npmignore .eslintignore .prettierignore",
    "gomod": "go.mod",
    "gosum": "go.sum",
    "groovy": "jenkinsfile",
    "ini": ".editorconfig .gitconfig .npmrc .flake8 .pylintrc",
    "json": ".prettierrc .eslintrc .babelrc composer.lock pipfile.lock flake.lock",
    "kconfig": "kconfig",
    "make": "makefile gnumakefile kbuild",
    "meson": "meson.build meson_options.txt",
    "pymanifest": "manifest.in",
    "qmldir": "qmldir",
    "readline": ".inputrc",
    "requirements": "requirements.txt requirements-dev.txt constraints.txt",
    "ruby": "gemfile rakefile vagrantfile podfile fastfile brewfile guardfile capfile",
    "starlark": "build workspace buck tiltfile",
    "toml": "pipfile cargo.lock poetry.lock uv.lock pdm.lock",
    "vim": ".vimrc .gvimrc",
    "xcompose": ".xcompose",
    "yaml": ".clang-format .clang-tidy .yamllint",
}
BY_NAME: Final[dict[str, str]] = {name: language for language, names in _NAMES_OF.items() for name in names.split()}

_INTERPRETERS: Final[tuple[tuple[str, str], ...]] = (
    (r"(ba|z|k|da|a)?sh", "bash"),
    (r"python[\d.]*|pypy[\d.]*|uv", "python"),
    (r"node|nodejs|bun", "javascript"),
    (r"deno|ts-node|tsx", "typescript"),
    (r"perl[\d.]*", "perl"),
    (r"ruby[\d.]*", "ruby"),
    (r"php[\d.]*", "php"),
    (r"lua[\d.]*|luajit", "lua"),
    (r"fish", "fish"),
    (r"tclsh[\d.]*|wish", "tcl"),
    (r"Rscript", "r"),
    (r"julia", "julia"),
    (r"pwsh|powershell", "powershell"),
    (r"make|gmake", "make"),
    (r"elixir", "elixir"),
    (r"escript", "erlang"),
    (r"runghc|runhaskell", "haskell"),
    (r"groovy", "groovy"),
    (r"racket", "racket"),
)
_SHEBANG: Final = re.compile(rb"#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?([\w.+-]+)")


def _either(pattern: str, then: str, otherwise: str) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda text: then if compiled.search(text) else otherwise


# Extensions that several languages claim, decided by a look at the first characters.
_AMBIGUOUS: Final[dict[str, Callable[[str], str]]] = {
    "h": _either(r"^\s*(class|namespace|template)\b[^;]*|\bstd::", "cpp", "c"),
    "hh": _either(r"^<\?hh", "hack", "cpp"),
    "m": _either(r"^\s*(#import|@interface|@implementation|@protocol|@import)\b", "objc", "matlab"),
    "v": _either(r"^\s*(endmodule|module\s+\w+\s*(#?\s*\(|;)|`timescale)", "verilog", "v"),
    "cls": _either(r"\\(NeedsTeXFormat|ProvidesClass)", "latex", "apex"),
    "ts": _either(r"\A\s*(<\?xml|<!DOCTYPE TS)", "xml", "typescript"),
    "inc": _either(r"<\?php", "php", "bitbake"),
    "scm": _either(r"^\s*\((define|let|lambda|import|library|use-modules)\b", "scheme", "query"),
    "t": _either(r"\b(use strict|use warnings|Test::More|my \$)", "perl", "perl"),
    "fs": _either(r"^\s*(#version|void main|precision )", "glsl", "fsharp"),
}


def language_of(name: str, head: bytes) -> str | None:
    """The grammar's name for a file, or None when it is no source code that we know. `head` is the file's beginning."""
    lowered = name.lower()
    if lowered in BY_NAME:
        return BY_NAME[lowered]
    stem, dot, extension = lowered.rpartition(".")
    if dot:
        if extension in _AMBIGUOUS:
            return _AMBIGUOUS[extension](head[:20_000].decode("utf-8", "replace"))
        if extension in BY_EXTENSION:
            return BY_EXTENSION[extension]
    if stem.startswith(("dockerfile", "containerfile")) or lowered.startswith("dockerfile."):
        return "dockerfile"
    return _by_shebang(head) or _by_declaration(head)


def _by_shebang(head: bytes) -> str | None:
    match = _SHEBANG.match(head)
    if match is None:
        return None
    program = match[1].decode("ascii", "replace")
    return next((language for pattern, language in _INTERPRETERS if re.fullmatch(pattern, program)), None)


def _by_declaration(head: bytes) -> str | None:
    start = head[:200].lstrip(b"\xef\xbb\xbf \t\r\n")
    return "xml" if start.startswith(b"<?xml") else None
