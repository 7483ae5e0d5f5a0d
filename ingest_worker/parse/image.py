"""Pictures: one page each (a TIFF has as many as it has pictures), without text until something reads it from the pixels.

Drawings (SVG) tell their text themselves.
"""

from __future__ import annotations

from ingest_worker.parse.building import Builder
from ingest_worker.parse.file import File
from ingest_worker.parse.ocr import Ocr
from ingest_worker.parse.xmltree import descendants, parse_xml
from shared.documents import ParsedDocument, Span


def parse(file: File) -> ParsedDocument:
    """The picture's pages, counted from 1.

    Raises:
        Unreadable: a drawing is damaged.
    """
    if file.media_type == "image/svg+xml":
        return _drawing(file)
    if file.media_type == "image/tiff":
        scan = _scan(file)
        if scan is not None:
            return scan
    builder, ocr = Builder(), Ocr(file.ocr)
    place = Span(page_start=1, page_end=1)
    builder.text(ocr.read(file.data), place)
    if file.pictures is not None:
        file.pictures.add_file(file.data, place)
    return ParsedDocument(
        elements=tuple(builder.elements),
        media_type=file.media_type,
        page_count=1,
        pages_with_text=0 if builder.is_empty else 1,
        ocr=ocr.outcome,
    )


def _drawing(file: File) -> ParsedDocument:
    builder = Builder()
    for node in descendants(parse_xml(file.data, "The drawing"), "title", "desc", "text"):
        builder.text(" ".join("".join(node.itertext()).split()))
    with_text = 0 if builder.is_empty else 1
    return ParsedDocument(elements=tuple(builder.elements), media_type=file.media_type, page_count=1, pages_with_text=with_text)


def _scan(file: File) -> ParsedDocument | None:
    """The pages of a TIFF; None when it has but one, which is a picture like any other, or when its pages cannot be told."""
    from ingest_worker.parse.frames import Frames  # the library takes a tenth of a second to load

    try:
        frames = Frames(file.data)
    except ValueError:
        return None
    if frames.pictures < 2:
        return None
    builder, ocr = Builder(), Ocr(file.ocr)
    with_text = 0
    for number in range(1, len(frames) + 1):
        file.on_page(number)
        before = len(builder.elements)
        place = Span(page_start=number, page_end=number)
        builder.text(ocr.read(b"" if ocr.obstacle else frames.picture(number - 1)), place)
        if file.pictures is not None and file.pictures.wants_more:
            file.pictures.add_file(frames.picture(number - 1), place)
        with_text += len(builder.elements) > before
    return ParsedDocument(
        elements=tuple(builder.elements),
        media_type=file.media_type,
        page_count=len(frames),
        pages_with_text=with_text,
        ocr=ocr.outcome,
        unread=(f"Of the scan only the first {len(frames)} pages were read. Split it.",) if frames.is_cut else (),
    )
