"""HTML to elements: the text that a reader sees, with headings, lists, tables and code.

lxml, not a parser by the letter of HTML5: lexbor reads as fast, but takes time in the square of the depth of hostile trees.
"""

from __future__ import annotations

import codecs
import html
import re
from typing import Final

from lxml import etree
from lxml.html import HTMLParser, document_fromstring

from ingest_worker.parse.building import Builder
from ingest_worker.parse.encoding import Decoded, decode
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.file import File
from ingest_worker.parse.html_blocks import Blocks
from ingest_worker.parse.pictures import Pictures
from ingest_worker.parse.xmltree import Node
from shared.documents import ParsedDocument, Span
from shared.text import clean_text

_CHARSET: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.I
)
_HEAD_BYTES: Final = 4096
# Declared by default more often than by knowledge: what the bytes say goes before.
_CARELESS: Final = frozenset(("utf-8", "iso8859-1", "cp1252", "ascii"))
# Python's codecs that turn bytes into text and are no character sets: some take time in the square of the length.
_NO_CHARSETS: Final = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"))
_DECLARATION: Final = re.compile(r"^\s*<\?xml[^>]*\?>")
_BREAKING: Final = frozenset(("p", "div", "br", "li", "tr", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "pre"))
TOO_DEEP: Final = "The page is nested more than 2,000 deep: its text was taken without headings, lists and tables."


def parse(file: File) -> ParsedDocument:
    """The page's text.

    Raises:
        Skipped: it has none.
    """
    decoded = decode_html(file.data)
    builder = Builder()
    title, warnings = add_html(builder, decoded.text, pictures=file.pictures)
    if builder.is_empty:
        raise Skipped(f"{file.name} holds no text outside of scripts and styles.", code="empty")
    return ParsedDocument(
        elements=tuple(builder.elements),
        media_type=file.media_type,
        title=title,
        encoding=decoded.codec,
        warnings=(*decoded.warnings, *warnings),
    )


def add_html(
    builder: Builder, text: str, span: Span | None = None, pictures: Pictures | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """Add what a page says to `builder`, and the pictures that it holds itself to `pictures`; the page's title and sentences for
    people come back.
    """
    if span is not None:
        builder.span = span
    root, too_deep = _tree(text)
    if root is None or too_deep:
        plain = _strip(text)
        for paragraph in re.split(r"\n\s*\n", plain):
            builder.text(paragraph)
        return None, (TOO_DEEP,) if too_deep else ()
    before = len(builder.elements)
    Blocks(builder, pictures=pictures).walk(root)
    if len(builder.elements) == before:
        Blocks(builder, everything=True).walk(root)
    return _title(root), ()


def decode_html(data: bytes, declared: str | None = None) -> Decoded:
    """Decode a page: byte order mark, UTF-8 where it is that, the codec that the page or `declared` names, else as any text."""
    found = decode(data)
    if found.codec.startswith(("utf", "iso2022")) and not found.replaced:
        return found
    for name in (declared, _declared(data)):
        codec = _codec(name)
        if codec is None or codec in _CARELESS or codec.replace("_", "-") in _NO_CHARSETS:
            continue
        try:
            return Decoded(text=clean_text(data.decode(codec)), codec=codec)
        except (UnicodeError, LookupError):
            continue
    return found


def _declared(data: bytes) -> str | None:
    match = _CHARSET.search(data[:_HEAD_BYTES])
    return (match[1] or match[2]).decode("ascii", "replace") if match else None


def _codec(name: str | None) -> str | None:
    if not name:
        return None
    # What browsers do (WHATWG, Encoding, section 4.2): these names mean Microsoft's wider tables.
    wider = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "iso8859-9": "cp1254"}
    try:
        codec = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):  # a name with NUL in it is the latter
        return None
    return wider.get(codec, codec)


def _tree(text: str) -> tuple[Node | None, bool]:
    """The tree, and whether the page was nested too deeply for one: then libxml2 gives up in the middle."""
    parser = HTMLParser(huge_tree=True, remove_comments=True, remove_pis=True, encoding="utf-8")
    try:
        root = document_fromstring(_DECLARATION.sub("", text).encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return None, "depth" in str(parser.error_log)
    return root, any("depth" in entry.message for entry in parser.error_log)


def _title(root: Node) -> str | None:
    found = next(root.iter("title"), None)
    text = "" if found is None else " ".join(clean_text("".join(found.itertext())).split())
    return text[:300] or None


def _strip(text: str) -> str:
    """The text between the tags, in one pass, however they are nested."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        tag = text.find("<", at)
        if tag < 0:
            break
        parts.append(text[at:tag])
        end = text.find(">", tag)
        if end < 0:
            return html.unescape("".join(parts))
        name = re.match(r"/?\s*(\w*)", text[tag + 1 : tag + 20])
        word = name[1].lower() if name else ""
        at = end + 1
        if word in ("script", "style") and text[tag + 1] != "/":
            close = text.find(f"</{word}", at)
            at = len(text) if close < 0 else close
        elif word in _BREAKING:
            parts.append("\n\n" if word != "br" else "\n")
    return html.unescape("".join([*parts, text[at:]]))
