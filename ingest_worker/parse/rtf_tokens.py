"""Rich Text to tokens (RTF Specification 1.9.1, "RTF Syntax"), and the code pages of its fonts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?"
    r"|\\'(?P<hex>[0-9a-fA-F]{2})"
    r"|\\(?P<symbol>[^a-zA-Z'])"
    r"|(?P<brace>[{}])"
    r"|(?P<text>[^\\{}\r\n]+)"
    r"|[\r\n]+|\\'?",
    re.DOTALL,
)

CODE_PAGES: Final = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 255: "cp850",
}  # fmt: skip
"""Codec by the number of a font's character set (`\\fcharset`)."""

SYMBOLS: Final = {
    "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "bullet": "•", "tab": "\t",
    "line": "\n", "lbr": "\n", "softline": "\n", "emspace": " ", "enspace": " ", "qmspace": " ", "zwj": "\u200d",
    "zwnj": "\u200c",
}  # fmt: skip
"""Control words that stand for a character."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind`: `word` (a control word, with its number when it has one), `byte` (of the current code page), `text`,
    `open`, `close`, `star` (what follows may be ignored)."""

    kind: str
    text: str = ""
    number: int | None = None


def tokens(data: bytes) -> Iterator[Token]:
    """The tokens of a file. Binary data is skipped; what is no token is passed over."""
    text = data.decode("latin-1")
    at = 0
    while match := _TOKEN.match(text, at):
        at = match.end()
        if match["word"]:
            number = int(match["number"]) if match["number"] else None
            if match["word"] == "bin":
                at += max(0, number or 0)
            else:
                yield Token("word", match["word"], number)
        elif match["hex"]:
            yield Token("byte", chr(int(match["hex"], 16)))
        elif match["brace"]:
            yield Token("open" if match["brace"] == "{" else "close")
        elif match["text"]:
            yield Token("text", match["text"])
        elif match["symbol"]:
            yield _symbol(match["symbol"])


def codec_of(number: int | None) -> str:
    """The codec of a Windows code page."""
    return {10000: "mac_roman", 936: "gb18030", 65001: "utf-8"}.get(number or 1252, f"cp{number or 1252}")


def _symbol(symbol: str) -> Token:
    if symbol == "*":
        return Token("star")
    if symbol in "\r\n":
        return Token("word", "par")
    if symbol == "\t":
        return Token("text", "\t")
    # A hyphen that is only shown at a line's end says nothing.
    return Token("text", {"~": "\u00a0", "_": "-", "-": ""}.get(symbol, symbol if symbol in "\\{}" else ""))
