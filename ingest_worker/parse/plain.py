"""Plain text to elements: one for each paragraph, with its lines, and its page where form feeds mark pages."""

from __future__ import annotations

from collections.abc import Iterator

from ingest_worker.parse.encoding import Decoded
from shared.documents import Element, ElementKind, ParsedDocument, Span


def parse_plain(decoded: Decoded, media_type: str) -> ParsedDocument:
    """Paragraphs end at blank lines and at form feeds. Pages are known only when the text holds form feeds."""
    paged = "\f" in decoded.text
    elements = tuple(_paragraphs(decoded.text, paged=paged))
    pages = decoded.text.rstrip("\f\n").count("\f") + 1 if paged else None
    with_text = len({element.span.page_start for element in elements}) if paged else None
    return ParsedDocument(
        elements=elements,
        media_type=media_type,
        page_count=pages,
        pages_with_text=with_text,
        encoding=decoded.label,
        warnings=decoded.warnings,
    )


def _paragraphs(text: str, *, paged: bool) -> Iterator[Element]:
    page = 1
    paragraph: list[str] = []
    start = 0

    def flush() -> Iterator[Element]:
        if paragraph:
            number = page if paged else None
            end = start + len(paragraph) - 1
            yield Element(
                kind=ElementKind.TEXT,
                text="\n".join(paragraph),
                span=Span(page_start=number, page_end=number, line_start=start, line_end=end),
            )
            paragraph.clear()

    for number, line in enumerate(text.split("\n"), start=1):
        for i, part in enumerate(line.split("\f")):
            if i:
                yield from flush()
                page += 1
            if part.strip():
                if not paragraph:
                    start = number
                paragraph.append(part)
            elif i or "\f" not in line:
                yield from flush()
    yield from flush()
