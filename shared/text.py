"""The one place that cleans text, before any offset or line is computed from it."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_LINE_ENDS: Final = re.compile(r"\r\n?|\u2028|\u2029")
# NUL and the other C0 controls except tab, newline and form feed; DEL; C1 controls; noncharacters U+FFFE and U+FFFF; byte order
# marks; soft hyphens.
_CONTROLS: Final = "\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\xad\ufffe\uffff\ufeff"
_SURROGATES: Final = "\ud800-\udfff"
# What typesetting makes of letters, and nobody types into a search: Latin and Armenian ligatures, Hebrew and Arabic letters by
# their shape, Kangxi radicals instead of ideographs. U+FDF0 to U+FDFF are words and signs that are meant as such.
_SHAPES: Final = "\ufb00-\ufb4f\ufb50-\ufdef\ufe70-\ufefc\u2f00-\u2fd5"
_ASCII_CONTROLS: Final = dict.fromkeys((*range(0x09), 0x0B, *range(0x0E, 0x20), 0x7F))
_REMOVED: Final = re.compile(f"[{_CONTROLS}]")
_LONE: Final = re.compile(f"[{_SURROGATES}]")
_SHAPED: Final = re.compile(f"[{_SHAPES}]+")
_UNCLEAN: Final = re.compile(f"[{_CONTROLS}{_SURROGATES}{_SHAPES}]")


# What moves a cursor, turns the direction of what follows, or is not seen at all: controls, bidirectional marks, widths of zero,
# separators of lines, tags, halves of characters. Joiners belong to some scripts and to emoji, within which they stay.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff"
    f"{_SURROGATES}]|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


def visible(text: str, *, lines: bool = False) -> str:
    """A name or a message as it may be shown: nothing in it can move the cursor, turn other text round, or hide.

    Such characters stand as escapes (`\\u202e`, `\\n`), so that one name still differs from another. With `lines` ends of lines
    and tabs stay. It is for eyes and models only: what is asked for is asked by the true name.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: found[0] if lines and found[0] in "\n\t" else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def clean_text(text: str) -> str:
    """Text that PostgreSQL, JSON and every tokenizer accept: NFC, `\\n` line ends, no control characters, no lone surrogates.

    A lone surrogate becomes U+FFFD; control characters, byte order marks and soft hyphens go; tab, newline and form feed stay.
    Ligatures and other shapes of letters become the letters (`ﬁ` is `fi`). The number of lines stays as it is.
    """
    if "\r" in text or "\u2028" in text or "\u2029" in text:
        text = _LINE_ENDS.sub("\n", text)
    if text.isascii():
        return text.translate(_ASCII_CONTROLS)
    if _UNCLEAN.search(text):
        text = _LONE.sub("\ufffd", text)
        text = _REMOVED.sub("", text)
        text = _SHAPED.sub(_letters, text)
    return unicodedata.normalize("NFC", text)


def as_asked(text: str) -> str:
    """A name to look for, as PostgreSQL can be asked: NUL and lone surrogates, which no stored text holds, become U+FFFD.

    They are not left out: a filter of nothing but these would then be no filter at all.
    """
    return _LONE.sub("\ufffd", text.replace("\x00", "\ufffd"))


def normalise_path(path: str) -> str:
    """A document's path as its identity: NFC, with `/`, so that one file is one document on every system."""
    return unicodedata.normalize("NFC", path).replace("\\", "/")


def _letters(shapes: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", shapes[0])
