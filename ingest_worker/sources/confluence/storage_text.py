"""Texts as Markdown: spaces, what must not begin a line, addresses, code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

People = Mapping[str, str]
"""Names to show, by account id, user key or user name."""

_SPACES: Final = re.compile(r"[ \t\r\n\f\v]+")
# Each alternative reads a line once, however long: pages are written by others.
# What would make a heading, a quote, a list, a table, a fence or a line of a paragraph that begins with it.
_MARK: Final = re.compile(
    r"^(?:#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|`{3}|~{3}|\||={1,}\s*$|[-*_](?:\s*[-*_]){2,}\s*$|(?=[:|\s]*-)[-:|\s]*$)"
)
_NUMBER: Final = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_LANGUAGE: Final = re.compile(r"[^A-Za-z0-9+#._-]+")
_TICKS: Final = re.compile(r"`+")


def collapse(text: str) -> str:
    """The text on one line, single spaces between its words; no-break spaces are spaces."""
    return _SPACES.sub(" ", text.replace("\u00a0", " ")).strip()


def squeeze(text: str) -> str:
    """As `collapse`, with a space at an end where there was one."""
    return _SPACES.sub(" ", text.replace("\u00a0", " "))


def tidy(text: str) -> str:
    """Inline text as the lines of a paragraph: no spaces around line ends, nothing that begins a block."""
    lines = (collapse(line) for line in text.split("\n"))
    return "\n".join(at_line_starts(line) for line in lines if line)


def at_line_starts(line: str) -> str:
    """A line that Markdown takes for text, whatever it begins with."""
    if _MARK.match(line):
        return "\\" + line
    return _NUMBER.sub(r"\1\\\2", line)


def fenced(code: str, language: str = "") -> str:
    """A block of code, its fence longer than any in it."""
    longest = max((len(ticks) for ticks in _TICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    text = code.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    return f"{fence}{_LANGUAGE.sub('', language)}\n{text}\n{fence}"


def inline_code(text: str) -> str:
    """Code within a line."""
    text = collapse(text)
    if not text:
        return ""
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * (longest + 1)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def around(mark: str, text: str) -> str:
    """Inline text between marks that stand at its words, not at its spaces."""
    inner = text.strip()
    if not inner or "\n" in inner or inner.startswith(mark[0]) or inner.endswith(mark[0]):
        return text
    before = " " if text[:1].isspace() else ""
    after = " " if text[-1:].isspace() else ""
    return f"{before}{mark}{inner}{mark}{after}"


def linked(text: str, address: str) -> str:
    """A link. An address that runs a script, or names a place on the page itself, is none."""
    address = address.strip()
    if not address or address.startswith("#") or address.lower().startswith(("javascript:", "data:", "vbscript:")):
        return text
    shown = collapse(text)
    if not shown or shown == address:
        return address
    return f"[{shown}]({target(address)})"


def target(address: str) -> str:
    """An address as it stands in a link."""
    return f"<{address}>" if re.search(r"[\s()<>]", address) else address


def indented(text: str, width: int) -> str:
    """Every line but the first moved to the right."""
    pad = " " * width
    first, *others = text.split("\n")
    return "\n".join([first, *(pad + line if line else line for line in others)])
