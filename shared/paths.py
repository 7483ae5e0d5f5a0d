"""The names of files as paths of documents: readable in any script, and one path for one file."""

from __future__ import annotations

import re

from shared.text import normalise_path

# How Python's file functions give a byte that is no UTF-8 (PEP 383), and what else is no character.
_BYTES = re.compile("[\udc80-\udcff]")
_OTHERS = re.compile("[\ud800-\udfff]")


def document_path(name: str) -> str:
    """The path of the document whose file has this name, as `os.listdir` gives it: NFC, with `/`, see `readable`."""
    if name.isascii() and "\\" not in name:
        return name
    return readable(normalise_path(name))


def readable(name: str) -> str:
    """A name as text that everybody takes: a byte that is no UTF-8 is written as in a URL, `caf%E9.txt`."""
    if name.isascii():
        return name
    return _OTHERS.sub("\ufffd", _BYTES.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", name))
