"""Rich Text documents to elements: headings by their styles, lists, tables, notes.

Not striprtf, which knows neither headings nor rows: it gives one text without places.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, replace
from typing import Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.rtf_tokens import CODE_PAGES, SYMBOLS, Token, codec_of, tokens
from shared.documents import ParsedDocument
from shared.text import clean_text

_MOST_DEPTH: Final = 5_000
_HEADING_NAME: Final = re.compile(r"\s*heading (\d)\s*", re.IGNORECASE)
_BULLET: Final = re.compile(r"^[•·▪◦‣∙\uf0b7o§-]$")
# fmt: off
_SKIPPED: Final = frozenset((
    "colortbl", "pict", "object", "objdata", "fldinst", "datafield", "bkmkstart", "bkmkend", "listtable", "listoverridetable",
    "rsidtbl", "generator", "themedata", "colorschememapping", "datastore", "latentstyles", "xmlnstbl", "mmathPr", "sp",
    "revtbl", "filetbl", "xe", "tc", "pgdsctbl", "nonshppict", "picprop", "atnid", "atnref", "atndate", "atnparent",
    "author", "operator", "creatim", "revtim", "printim", "company", "doccomm", "keywords", "subject", "manager", "category",
    "htmltag", "mhtmltag", "nonesttables", "background", "template",
    "passwordhash", "protusertbl", "userprops", "wgrffmtfilter", "ftnsep", "ftnsepc",
    "ftncn", "aftnsep", "aftnsepc", "aftncn", "shprslt", "upr",
))
_KEPT: Final = frozenset((  # destinations that may be ignored by old readers, and hold text
    "shpinst", "annotation", "atnauthor", "footnote", "shppict", "listtext", "pntext", "shptxt",
))
_ASIDE: Final = frozenset((
    "header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf", "footnote", "annotation", "shptxt",
    "title", "fonttbl", "stylesheet", "atnauthor", "listtext", "pntext",
))
# fmt: on


@dataclass(slots=True)
class _Group:
    """What a group inherits from the one around it, and a destination's own text."""

    skipped: bool = False
    hidden: bool = False
    codec: str = "cp1252"
    unicode_skip: int = 1
    aside: str = ""  # the destination whose text is gathered apart
    text: list[str] = field(default_factory=list)
    font: int = 0
    style: int = 0
    level: int | None = None


def parse(file: File) -> ParsedDocument:
    """The document's text.

    Raises:
        Unreadable: it is nested without end.
    """
    reader = _Reader()
    for token in tokens(file.data):
        reader.take(token)
    reader.finish()
    # Only pictures: a scan that was put into a document.
    pages = reader.pictures if reader.builder.is_empty and reader.pictures else None
    return ParsedDocument(
        elements=tuple(reader.builder.elements),
        media_type=file.media_type,
        title=reader.title,
        page_count=pages,
        pages_with_text=0 if pages else None,
    )


class _Reader:
    def __init__(self) -> None:
        self.builder = Builder()
        self.title: str | None = None
        self.pictures = 0
        self._stack = [_Group()]
        self._body = self._stack[0].text
        self._bytes = bytearray()
        self._to_skip = 0
        self._star = False
        self._fonts: dict[int, str] = {}
        self._levels: dict[int, int] = {}  # heading levels by style
        self._style = 0
        self._level: int | None = None
        self._label: str | None = None
        self._items: list[str] = []
        self._in_table = False
        self._row: list[str] = []
        self._rows: list[list[str]] = []
        self._hanging: list[str] = []
        self._author = ""

    def take(self, token: Token) -> None:
        """Work on one token."""
        group = self._stack[-1]
        if token.kind == "byte" or (token.kind == "text" and token.text):
            self._characters(group, token)
            return
        self._decode(group)
        if token.kind == "open":
            if len(self._stack) > _MOST_DEPTH:
                raise Unreadable("The Rich Text document is nested too deeply to be read.", code="too_deep")
            own = group.aside == "stylesheet" and len(self._stack) > 1 and self._stack[-2].aside != "stylesheet"
            self._stack.append(replace(group, level=None, text=[] if own else group.text))
            self._to_skip = 0
        elif token.kind == "close":
            self._close()
            self._to_skip = 0
        elif token.kind == "star":
            self._star = True
            return
        elif token.kind == "word":
            self._word(group, token)
        self._star = False

    def finish(self) -> None:
        """End what is still open: a file that was cut off ends in the middle."""
        self._decode(self._stack[-1])
        while len(self._stack) > 1:
            self._close()
        self._end_paragraph()
        self._end_table()
        self._end_list()

    def _characters(self, group: _Group, token: Token) -> None:
        text = token.text
        if self._to_skip:
            # What stands behind a Unicode character for readers that know none.
            skipped = min(self._to_skip, len(text))
            self._to_skip -= skipped
            text = text[skipped:]
        if not text or group.skipped or group.hidden:
            return
        if token.kind == "byte":
            self._bytes += text.encode("latin-1")
        elif self._bytes and text.isascii() and group.codec in ("cp932", "gb18030", "big5", "cp949", "johab"):
            # The second byte of a character may stand as a plain letter.
            self._bytes += text[:1].encode("latin-1")
            self._decode(group)
            group.text.append(text[1:])
        else:
            self._decode(group)
            group.text.append(text if text.isascii() else text.encode("latin-1").decode(group.codec, "replace"))

    def _decode(self, group: _Group) -> None:
        if self._bytes:
            group.text.append(bytes(self._bytes).decode(group.codec, "replace"))
            self._bytes.clear()

    def _word(self, group: _Group, token: Token) -> None:
        word, number = token.text, token.number
        if word in _ASIDE and not (group.skipped and word != "shptxt"):
            group.aside, group.text = word, []
        elif word == "ud":
            # The same text as before it, in Unicode.
            group.skipped = False
        elif word in _SKIPPED or (self._star and word not in _KEPT):
            self.pictures += word == "pict"
            group.skipped = True
        elif word == "u" and number is not None:
            if not group.skipped and not group.hidden:
                group.text.append(chr(number & 0xFFFF))
            self._to_skip = group.unicode_skip
        elif word == "uc":
            group.unicode_skip = max(0, min(number or 0, 16))
        elif word in ("ansicpg", "mac", "pc", "pca"):
            group.codec = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}.get(word) or _known(codec_of(number))
        elif word in ("f", "fcharset"):
            self._font(group, word, number or 0)
        elif word in ("v", "deleted"):
            group.hidden = number != 0
        elif word in SYMBOLS:
            group.text.append("" if group.skipped or group.hidden else SYMBOLS[word])
        elif not group.skipped:
            self._structure(group, word, number)

    def _font(self, group: _Group, word: str, number: int) -> None:
        if group.aside == "fonttbl":
            if word == "f":
                group.font = number
            elif number in CODE_PAGES:
                self._fonts[group.font] = CODE_PAGES[number]
        elif word == "f":
            group.codec = self._fonts.get(number, self._stack[0].codec)

    def _structure(self, group: _Group, word: str, number: int | None) -> None:
        if group.aside == "stylesheet":
            if word == "s":
                group.style = number or 0
            elif word == "outlinelevel":
                group.level = (number or 0) + 1
        elif word == "s":
            self._style = number or 0
        elif word == "outlinelevel":
            self._level = (number or 0) + 1
        elif group.aside and word in ("par", "line", "cell", "row", "nestcell"):
            group.text.append("\n")
        elif word in ("par", "sect", "page"):
            self._end_paragraph()
        elif word == "pard":
            self._in_table, self._style, self._level = False, 0, None
        elif word == "intbl":
            self._in_table = True
        elif word == "cell":
            self._row.append(self._take_paragraph())
        elif word in ("nestcell", "nestrow"):
            self._body.append(" ")
        elif word == "row":
            self._rows.append(self._row)
            self._row = []

    def _close(self) -> None:
        if len(self._stack) < 2:
            return
        group = self._stack.pop()
        outer = self._stack[-1]
        if group.text is outer.text:
            return
        text = _joined(group.text).strip()
        kind = group.aside
        if group.skipped or outer.skipped or not kind:
            return
        if kind == "stylesheet":
            match = _HEADING_NAME.fullmatch(text.rstrip(";"))
            level = int(match[1]) if match else group.level
            if level is not None and outer.aside == "stylesheet":
                self._levels[group.style] = level
        elif kind == "title":
            self.title = " ".join(clean_text(text).split())[:300] or None
        elif kind in ("listtext", "pntext"):
            self._label = "-" if _BULLET.match(text) else text
        elif kind == "atnauthor":
            self._author = text
        elif kind == "footnote":
            mark = f"[^{sum(line.startswith('[^') for line in self._hanging) + 1}]"
            self._hanging.append(f"{mark}: {text}")
            outer.text.append(mark)
        elif kind == "annotation":
            self._hanging.append(f"Comment{f' by {self._author}' if self._author else ''}: {text}")
        elif kind.startswith(("header", "footer")):
            self.builder.text(text)
        elif kind == "shptxt":
            self._hanging.append(text)

    def _take_paragraph(self) -> str:
        text = _joined(self._body).strip()
        self._body.clear()
        return text

    def _end_paragraph(self) -> None:
        if self._in_table:
            self._body.append("\n")
            return
        text = self._take_paragraph()
        self._end_table()
        level = self._level or self._levels.get(self._style)
        label, self._label = self._label, None
        if text and level is not None and level <= 9:
            self._end_list()
            self.builder.heading(f"{label} {text}" if label and label != "-" else text, level)
        elif text and label:
            self._items.append(f"{label} {text}")
        elif text:
            self._end_list()
            self.builder.text(text)
        hanging, self._hanging = self._hanging, []
        if hanging:
            self._end_list()
        for one in hanging:
            self.builder.text(one)

    def _end_table(self) -> None:
        if self._rows or self._row:
            self._end_list()
            self.builder.table([*self._rows, self._row])
            self._rows, self._row = [], []

    def _end_list(self) -> None:
        if self._items:
            self.builder.text("\n".join(self._items))
            self._items.clear()


def _joined(parts: list[str]) -> str:
    """The text; a character beyond the basic plane comes as two halves."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _known(codec: str) -> str:
    try:
        return codecs.lookup(codec).name
    except LookupError:
        return "cp1252"
