"""Pictures that are cut out of files: which, how large, where they stand, and that no file makes the parser suffer for them."""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import zlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pypdfium2 as pdfium
import pytest
from PIL import Image

from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse import wire
from ingest_worker.parse.cage import ParserCage
from ingest_worker.parse.parse import parse
from ingest_worker.parse.pdf_page import PageText
from ingest_worker.parse.pdf_pictures import page_pictures
from ingest_worker.parse.picture_encoding import decode, encode
from ingest_worker.parse.pictures import Picture, PictureLimits, Pictures
from ingest_worker.parse.wire import Parsed
from ingest_worker.parsing import parse_and_chunk
from ingest_worker.work import PARSER_STOPS, Work
from shared.config import Settings
from shared.documents import Span
from shared.errors import PermanentError
from tests.making import cells, docx, odf, paragraph, pptx, relations, shape, xlsx
from tests.pictures import PdfPage, chart, colour_of, encoded, pdf

TEAL = encoded(chart("teal"))
WORDS = "What stands on this page is long enough for a page with text, whatever else there may be on it."


def cut_out(name: str, data: bytes, limits: PictureLimits | None = None) -> Pictures:
    pictures = Pictures(limits or PictureLimits())
    parse(name, data, pictures=pictures)
    return pictures


def colours(pictures: Pictures) -> list[str]:
    return [colour_of(Image.open(io.BytesIO(one.data))) for one in pictures.found]


def test_a_word_document_tells_the_headings_and_the_text_around_its_pictures() -> None:
    blip = '<w:r><w:drawing><a:blip r:embed="rId1"/></w:drawing></w:r>'
    body = paragraph("Sales", style="Heading1") + paragraph("The north sold most.") + f"<w:p>{blip}</w:p>" + f"<w:p>{blip}</w:p>"
    data = docx(body, parts={"word/media/image1.png": TEAL}, related=[("image", "media/image1.png")])
    (found,) = cut_out("a.docx", data).found
    assert "The north sold most." in found.around
    assert found.span == Span()


def test_slides_sheets_and_open_documents_tell_the_place_of_their_pictures() -> None:
    slide = shape("Quarter", kind="title") + '<p:pic><p:blipFill><a:blip r:embed="rId1"/></p:blipFill></p:pic>'
    deck = pptx(
        [shape("First"), slide],
        parts={"ppt/media/i.png": TEAL, "ppt/slides/_rels/slide2.xml.rels": relations(("image", "../media/i.png"))},
    )
    (found,) = cut_out("a.pptx", deck).found
    assert (found.span, found.section) == (Span(slide=2), ("Quarter",))

    drawing = (
        '<xdr:wsDr xmlns:xdr="x" xmlns:a="a" xmlns:r="r"><xdr:oneCellAnchor><xdr:from><xdr:row>6</xdr:row></xdr:from>'
        '<xdr:pic><a:blip r:embed="rId1"/></xdr:pic></xdr:oneCellAnchor></xdr:wsDr>'
    )
    parts: dict[str, str | bytes] = {
        "xl/worksheets/_rels/sheet1.xml.rels": relations(("drawing", "../drawings/drawing1.xml")),
        "xl/drawings/drawing1.xml": drawing,
        "xl/drawings/_rels/drawing1.xml.rels": relations(("image", "../media/i.png")),
        "xl/media/i.png": TEAL,
    }
    (found,) = cut_out("a.xlsx", xlsx({"Prices": cells(1, "Plan", "Price")}, parts=parts)).found
    assert (found.span, found.section) == (Span(sheet="Prices", row_start=7, row_end=7), ("Prices",))
    assert "Plan" in found.around

    frame = '<draw:frame><draw:image xlink:href="Pictures/i.png"/></draw:frame>'
    cell = f'<table:table-cell office:value-type="string"><text:p>Plan</text:p>{frame}</table:table-cell>'
    row = f"<table:table-row>{cell}</table:table-row>"
    sheet = odf("spreadsheet", f'<table:table table:name="Prices">{row}</table:table>', parts={"Pictures/i.png": TEAL})
    (found,) = cut_out("a.ods", sheet).found
    assert (found.span, "Plan" in found.around) == (Span(sheet="Prices"), True)

    text = odf("text", f"<text:h>Prices</text:h><text:p>They rose.{frame}</text:p>", parts={"Pictures/i.png": TEAL})
    (found,) = cut_out("a.odt", text).found
    assert (found.section, found.around) == (("Prices",), "Prices\nThey rose.")


def test_a_page_of_html_holds_its_pictures_itself_and_others_are_not_fetched() -> None:
    inside = base64.b64encode(TEAL).decode()
    elsewhere = '<img src="https://example.com/x.png"><img src="data:,x">'
    page = f'<h1>Map</h1><p>The way.</p>{elsewhere}<img src="data:image/png;base64,{inside}">'
    (found,) = cut_out("a.html", page.encode()).found
    assert (found.section, found.around) == (("Map",), "Map\nThe way.")


def test_pictures_of_an_attached_file_are_cited_by_its_name() -> None:
    mail = (
        "From: a@example.com\nTo: b@example.com\nSubject: Chart\nMIME-Version: 1.0\n"
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain\n\nSee the chart.\n'
        '--b\nContent-Type: image/png\nContent-Disposition: attachment; filename="chart.png"\n'
        f"Content-Transfer-Encoding: base64\n\n{base64.b64encode(TEAL).decode()}\n--b--\n"
    )
    (found,) = cut_out("a.eml", mail.encode()).found
    assert (found.span.attachment, found.span.page_start) == ("chart.png", 1)


def test_the_same_picture_has_one_key_wherever_it_is_and_counts_once() -> None:
    jpeg = encoded(chart("teal"), "JPEG")
    page = PdfPage(text=WORDS, pictures=[(chart("teal"), (72, 200, 300, 200))])
    found = cut_out("a.pdf", pdf(page, page, page))
    assert [one.key for one in found.found] == [one.key for one in cut_out("a.jpg", jpeg).found]
    assert found.found[0].span.page_start == 1


@pytest.mark.parametrize(
    ("size", "is_taken"),
    [((400, 300), True), ((64, 256), True), ((63, 400), False), ((100, 100), False), ((2_000, 150), False)],
)
def test_what_is_too_small_or_too_thin_is_left_out(size: tuple[int, int], is_taken: bool) -> None:
    assert bool(cut_out("a.png", encoded(chart("teal", size))).found) is is_taken


def test_a_large_picture_is_scaled_down_to_what_a_model_takes_and_has_a_thumbnail() -> None:
    (found,) = cut_out("a.png", encoded(chart("teal", (3_000, 1_800)))).found
    with Image.open(io.BytesIO(found.data)) as sent, Image.open(io.BytesIO(found.thumbnail)) as small:
        assert sent.size == (found.width, found.height)
        assert max(sent.size) <= 1_568
        assert sent.width * sent.height <= 1_200_000
        assert max(small.size) == 256
        assert colour_of(small) == "teal"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "I", "F"])
def test_every_kind_of_pixels_becomes_a_picture(mode: str) -> None:
    plain = chart("teal").convert("L")
    image = plain.convert("I").point(lambda value: value * 200) if mode == "I;16" else plain.convert(mode)
    found = encode(image.convert("I;16") if mode == "I;16" else image)
    assert found is not None
    with Image.open(io.BytesIO(found.data)) as sent:
        grey = sent.convert("L").tobytes()
    assert (min(grey) < 30, max(grey) > 90) == (True, True)


def test_what_is_transparent_is_shown_on_white() -> None:
    image = Image.new("RGBA", (300, 300), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (100, 100, 200, 200))
    found = encode(image)
    assert found is not None
    assert Image.open(io.BytesIO(found.data)).getpixel((5, 5)) == (255, 255, 255)
    assert encode(Image.new("RGB", (300, 300), "white")) is None


def _png_that_claims(width: int, height: int) -> bytes:
    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(bytes(4_000_000), 9)) + part(b"IEND", b"")


@pytest.mark.parametrize(
    "data",
    [
        _png_that_claims(60_000, 60_000),
        _png_that_claims(9_000, 9_000),
        TEAL[: len(TEAL) // 2],
        b"GIF89a" + bytes(100),
        b"\xd7\xcd\xc6\x9a" + bytes(200),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 400 400\n%%EndComments\nshowpage",
        b"",
    ],
)
def test_pictures_that_are_bombs_damaged_or_programs_are_passed_by(data: bytes) -> None:
    assert decode(data) is None
    body = paragraph("Text") + '<w:p><w:r><a:blip r:embed="rId1"/></w:r></w:p>'
    pictures = Pictures(PictureLimits())
    parsed = parse("a.docx", docx(body, parts={"word/i.png": data}, related=[("image", "i.png")]), pictures=pictures)
    assert [element.text for element in parsed.elements] == ["Text"]
    assert pictures.found == []


def test_what_is_cut_out_is_bounded_in_number_bytes_and_time() -> None:
    pages = [PdfPage(text=WORDS, pictures=[(chart(name), (72, 200, 300, 200))]) for name in ("teal", "crimson", "golden")]
    few = cut_out("a.pdf", pdf(*pages), PictureLimits(pictures=2))
    assert (colours(few), few.left_out) == (
        ["teal", "crimson"],
        "Of one document 2 pictures are described at most: there may be more.",
    )
    assert cut_out("a.pdf", pdf(*pages), PictureLimits(total_bytes=10)).found == []
    late = cut_out("a.pdf", pdf(*pages), PictureLimits(seconds=-1))
    assert (late.found, late.left_out) == ([], "Cutting pictures out was ended after -1 seconds.")


def test_a_scan_below_its_own_text_is_the_page_and_no_picture() -> None:
    whole = (0, 0, 612, 792)
    text = PdfPage(text=WORDS, pictures=[(chart("teal", (612, 792)), whole)])
    bare = PdfPage(pictures=[(chart("crimson", (612, 792)), whole)])
    assert colours(cut_out("a.pdf", pdf(text, bare))) == ["crimson"]


def test_pictures_come_over_the_wire_as_they_are() -> None:
    pictures = cut_out("a.png", TEAL).found
    parsed = Parsed(
        chunks=(), title=None, media_type="image/png", page_count=1, pages_with_text=0, encoding=None, warnings=("\0 é",)
    )
    body, behind = wire.unpack_answer(wire.pack_parsed(parsed, pictures=pictures))
    found = wire.unpack_parsed(body["parsed"], body["pictures"], behind)
    assert (found.pictures, found.warnings) == (tuple(pictures), parsed.warnings)
    assert isinstance(pictures[0], Picture)
    with pytest.raises(ValueError, match="missing"):
        wire.unpack_parsed(body["parsed"], body["pictures"], behind[:-1])


@pytest.mark.parametrize(("characters", "is_taken"), [(60, True), (2_000, False)])
def test_a_page_that_ocr_read_is_a_picture_while_its_words_are_few(characters: int, is_taken: bool) -> None:
    scan = encoded(chart("teal", (612, 792)), "JPEG")
    document = pdfium.PdfDocument(pdf(PdfPage(pictures=[(chart("teal", (612, 792)), (0, 0, 612, 792))])))
    pictures = Pictures(PictureLimits())
    page_pictures(document, [PageText(text="w" * characters, by_ocr=True)], [None], pictures)
    document.close()
    # It has the key of its scan, whatever OCR made of it.
    assert [one.key for one in pictures.found] == ([hashlib.sha256(scan).hexdigest()] if is_taken else [])


@dataclass
class _Falling:
    """A parser that falls over pictures: its process ends."""

    chunk_seconds: float = 0.0
    asked: list[PictureLimits | None] = field(default_factory=list)

    def parse_and_chunk(self, *_file: object, pictures: PictureLimits | None = None) -> Parsed:
        self.asked.append(pictures)
        if pictures is not None:
            raise PermanentError("The parser ended with SIGSEGV.", code="parser_crashed")
        return Parsed(
            chunks=(), title="T", media_type="application/pdf", page_count=1, pages_with_text=1, encoding=None, warnings=()
        )


def test_a_file_whose_pictures_end_the_parser_is_read_without_them() -> None:
    job, cage, work = cast("ClaimedJob", SimpleNamespace(job_id=1)), _Falling(), Work()
    limits = PictureLimits()
    found = parse_and_chunk(job, "a.pdf", b"", cage=cast("ParserCage", cage), work=work, settings=Settings(), pictures=limits)
    assert (found.title, found.pictures, cage.asked) == ("T", None, [limits, None])
    assert found.warnings == ("Its pictures were left out: The parser ended with SIGSEGV.",)
    assert work.take()[PARSER_STOPS, "parser_crashed", ""] == 1
