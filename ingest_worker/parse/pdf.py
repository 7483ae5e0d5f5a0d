"""PDF to elements: the text layer, one page at a time, with the PDF's own 1-based page index and the label that is printed on it.

Tables come out as lines of text: a PDF has no rows and columns, and pdfium guesses none. Headings are those of the outline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pypdfium2 as pdfium

from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.inside import Inside
from ingest_worker.parse.ocr import DPI, Ocr
from ingest_worker.parse.pdf_document import document_title, open_pdf, page_labels, picture_of
from ingest_worker.parse.pdf_extras import attached_files, dynamic_form, is_dynamic_form
from ingest_worker.parse.pdf_layout import join_divided_words, split_paragraphs, without_running_lines
from ingest_worker.parse.pdf_outline import Heading, find_headings, read_outline
from ingest_worker.parse.pdf_page import PageText, is_garbage, read_page
from ingest_worker.parse.pdf_second import is_better, second_opinion
from ingest_worker.parse.pictures import Pictures
from shared.documents import Element, ElementKind, ParsedDocument, Span

__all__ = ["PdfLimits", "is_garbage", "parse_pdf"]

_MOST_DOUBTFUL = 50
"""Pages of a document that get a second opinion: it takes half a second for a full page."""
_MOST_BLANK = 5
"""At most one page in so many counts as blank: in a broken file many pages only look it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfLimits:
    """What is read of one file at most."""

    pages: int = 20_000
    characters: int = 60_000_000


def parse_pdf(file: File, limits: PdfLimits) -> ParsedDocument:
    """The text layer of each page. A page whose text is garbage (no Unicode map) counts as a page without text.

    A blank page has nothing that could be read and counts as read.

    Raises:
        Unreadable: `encrypted`, `unsupported_filter`, `damaged` with pdfium's own reason, or `too_large`.
    """
    document, password = open_pdf(file.data, file.passwords)
    inside = Inside()
    try:
        form = _dynamic_form(document, inside)
        pages = _second_opinions(_read_pages(document, file, limits), file.data, password)
        ocr = Ocr(file.ocr)
        if form is None:
            pages = [_with_ocr(document, index, page, ocr, file) for index, page in enumerate(pages)]
        if form is not None:
            # Its one page only asks to wait until a program draws the form.
            pages = [replace(page, text="") for page in pages]
        labels = page_labels(document, len(pages))
        elements = [*_elements(pages, labels, document), *(form or ())]
        if file.pictures is not None and form is None:
            _cut_out_pictures(document, pages, labels, file.pictures)
        attached_files(document, file, inside)
        title = document_title(document)
    finally:
        document.close()
    with_text = len(pages) if form else sum(1 for page in pages if page.text.strip() or page.notes)
    blank = sum(1 for page in pages if page.blank)
    failed = [str(number) for number, page in enumerate(pages, start=1) if page.failed]
    warnings = (f"Pages that could not be read: {', '.join(failed[:50])}.",) if failed else ()
    return ParsedDocument(
        elements=(*elements, *inside.elements),
        media_type=file.media_type,
        title=title,
        page_count=len(pages),
        pages_with_text=with_text + (blank if with_text and blank * _MOST_BLANK <= len(pages) else 0),
        warnings=(*warnings, *inside.notes),
        unread=tuple(inside.unread),
        ocr=ocr.outcome,
    )


def _cut_out_pictures(
    document: pdfium.PdfDocument, pages: Sequence[PageText], labels: Sequence[str | None], pictures: Pictures
) -> None:
    from ingest_worker.parse.pdf_pictures import page_pictures  # its library takes a tenth of a second to load

    page_pictures(document, pages, labels, pictures)


def _dynamic_form(document: pdfium.PdfDocument, inside: Inside) -> list[Element] | None:
    """The content of a dynamic form, None when the document is none."""
    if not is_dynamic_form(document):
        document.init_forms()
        return None
    form: list[Element] = []
    try:
        form = dynamic_form(document)
    except Unreadable as error:
        inside.unread.append(str(error))
    return form


def _read_pages(document: pdfium.PdfDocument, file: File, limits: PdfLimits) -> list[PageText]:
    count = len(document)
    if count > limits.pages:
        raise Unreadable(f"The PDF has {count} pages; at most {limits.pages} are read. Split it.", code="too_large")
    pages: list[PageText] = []
    characters = 0
    for index in range(count):
        file.on_page(index + 1)
        page = read_page(document, index)
        characters += len(page.text)
        if characters > limits.characters:
            raise Unreadable(
                f"The PDF holds more than {limits.characters} characters (reached on page {index + 1}). Split it.",
                code="too_large",
            )
        pages.append(page)
    return pages


def _with_ocr(document: pdfium.PdfDocument, index: int, page: PageText, ocr: Ocr, file: File) -> PageText:
    """The page with the text of its picture, when it has none of its own and is not blank."""
    if page.text.strip() or page.blank or page.failed:
        return page
    file.on_page(index + 1)
    return replace(page, text=ocr.read(b"" if ocr.obstacle else picture_of(document, index, DPI)), by_ocr=True)


def _second_opinions(pages: list[PageText], data: bytes, password: str) -> list[PageText]:
    doubtful = [index for index, page in enumerate(pages) if page.doubtful][:_MOST_DOUBTFUL]
    if not doubtful:
        return pages
    second = second_opinion(data, password, doubtful)
    return [
        replace(page, text=second[index]) if index in second and is_better(second[index], page.text) else page
        for index, page in enumerate(pages)
    ]


def _elements(pages: Sequence[PageText], labels: Sequence[str | None], document: pdfium.PdfDocument) -> Iterator[Element]:
    texts = join_divided_words(["\n".join(lines) for lines in without_running_lines([page.text.split("\n") for page in pages])])
    lines = [text.split("\n") for text in texts]
    headings = find_headings(read_outline(document), lines)
    for index, on_page in enumerate(lines):
        span = Span(page_start=index + 1, page_end=index + 1, page_label=labels[index])
        done = 0
        for heading in headings.get(index, ()):
            yield from _paragraphs(on_page[done : max(done, heading.start)], span)
            yield _heading(heading, span)
            done = max(done, heading.end)
        yield from _paragraphs(on_page[done:], span)
        for note in pages[index].notes:
            yield Element(kind=ElementKind.TEXT, text=note, span=span)


def _heading(heading: Heading, span: Span) -> Element:
    # Without lines it only ends the sections before it: where its own begins is not known.
    return Element(kind=ElementKind.HEADING, text=heading.title if heading.end else "", level=heading.level, span=span)


def _paragraphs(lines: Sequence[str], span: Span) -> Iterator[Element]:
    for paragraph in split_paragraphs(lines):
        yield Element(kind=ElementKind.TEXT, text=paragraph, span=span)
