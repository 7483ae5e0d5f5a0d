"""Markdown to elements by its block structure alone; no line of the file is lost.

Inline text is never parsed: it is not needed, and it is where hostile input makes Markdown parsers run for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from ingest_worker.parse.encoding import Decoded
from shared.documents import Element, ElementKind, ParsedDocument, Span

_ATX: Final = re.compile(r"^\s{0,3}#{1,6}(?:[ \t]+|$)|[ \t]+#+[ \t]*$")
_FENCE: Final = re.compile(r"[ \t]*(?:`{3}|~{3})")
_ITEM: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_FRONT_MATTER: Final = re.compile(r"\A(?P<mark>---|\+\+\+)[ \t]*\n(?P<body>.*?\n)(?P=mark)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_MATTER_TITLE: Final = re.compile(r"^title\s*[:=]\s*(?P<quote>[\"']?)(?P<title>[^>|\s].*?)(?P=quote)\s*$", re.MULTILINE)
_LISTS: Final = frozenset(("bullet_list_open", "ordered_list_open"))
_BLOCKS: Final = frozenset(("fence", "table_open"))
_TITLE_CHARS: Final = 300


def parse_markdown(decoded: Decoded, media_type: str, *, mdx: bool = False) -> ParsedDocument:
    """Headings, tables, code blocks; everything else as the source text of its lines.

    Front matter is text as well; its title becomes the document's. Its tags do not: a document's tags come from its source.
    In MDX, indented text is no code, and what stands between tags is Markdown.
    """
    lines = decoded.text.split("\n")
    elements = tuple(_elements(lines, _parser(mdx).parse(decoded.text)))
    return ParsedDocument(
        elements=elements,
        media_type=media_type,
        title=_title(decoded.text, elements),
        encoding=decoded.label,
        warnings=decoded.warnings,
    )


@lru_cache(maxsize=2)
def _parser(mdx: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table").use(front_matter_plugin)
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser.disable(["code", "html_block"]) if mdx else parser


def _elements(lines: list[str], tokens: list[Token]) -> Iterator[Element]:
    done = 0
    for token, content in _blocks(lines, tokens):
        if token.map is None:
            continue
        start, end = max(token.map[0], done), token.map[1]
        if end <= start:
            continue
        # Lines without a token of their own (link definitions), and those of a list, are text.
        yield from _element(ElementKind.TEXT, lines, done, start)
        done = start
        if token.type in _LISTS:
            continue
        if token.type == "heading_open":
            yield from _heading(lines, start, end, level=int(token.tag[1:]), content=content)
        elif token.type == "table_open":
            yield from _element(ElementKind.TABLE, lines, start, end)
        elif token.type in ("fence", "code_block"):
            language = token.info.strip().split(maxsplit=1)[0].strip("{}.").lower() if token.info.strip() else None
            yield from _element(ElementKind.CODE, lines, start, end, language=language or None)
        else:
            yield from _element(ElementKind.TEXT, lines, start, end)
        done = end
    yield from _element(ElementKind.TEXT, lines, done, len(lines))


def _blocks(lines: list[str], tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """The tokens that open a block of the document itself, each with the inline source that follows it.

    Of what stands in lists the tables and code blocks with lines of their own count too.
    """
    in_list = False
    quotes = 0
    for i, token in enumerate(tokens):
        if token.level == 0:
            if token.nesting >= 0 and token.type != "inline":
                in_list = token.type in _LISTS
                following = tokens[i + 1] if i + 1 < len(tokens) else None
                yield token, following.content if following is not None and following.type == "inline" else ""
        elif token.type in ("blockquote_open", "blockquote_close"):
            quotes += token.nesting
        elif in_list and not quotes and token.type in _BLOCKS and token.map is not None:
            first = lines[token.map[0]]
            # One that begins in the line of the item's mark is left to the text of the item.
            if _FENCE.match(first) or (token.type == "table_open" and not _ITEM.match(first)):
                yield token, ""


def _heading(lines: list[str], start: int, end: int, *, level: int, content: str) -> Iterator[Element]:
    text = " ".join(content.split()) or _ATX.sub("", lines[start]).strip()
    if text:
        span = Span(line_start=start + 1, line_end=end)
        yield Element(kind=ElementKind.HEADING, text=text, level=level, span=span)
    else:
        yield from _element(ElementKind.TEXT, lines, start, end)


def _element(kind: ElementKind, lines: list[str], start: int, end: int, *, language: str | None = None) -> Iterator[Element]:
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    if start < end:
        text = "\n".join(lines[start:end])
        yield Element(kind=kind, text=text, language=language, span=Span(line_start=start + 1, line_end=end))


def _title(text: str, elements: tuple[Element, ...]) -> str | None:
    front = _FRONT_MATTER.match(text)
    match = _FRONT_MATTER_TITLE.search(front["body"]) if front else None
    if match:
        return match["title"].strip()[:_TITLE_CHARS] or None
    first = next((e for e in elements if e.kind is ElementKind.HEADING and e.level == 1), None)
    return first.text[:_TITLE_CHARS] if first else None
