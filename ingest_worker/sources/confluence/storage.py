"""Storage format, Confluence's own XHTML, to Markdown. Pure: what it needs to know is passed in.

All text that a reader of the page sees is in the Markdown; what Confluence makes up when it shows the page (lists of children,
tables of contents, contents of other pages) is not in storage format. Elements as of
confluence.atlassian.com/doc/confluence-storage-format-790796544.html, and those that Cloud's editor writes beside them (`adf-`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Final

from lxml import etree
from lxml.etree import _Element as Node

from ingest_worker.sources.confluence.storage_blocks import Writer
from ingest_worker.sources.confluence.storage_text import People, at_line_starts, collapse

REVISION = "1"
"""Another one whenever the same page becomes other Markdown: what is in the index is then read anew."""

_DEEPEST: Final = 100
"""Elements within each other that are followed; above it the text is kept and the structure is not."""
_NAMESPACES: Final = (
    'xmlns:ac="http://atlassian.com/content" xmlns:ri="http://atlassian.com/resource/identifier"'
    ' xmlns:at="http://atlassian.com/template" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' xmlns:svg="http://www.w3.org/2000/svg" xmlns:m="http://www.w3.org/1998/Math/MathML"'
)
_ENTITY: Final = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?!(?:amp|lt|gt|quot|apos);|#)(\w*;?)", re.DOTALL)
_BAD_NUMBER: Final = re.compile(r"&#(?:0*(?:[0-8]|1[1-2]|1[4-9]|2\d|3[01])|[xX]0*(?:[0-8bBcCeEfF]|1[0-9a-fA-F]));")
_NO_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_PERSON: Final = re.compile(r"""\bri:(?:account-id|userkey|username)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_CDATA: Final = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_TAG: Final = re.compile(r"<!--.*?(?:-->|\Z)|</?[A-Za-z][^<>]*>", re.DOTALL)

__all__ = ["REVISION", "People", "mentioned", "to_markdown"]


def to_markdown(storage: str, *, title: str, people: Mapping[str, str] | None = None) -> str:
    """A page as Markdown: its title as the first heading, its own headings one level below.

    `people` are the names of account ids, user keys and user names that the page mentions. What is not well-formed, or nested
    without end, is given as its text.
    """
    root = _parse(storage)
    body = _plain(storage) if root is None else Writer(people or {}).document(root)
    heading = "# " + collapse(title) if title.strip() else ""
    return "\n\n".join(part for part in (heading, body) if part) + "\n"


def mentioned(storage: str) -> tuple[str, ...]:
    """Ids of the people whom a page names, as they stand in it, each once."""
    return tuple(dict.fromkeys(found for one in _PERSON.finditer(storage) if (found := html.unescape(one[1] or one[2] or ""))))


def _parse(storage: str) -> Node | None:
    text = _NO_XML.sub(" ", _BAD_NUMBER.sub(" ", storage))
    text = _ENTITY.sub(_spelled, text)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True)
    try:
        root = etree.fromstring(f"<page {_NAMESPACES}>{text}</page>", parser)
    except etree.XMLSyntaxError:
        return None
    return None if _is_deep(root) else root


def _spelled(entity: re.Match[str]) -> str:
    """A named entity of HTML as its character; an `&` that begins none as itself. CDATA stays as it is."""
    if entity[1] is None:
        return entity[0]
    character = html.unescape(entity[0])
    return html.escape(character, quote=False)


def _is_deep(root: Node) -> bool:
    depth = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > _DEEPEST:
            return True
    return False


def _plain(storage: str) -> str:
    """The text of what is no XML: without its tags, a paragraph for each line."""
    text = _CDATA.sub(lambda found: html.escape(found[1]), storage)
    lines = (collapse(html.unescape(line)) for line in _TAG.sub("\n", text).split("\n"))
    return "\n\n".join(at_line_starts(line) for line in lines if line)
