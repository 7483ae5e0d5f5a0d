"""E-books (EPUB 2 and 3) to elements: the chapters in their reading order, under the titles of the table of contents."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.html import add_html, decode_html
from ingest_worker.parse.package import Package, resolve
from ingest_worker.parse.xmltree import Node, attribute, child, children, descendants, parse_xml
from shared.documents import ElementKind, ParsedDocument

_PAGES: Final = frozenset(("application/xhtml+xml", "text/html", "application/x-dtbook+xml"))
# Fonts that are only made hard to copy: the text beside them is open.
_FONT_ALGORITHMS: Final = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")


def parse(file: File) -> ParsedDocument:
    """The book's text. A book of pictures alone has a page without text for each part of it.

    Raises:
        Unreadable: `encrypted`, `damaged` or `too_large`.
    """
    package = Package(file.data, "e-book")
    _refuse_protected(package)
    main = _main_part(package)
    book = parse_xml(package.read(main), "The e-book's list of parts")
    items = {item.get("id") or "": item for item in children(child(book, "manifest"), "item")}
    titles = _titles(package, main, items)
    builder = Builder()
    unread: list[str] = []
    warnings: list[str] = []
    parts = 0
    for reference in children(child(book, "spine"), "itemref"):
        item = items.get(reference.get("idref") or "")
        if item is None or item.get("media-type") not in _PAGES or "nav" in (item.get("properties") or "").split():
            continue
        name = _target(main, item.get("href"))
        parts += 1
        try:
            text = decode_html(package.read(name)).text
        except Unreadable as error:
            unread.append(str(error))
            continue
        chapter = Builder()
        _, said = add_html(chapter, text)
        warnings += said
        title = titles.get(name.lower())
        first = next(iter(chapter.elements), None)
        if title and not (first is not None and first.kind is ElementKind.HEADING and _same(first.text, title)):
            builder.heading(title, 1)
        builder.extend(chapter.elements)
    only_titles = all(element.kind is ElementKind.HEADING for element in builder.elements)
    return ParsedDocument(
        elements=() if only_titles else tuple(builder.elements),
        media_type=file.media_type,
        title=_book_title(book),
        page_count=parts if only_titles else None,
        pages_with_text=0 if only_titles else None,
        warnings=tuple(warnings),
        unread=tuple(unread),
    )


def _main_part(package: Package) -> str:
    container = parse_xml(package.read("META-INF/container.xml"), "The e-book's container")
    for node in descendants(container, "rootfile"):
        name = node.get("full-path") or ""
        if name in package:
            return name
    raise Unreadable("The e-book is damaged: its list of parts is missing. Save it anew.", code="damaged")


def _refuse_protected(package: Package) -> None:
    data = package.get("META-INF/encryption.xml")
    if data is None:
        return
    for method in descendants(parse_xml(data, "The e-book's list of encrypted parts"), "EncryptionMethod"):
        if method.get("Algorithm") not in _FONT_ALGORITHMS:
            raise Unreadable("The e-book is protected by its publisher and cannot be read here.", code="encrypted")


def _book_title(book: Node) -> str | None:
    for node in descendants(child(book, "metadata"), "title"):
        title = " ".join("".join(node.itertext()).split())
        if title:
            return title[:300]
    return None


def _titles(package: Package, main: str, items: dict[str, Node]) -> dict[str, str]:
    """The first title of each part in the table of contents, by the part's name in lower case."""
    found: dict[str, str] = {}
    for item in items.values():
        name = _target(main, item.get("href"))
        is_nav = "nav" in (item.get("properties") or "").split()
        if not (is_nav or item.get("media-type") == "application/x-dtbncx+xml") or name not in package:
            continue
        try:
            tree = parse_xml(package.read(name), "The e-book's table of contents")
        except Unreadable:
            continue
        for where, title in _nav_entries(tree) if is_nav else _ncx_entries(tree):
            found.setdefault(_target(name, where).lower(), title)
    return found


def _nav_entries(tree: Node) -> list[tuple[str, str]]:
    contents = next((nav for nav in descendants(tree, "nav") if attribute(nav, "type") == "toc"), None)
    return [(link.get("href") or "", " ".join("".join(link.itertext()).split())) for link in descendants(contents, "a")]


def _ncx_entries(tree: Node) -> list[tuple[str, str]]:
    entries = []
    for point in descendants(tree, "navPoint"):
        text = child(point, "navLabel", "text")
        content = child(point, "content")
        if text is not None and content is not None:
            entries.append((content.get("src") or "", " ".join((text.text or "").split())))
    return entries


def _target(base: str, href: str | None) -> str:
    return resolve(base, unquote((href or "").partition("#")[0]))


def _same(heading: str, title: str) -> bool:
    return "".join(heading.lower().split()) == "".join(title.lower().split())
