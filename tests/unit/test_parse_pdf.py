from __future__ import annotations

from collections.abc import Sequence

import pytest

from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from ingest_worker.parse.pdf import PdfLimits, is_garbage, split_paragraphs


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


def test_a_word_that_is_hyphenated_at_the_line_end_is_joined() -> None:
    document = parse("a.pdf", make_pdf([["A long docu-", "ment about things"]]))
    assert "document" in document.elements[0].text


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
    assert len(split_paragraphs(page)) == 3
