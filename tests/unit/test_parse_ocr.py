"""OCR with the real program where it is installed; where it is not, that it is missing is said with the cure."""

from __future__ import annotations

import io
import shutil

import pypdfium2 as pdfium
import pytest
from PIL import Image, ImageChops, TiffImagePlugin

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.judging import judge
from ingest_worker.parse.file import File
from ingest_worker.parse.image import parse as parse_image
from ingest_worker.parse.ocr import Ocr, OcrSettings, obstacle
from ingest_worker.parse.parse import parse
from ingest_worker.parse.pdf_document import picture_of
from ingest_worker.parse.wire import Parsed
from shared.documents import Chunk, ChunkKind, DocumentState, ParsedDocument, Span
from shared.tokens import load_token_counter
from tests.unit.test_parse_pdf import make_pdf

ENGLISH = OcrSettings(languages=("eng",))
SENTENCE = "The invoice is due within thirty days"


def _picture(line: str) -> bytes:
    document = pdfium.PdfDocument(make_pdf([[line]]))
    try:
        return picture_of(document, 0, 200)
    finally:
        document.close()


def _scan(*lines: str) -> bytes:
    """A PDF of pictures of text: one grey picture to a page, by hand (PDF 1.4, section 4.8)."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    kids = []
    for line in lines:
        _, size, dots = _picture(line).split(b" ", 2)[0], *_measured(_picture(line))
        width, height = size
        objects.append(
            b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Length %d>>stream\n"
            % (width, height, len(dots))
            + dots
            + b"\nendstream"
        )
        draw = b"595 0 0 842 0 0 cm /I Do"
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(draw), draw))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents %d 0 R/Resources<</XObject<</I %d 0 R>>>>>>"
            % (len(objects), len(objects) - 1)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
    body = b"%PDF-1.4\n"
    for number, content in enumerate(objects, start=1):
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    return body + b"trailer<</Size %d/Root 1 0 R>>\n%%%%EOF" % (len(objects) + 1)


def _measured(picture: bytes) -> tuple[tuple[int, int], bytes]:
    head, dots = picture.split(b" 255\n", 1)
    _, width, height = head.split()
    return (int(width), int(height)), dots


def _judged(document: ParsedDocument) -> tuple[DocumentState, str | None, str]:
    chunks = tuple(Chunk(kind=ChunkKind.TEXT, text=element.text, tokens=1) for element in document.elements)
    state, code, reason = judge(
        Parsed(
            chunks=chunks,
            title=None,
            media_type=document.media_type,
            page_count=document.page_count,
            pages_with_text=document.pages_with_text,
            encoding=None,
            warnings=(),
            ocr=document.ocr,
        )
    )
    return state, code, reason or ""


def test_a_scan_is_read_by_ocr_or_says_what_is_missing() -> None:
    document = parse("scan.pdf", _scan(SENTENCE, "Cancelling takes a letter"), ocr=ENGLISH)
    state, code, reason = _judged(document)
    if obstacle(ENGLISH):
        assert (document.elements, state, code) == ((), DocumentState.NEEDS_OCR, "no_text")
        assert "install" in reason
    else:
        assert [(element.text.strip(), element.span.page_start) for element in document.elements] == [
            (SENTENCE, 1),
            ("Cancelling takes a letter", 2),
        ]
        assert (state, code) == (DocumentState.INDEXED, "ocr")
        assert reason == "OCR (eng) read 2 of 2 pages without text."


def test_ocr_that_is_off_says_so_and_leaves_the_file_to_be_read_later() -> None:
    state, _, reason = _judged(parse("scan.pdf", _scan(SENTENCE)))
    assert state is DocumentState.NEEDS_OCR
    assert "DOCWELL_OCR=auto" in reason


def test_a_language_without_data_is_named() -> None:
    said = obstacle(OcrSettings(languages=("xyz",)))
    assert said is not None
    assert ("no data for xyz" in said) == (shutil.which("tesseract") is not None)


def test_when_time_is_up_the_rest_is_left_and_counted() -> None:
    ocr = Ocr(OcrSettings(languages=("eng",), seconds=0.0))
    assert ocr.read(b"") == ""
    assert ocr.outcome is not None
    assert ("DOCWELL_OCR_SECONDS" in ocr.outcome) == (obstacle(ENGLISH) is None)


def test_a_picture_is_one_page() -> None:
    document = parse_image(File(name="a.pgm", data=_picture(SENTENCE), media_type="image/x-portable-graymap", ocr=ENGLISH))
    assert document.page_count == 1
    assert document.pages_with_text == (0 if obstacle(ENGLISH) else 1)


def _around(page: Image.Image) -> Image.Image:
    """What is drawn on a page, with a margin: less to read than the whole."""
    left, top, right, bottom = ImageChops.invert(page).getbbox() or (60, 60, 400, 100)
    return page.crop((left - 60, top - 60, right + 60, bottom + 60))


def _image(*lines: str, kind: str, thumbnails: bool = False) -> bytes:
    """A picture of a line of text; a TIFF may have several, each followed by a small one of the same."""
    pages = []
    for line in lines:
        page = _around(Image.open(io.BytesIO(_picture(line))))
        pages += [page, page.resize((page.width // 8, page.height // 8))] if thumbnails else [page]
    out = io.BytesIO()
    if kind != "tiff":
        pages[0].save(out, kind)
        return out.getvalue()
    with TiffImagePlugin.AppendingTiffWriter(out, new=True) as writer:
        for number, page in enumerate(pages):
            page.convert("1").save(
                writer, "TIFF", compression="group4", tiffinfo={254: 1} if thumbnails and number % 2 else {254: 2}
            )
            writer.newFrame()
    return out.getvalue()


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "tiff"])
def test_a_sentence_in_a_picture_is_cited_by_its_page_or_the_picture_needs_ocr(kind: str) -> None:
    document = parse(f"letter.{kind}", _image(SENTENCE, kind=kind), ocr=ENGLISH)
    state, _, reason = _judged(document)
    if obstacle(ENGLISH):
        assert (document.elements, state, document.pages_with_text) == ((), DocumentState.NEEDS_OCR, 0)
        assert "install" in reason
    else:
        (chunk,) = chunk_document(document, load_token_counter())
        assert (chunk.text.strip(), chunk.span) == (SENTENCE, Span(page_start=1, page_end=1))
        assert (state, document.page_count, document.pages_with_text) == (DocumentState.INDEXED, 1, 1)


@pytest.mark.parametrize("thumbnails", [False, True])
def test_each_picture_of_a_scan_is_a_page_and_its_sentence_is_cited_by_it(thumbnails: bool) -> None:
    lines = (SENTENCE, "", "Cancelling takes a letter")
    heard: list[int] = []
    document = parse("fax.tif", _image(*lines, kind="tiff", thumbnails=thumbnails), ocr=ENGLISH, on_page=heard.append)
    state, _, reason = _judged(document)
    assert (document.page_count, heard) == (3, [1, 2, 3])
    if obstacle(ENGLISH):
        assert (document.elements, state) == ((), DocumentState.NEEDS_OCR)
        assert reason.startswith("None of its 3 pages has text")
    else:
        assert [(element.text.strip(), element.span) for element in document.elements] == [
            (SENTENCE, Span(page_start=1, page_end=1)),
            ("Cancelling takes a letter", Span(page_start=3, page_end=3)),
        ]
        assert (state, document.pages_with_text) == (DocumentState.PARTIAL, 2)


def test_a_scan_that_ends_too_early_keeps_the_pages_that_are_there() -> None:
    whole = _image(SENTENCE, "Cancelling takes a letter", kind="tiff")
    document = parse("fax.tif", whole[: len(whole) * 3 // 4], ocr=ENGLISH)
    assert document.page_count in (1, 2)
    if not obstacle(ENGLISH):
        assert [element.span.page_start for element in document.elements][:1] == [1]


def test_a_broken_picture_costs_nothing_but_itself() -> None:
    ocr = Ocr(ENGLISH)
    assert ocr.read(b"no picture at all") == ""
    assert ocr.outcome is not None
