from __future__ import annotations

from collections.abc import Sequence

import pypdfium2 as pdfium
import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from ingest_worker.parse.pdf import PdfLimits
from ingest_worker.parse.pdf_layout import split_paragraphs
from ingest_worker.parse.pdf_outline import Bookmark, find_headings
from ingest_worker.parse.pdf_page import is_garbage, is_spaced_out
from ingest_worker.parse.pdf_second import is_better, is_plausible
from shared.documents import Element, ElementKind, ParsedDocument
from shared.tokens import load_token_counter


def make_pdf(pages: Sequence[Sequence[str]], title: str | None = None, *, encrypted: bool = False) -> bytes:
    """A PDF with one line of text below the other, by hand (PDF 1.4, section 3.4)."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", "", "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"]
    kids = []
    for lines in pages:
        shown = " ".join(f"({line}) Tj 0 -14 Td" for line in lines)
        stream = f"BT /F1 11 Tf 40 780 Td {shown} ET" if lines else ""
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {len(objects)} 0 R/Resources<</Font<</F1 3 0 R>>>>>>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<</Type/Pages/Kids[{' '.join(kids)}]/Count {len(pages)}>>"
    objects.append(f"<</Title({title or ''})>>")
    info = len(objects)
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    key = "00" * 32
    secret = f"/Encrypt<</Filter/Standard/V 1/R 2/O<{key}>/U<{key}>/P -4>>/ID[<00><00>]" if encrypted else ""
    trailer = f"trailer<</Size {len(objects) + 1}/Root 1 0 R/Info {info} 0 R{secret}>>\nstartxref\n{len(body)}\n%%EOF"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def test_pages_count_from_one_and_a_page_without_text_is_counted() -> None:
    heard: list[int] = []
    document = parse("a.pdf", make_pdf([["Hello first"], [], ["Hello third"]], "My Report"), on_page=heard.append)
    assert [(e.text, e.span.page_start, e.span.page_end) for e in document.elements] == [
        ("Hello first", 1, 1),
        ("Hello third", 3, 3),
    ]
    assert (document.page_count, document.pages_with_text, document.title) == (3, 2, "My Report")
    assert heard == [1, 2, 3]


def test_a_pdf_without_any_text_has_no_elements() -> None:
    document = parse("scan.pdf", make_pdf([[], []]))
    assert (document.elements, document.page_count, document.pages_with_text) == ((), 2, 0)


def _text(document: ParsedDocument) -> str:
    return "\n".join(element.text for element in document.elements)


def test_words_over_a_line_end_are_whole_again_and_keep_a_hyphen_of_their_own() -> None:
    lines = ["A long docu-", "ment of the king-", "consort, who is king and consort, in 2019-", "2020 by Anglo-", "Saxon law."]
    text = _text(parse("a.pdf", make_pdf([lines])))
    assert "A long document of the king-consort, who is" in text
    assert "in 2019-2020 by Anglo-Saxon law." in text


def test_running_lines_and_page_numbers_are_taken_out_but_for_the_first() -> None:
    pages = [["Handbook of Billing", f"Sentence {number} stands here alone.", f"{number + 4}"] for number in range(1, 8)]
    document = parse("a.pdf", make_pdf(pages))
    assert _text(document).count("Handbook of Billing") == 1
    assert not any(element.text.strip().isdigit() for element in document.elements)
    sentence = next(element for element in document.elements if "Sentence 5 stands here alone." in element.text)
    assert (sentence.span.page_start, sentence.span.page_end) == (5, 5)


def test_a_title_that_counts_up_with_the_pages_is_no_running_line() -> None:
    text = _text(parse("a.pdf", make_pdf([[f"Question {number}", f"What is item {number}?"] for number in range(1, 8)])))
    assert all(f"Question {number}" in text for number in range(1, 8))


def test_two_pages_have_nothing_that_runs() -> None:
    assert _text(parse("a.pdf", make_pdf([["Same line", "1"], ["Same line", "2"]]))).count("Same line") == 2


def test_headings_of_the_outline_are_found_by_their_words_alone() -> None:
    marks = [Bookmark(title="Cancelling a contract", level=1, page=0), Bookmark(title="Not there", level=2, page=0)]
    pages = [["Some text", "2.1 Cancelling a", "contract", "More text"]]
    found = find_headings(marks, pages)[0]
    assert [(heading.title, heading.start, heading.end) for heading in found] == [
        ("Not there", 0, 0),
        ("Cancelling a contract", 1, 3),
    ]


def test_an_outline_that_is_not_found_ends_the_section_before_it() -> None:
    elements = (
        Element(kind=ElementKind.HEADING, text="One", level=1),
        Element(kind=ElementKind.TEXT, text="Text of one. " * 40),
        Element(kind=ElementKind.HEADING, text="", level=1),
        Element(kind=ElementKind.TEXT, text="Text of something else. " * 40),
    )
    chunks = chunk_document(ParsedDocument(elements=elements, media_type="application/pdf"), load_token_counter())
    assert all(chunk.section in (("One",), ()) for chunk in chunks)
    assert chunks[-1].section == ()


def test_the_reason_of_one_file_is_not_that_of_the_file_before_it() -> None:
    with pytest.raises(Unreadable) as first:
        parse("a.pdf", make_pdf([["secret"]], encrypted=True))
    with pytest.raises(Unreadable) as second:
        parse("b.pdf", b"%PDF-1.4 /BrotliDecode nothing else")
    assert (first.value.code, second.value.code) == ("encrypted", "unsupported_filter")


def test_no_font_of_this_machine_has_a_say() -> None:
    parse("a.pdf", make_pdf([["text"]]))
    assert type(pdfium.PdfSysfontBase.SINGLETON).__name__ == "_NoFonts"


def test_text_of_a_wrong_character_map_is_not_believed() -> None:
    assert not is_plausible("ɹɹং Θͨ ݱ\u0378 \u09c5")
    assert is_plausible("政令第百四十九号 道路交通法 The law")
    assert is_spaced_out("H e re i s so me fo rma tte d te xt")
    assert is_better("Here is some formatted text", "H e re i s so me fo rma tte d te xt")
    assert not is_better("ɹɹং Θͨ ݱ\u0378 " * 40, "平成 年")


def test_a_file_name_is_no_title() -> None:
    assert parse("a.pdf", make_pdf([["x y z"]], "Microsoft Word - draft.doc")).title is None


def test_an_encrypted_pdf_is_refused_with_its_reason() -> None:
    with pytest.raises(Unreadable) as caught:
        parse("a.pdf", make_pdf([["secret"]], encrypted=True))
    assert caught.value.code == "encrypted"


@pytest.mark.parametrize("data", [b"%PDF-1.4\nnothing", b"not a pdf at all"])
def test_a_damaged_pdf_is_refused_with_the_reason_of_pdfium(data: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        parse("a.pdf", data)
    assert caught.value.code == "damaged"
    assert "PDFium" in str(caught.value)


def test_too_many_pages_or_characters_are_refused() -> None:
    data = make_pdf([["one line of text"]] * 5)
    for limits in (PdfLimits(pages=4), PdfLimits(characters=40)):
        with pytest.raises(Unreadable) as caught:
            parse("a.pdf", data, pdf_limits=limits)
        assert caught.value.code == "too_large"


def test_glyph_numbers_and_private_characters_are_garbage() -> None:
    assert is_garbage("\ufffd\ufffd a \ufffd")
    assert is_garbage("/g18/g152/g3 /g44")
    assert is_garbage("\ue000\ue001\ue002")
    assert not is_garbage("A sentence with one strange \ue000 mark in it.")


def test_paragraphs_end_at_short_lines_and_begin_at_bullets() -> None:
    page = (
        "A first line that is as long as lines are here\nand it ends.\nA second paragraph with a line of usual length\n• a point"
    )
    assert len(split_paragraphs(page.split("\n"))) == 3
