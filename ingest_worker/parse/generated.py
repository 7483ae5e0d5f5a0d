"""What nobody wrote by hand: generated code and lock files, of which the beginning is enough, and runs of encoded data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from ingest_worker.parse.encoding import Decoded

KEPT: Final = 64_000
"""Characters of a generated file that are read; some forty passages."""

_LOOKED_AT: Final = 4_000
_NAMES: Final = re.compile(
    r"^(?:package-lock\.json|npm-shrinkwrap\.json|composer\.lock|pipfile\.lock|poetry\.lock|pdm\.lock|uv\.lock|pixi\.lock|cargo\.lock"
    r"|yarn\.lock|pnpm-lock\.yaml|bun\.lock|deno\.lock|flake\.lock|gemfile\.lock|podfile\.lock|mix\.lock|go\.sum|go\.work\.sum"
    r"|gopkg\.lock|glide\.lock|package\.resolved|module\.bazel\.lock|\.terraform\.lock\.hcl|\.pnp\.c?js"
    r"|zz_generated\..*|.*\.pb\.(?:go|h|cc|swift)|.*_pb2(?:_grpc)?\.pyi?|.*\.(?:g|freezed|gen|generated|designer)\.\w+|.*_generated\.\w+)$"
)
# A comment near the beginning that says so, as the tools of many languages write it.
_COMMENT: Final = r"^[ \t]*(?:#+|//+!?|/\*+!?|\*+|--+|;+|%+|<!--|\(\*|\"\"\"|'''|'|rem\b|dnl\b)[ \t=*-]*"
_SAYS_SO: Final = re.compile(
    _COMMENT + r"(?:[^\n]*?@generated\b"
    r"|[^\n]*?\b(?:code|file|source|content)s? (?:is |was |has been |were )?(?:automatically |auto-?)?generated\b"
    r"|[^\n]*?\b(?:automatically|machine|auto)[- ]?generated\b"
    r"|(?:auto-?|automatically )?generated (?:by|from|with|using)\b"
    r"|[^\n]*?\bgenerated\b[^\n]*\bdo not (?:edit|modify)\b"
    r"|[^\n]*?\bdo not (?:edit|modify)\b[^\n]*\bgenerated\b)",
    re.IGNORECASE | re.MULTILINE,
)
_RUN: Final = re.compile(r"[A-Za-z0-9+/=_\\%-]{4000,}")
"""Base64, hexadecimal numbers, escaped bytes: no word is so long, and no script that writes without spaces uses these letters."""
_RUN_KEPT: Final = 100


def is_generated(path: str, text: str) -> bool:
    """Whether a file of source code says, by its name or at its beginning, that a program wrote it."""
    name = PurePosixPath(path.replace("\\", "/")).name.lower()
    return bool(_NAMES.match(name) or _SAYS_SO.search(text[:_LOOKED_AT]))


def without_data(decoded: Decoded) -> tuple[Decoded, str | None]:
    """The text with long runs of encoded data shortened, and a sentence on that when there were any. Lines stay as they are."""
    if len(decoded.text) < _RUN_KEPT or not _RUN.search(decoded.text):
        return decoded, None
    text, runs = _RUN.subn(lambda run: f"{run[0][:_RUN_KEPT]}…", decoded.text)
    left_out = len(decoded.text) - len(text)
    return replace(decoded, text=text), f"{runs} runs of encoded data were left out ({left_out} characters)."


def beginning(decoded: Decoded) -> tuple[Decoded, str | None]:
    """The beginning of a generated file, up to the end of a line, and a sentence on the rest when there is any."""
    if len(decoded.text) <= KEPT:
        return decoded, None
    end = decoded.text.rfind("\n", 0, KEPT)
    kept = decoded.text[: end if end > 0 else KEPT]
    lines, all_lines = kept.count("\n") + 1, decoded.text.rstrip("\n").count("\n") + 1
    return replace(decoded, text=kept), f"The file is generated: the first {lines} of its {all_lines} lines were read."
