"""Pictures: one page each, without text until something reads it from the pixels. Drawings (SVG) tell their text themselves."""

from __future__ import annotations

from ingest_worker.parse.building import Builder
from ingest_worker.parse.file import File
from ingest_worker.parse.ocr import Ocr
from ingest_worker.parse.xmltree import descendants, parse_xml
from shared.documents import ParsedDocument, Span


def parse(file: File) -> ParsedDocument:
    """The picture as one page.

    Raises:
        Unreadable: a drawing is damaged.
    """
    builder = Builder()
    if file.media_type == "image/svg+xml":
        for node in descendants(parse_xml(file.data, "The drawing"), "title", "desc", "text"):
            builder.text(" ".join("".join(node.itertext()).split()))
    ocr = Ocr(file.ocr)
    if builder.is_empty and file.media_type != "image/svg+xml":
        builder.text(ocr.read(file.data), Span(page_start=1, page_end=1))
    return ParsedDocument(
        elements=tuple(builder.elements),
        media_type=file.media_type,
        page_count=1,
        pages_with_text=0 if builder.is_empty else 1,
        ocr=ocr.outcome,
    )
