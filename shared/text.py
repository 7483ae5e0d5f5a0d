"""The one place that cleans text, before any offset or line is computed from it."""

from __future__ import annotations

import re
import unicodedata

_LINE_ENDS = re.compile(r"\r\n?|\u2028|\u2029")
# NUL and the other C0 controls except tab, newline and form feed; DEL; C1 controls; noncharacters U+FFFE and U+FFFF.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Text that PostgreSQL, JSON and every tokenizer accept: NFC, `\\n` line ends, no control characters, no lone surrogates.

    A lone surrogate becomes U+FFFD; control characters and byte order marks go; tab, newline and form feed stay.
    """
    text = _LINE_ENDS.sub("\n", text)
    text = _SURROGATES.sub("\ufffd", text)
    text = _CONTROLS.sub("", text)
    return unicodedata.normalize("NFC", text)


def normalise_path(path: str) -> str:
    """A document's path as its identity: NFC, with `/`, so that one file is one document on every system."""
    return unicodedata.normalize("NFC", path).replace("\\", "/")
