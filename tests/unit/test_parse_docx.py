from __future__ import annotations

import io

import docx as python_docx
import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument
from shared.tokens import load_token_counter
from tests.making import STYLES, cells, docx, paragraph, relations, word_part, xlsx, zipped

_STYLED = {"parts": {"word/styles.xml": STYLES}, "related": [("styles", "styles.xml")]}


def _told(parsed: ParsedDocument) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in parsed.elements]


def test_a_sentence_is_cited_by_its_headings_and_never_by_a_page() -> None:
    body = (
        paragraph("Billing", style="Kop1")
        + paragraph("All of it is new. " * 40)
        + paragraph("Cancelling", style="Mine")
        + paragraph(f"Refunds take five days. {'There are exceptions. ' * 20}")
    )
    parsed = parse("a.docx", docx(body, **_STYLED))
    (chunk,) = [c for c in chunk_document(parsed, load_token_counter(), 64, 0) if "five days" in c.text]
    assert chunk.section == ("Billing", "Cancelling")
    assert (chunk.span.page_start, chunk.span.line_start, parsed.page_count) == (None, None, None)
    assert parsed.title == "Billing"


def test_numbered_headings_and_lists_have_their_numbers() -> None:
    levels = "".join(
        f'<w:lvl w:ilvl="{n}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'
        for n, (form, text) in enumerate([("decimal", "%1."), ("lowerLetter", "%1.%2)"), ("upperRoman", "%3")])
    )
    bullets = '<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="\uf0b7"/></w:lvl>'
    numbering = word_part(
        "numbering",
        f'<w:abstractNum w:abstractNumId="5">{levels}</w:abstractNum><w:abstractNum w:abstractNumId="6">{bullets}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="5"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="6"/></w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="5"/><w:lvlOverride w:ilvl="0">'
        '<w:startOverride w:val="9"/></w:lvlOverride></w:num>',
    )

    def item(text: str, number: int, depth: int, more: str = "") -> str:
        place = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
        return f"<w:p><w:pPr>{more}{place}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"

    heading = '<w:outlineLvl w:val="0"/>'
    body = item("Scope", 1, 0, heading) + item("a", 1, 1) + item("b", 1, 1) + item("deep", 1, 2) + item("Terms", 1, 0, heading)
    body += item("c", 1, 1) + item("dot", 2, 0) + item("nine", 3, 0) + paragraph("end")
    parsed = parse("a.docx", docx(body, parts={"word/numbering.xml": numbering}, related=[("numbering", "numbering.xml")]))
    assert _told(parsed) == [
        ("heading", "1. Scope"),
        ("text", "  1.a) a\n  1.b) b\n    I deep"),
        ("heading", "2. Terms"),
        ("text", "  2.a) c\n- dot\n9. nine"),
        ("text", "end"),
    ]


def test_a_table_keeps_its_rows_and_merged_cells_and_a_frame_is_text() -> None:
    def cell(text: str, more: str = "") -> str:
        return f"<w:tc><w:tcPr>{more}</w:tcPr>{paragraph(text)}{paragraph('')}</w:tc>"

    rows = [
        cell("Plan") + cell("Price"),
        cell("Basic", '<w:vMerge w:val="restart"/>') + cell("5 | 6"),
        cell("", "<w:vMerge/>") + cell("7"),
        cell("both", '<w:gridSpan w:val="2"/>'),
    ]
    table = f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
    frame = f"<w:tbl><w:tr><w:tc>{paragraph('In a box')}{paragraph('two paragraphs')}</w:tc></w:tr></w:tbl>"
    assert _told(parse("a.docx", docx(table + frame))) == [
        ("table", "| Plan | Price |\n| --- | --- |\n| Basic | 5 \\| 6 |\n| Basic | 7 |\n| both |  |"),
        ("text", "In a box"),
        ("text", "two paragraphs"),
    ]


def test_notes_comments_boxes_headers_and_footers_are_read() -> None:
    note = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="0"/></w:r>'
    inside = f"<w:txbxContent>{paragraph('boxed')}</w:txbxContent>"
    forms = f"<mc:Choice>{inside}</mc:Choice><mc:Fallback><v:x>{inside}</v:x></mc:Fallback>"
    box = f"<w:r><mc:AlternateContent>{forms}</mc:AlternateContent></w:r>"
    parts = {
        "word/footnotes.xml": word_part("footnotes", f'<w:footnote w:id="2">{paragraph("see the law")}</w:footnote>'),
        "word/comments.xml": word_part("comments", f'<w:comment w:id="0" w:author="Ann">{paragraph("really?")}</w:comment>'),
        "word/header1.xml": word_part("hdr", paragraph("ACME, confidential")),
        "word/header2.xml": word_part("hdr", paragraph("ACME, confidential")),
        "word/footer1.xml": word_part("ftr", paragraph("12")),
    }
    related = [
        ("footnotes", "footnotes.xml"),
        ("comments", "comments.xml"),
        ("header", "header1.xml"),
        ("header", "header2.xml"),
        ("footer", "footer1.xml"),
    ]
    assert _told(
        parse("a.docx", docx(paragraph("Claim", extra=note + box) + paragraph("After"), parts=parts, related=related))
    ) == [
        ("text", "ACME, confidential"),
        ("text", "Claim[^2]"),
        ("text", "[^2]: see the law"),
        ("text", "Comment by Ann: really?"),
        ("text", "boxed"),
        ("text", "After"),
    ]


def test_deleted_and_hidden_text_and_field_codes_are_left_out() -> None:
    body = (
        "<w:p><w:r><w:t>kept</w:t></w:r><w:del><w:r><w:delText> gone</w:delText></w:r></w:del>"
        "<w:ins><w:r><w:t> added</w:t></w:r></w:ins>"
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t> unseen</w:t></w:r><w:r><w:instrText>PAGEREF x</w:instrText></w:r>"
        "<w:r><w:tab/><w:noBreakHyphen/><w:t>end</w:t></w:r></w:p>"
    )
    assert _told(parse("a.docx", docx(body))) == [("text", "kept added\t-end")]


def test_formulas_are_written_on_one_line() -> None:
    def run(text: str) -> str:
        return f"<m:r><m:t>{text}</m:t></m:r>"

    power = f"<m:sSup><m:e>{run('c')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>"
    body = f"<w:p><m:oMath><m:f><m:num>{run('a+b')}</m:num><m:den>{power}</m:den></m:f></m:oMath></w:p>"
    assert _told(parse("a.docx", docx(body))) == [("text", "(a+b)/(c^2)")]


def test_the_strict_dialect_and_content_controls_are_read() -> None:
    body = f"<w:sdt><w:sdtContent>{paragraph('controlled')}</w:sdtContent></w:sdt>"
    assert _told(parse("a.docx", docx(body, strict=True))) == [("text", "controlled")]


def test_a_part_in_another_format_is_read_in_its_place() -> None:
    parts = {"word/afchunk.html": "<h1>From HTML</h1><p>inside</p>"}
    body = paragraph("before") + '<w:altChunk r:id="rId1"/>' + paragraph("after")
    parsed = parse("a.docx", docx(body, parts=parts, related=[("aFChunk", "afchunk.html")]))
    assert _told(parsed) == [("text", "before"), ("heading", "From HTML"), ("text", "inside"), ("text", "after")]


def test_a_part_that_cannot_be_read_makes_the_document_partial() -> None:
    parsed = parse(
        "a.docx",
        docx(
            paragraph("before") + '<w:altChunk r:id="rId1"/>',
            parts={"word/x.docx": b"PK\x03\x04"},
            related=[("aFChunk", "x.docx")],
        ),
    )
    assert len(parsed.unread) == 1
    assert "x.docx" in parsed.unread[0]


def test_a_document_that_holds_itself_ends() -> None:
    inner = docx(paragraph("level") + '<w:altChunk r:id="rId1"/>', parts={"word/x.docx": b""}, related=[("aFChunk", "x.docx")])
    for _ in range(6):
        inner = docx(
            paragraph("level") + '<w:altChunk r:id="rId1"/>', parts={"word/x.docx": inner}, related=[("aFChunk", "x.docx")]
        )
    parsed = parse("a.docx", inner)
    assert 1 < len(parsed.elements) < 6
    assert parsed.unread


def test_an_embedded_workbook_is_cited_by_its_name() -> None:
    parts = {"word/embeddings/costs.xlsx": xlsx({"Costs": cells(1, "a", "b") + cells(2, "rent", 5)})}
    body = paragraph("see", extra='<w:r><w:object xmlns:o="x"><o:OLEObject r:id="rId1"/></w:object></w:r>')
    parsed = parse("a.docx", docx(body, parts=parts, related=[("package", "embeddings/costs.xlsx")]))
    (table,) = [e for e in parsed.elements if "rent" in e.text]
    assert (table.span.attachment, table.span.sheet, table.span.row_end) == ("costs.xlsx", "Costs", 2)


def test_only_pictures_need_ocr() -> None:
    picture = '<w:p><w:r><w:drawing><a:blip r:embed="rId9"/></w:drawing></w:r></w:p>'
    parsed = parse("scan.docx", docx(picture * 3))
    assert (parsed.elements, parsed.page_count, parsed.pages_with_text) == ((), 3, 0)


def test_nothing_outside_of_the_package_is_touched() -> None:
    external = relations(("image", "http://127.0.0.1:9/x.png")).replace("/>", ' TargetMode="External"/>')
    data = docx(
        '<w:p><w:r><w:t>text</w:t></w:r></w:p><w:altChunk r:id="rId1"/>', parts={"word/_rels/document.xml.rels": external}
    )
    assert _told(parse("a.docx", data)) == [("text", "text")]


def test_a_document_of_another_writer_is_read_whole() -> None:
    made = python_docx.Document()
    made.add_heading("Plan", 0)
    made.add_heading("Costs", 1)
    made.add_paragraph("first", style="List Bullet")
    made.add_paragraph("second", style="List Number")
    table = made.add_table(rows=2, cols=2)
    for at, text in enumerate(["k", "v", "rent", "5"]):
        table.cell(at // 2, at % 2).text = text
    out = io.BytesIO()
    made.save(out)
    assert _told(parse("a.docx", out.getvalue())) == [
        ("heading", "Plan"),
        ("heading", "Costs"),
        ("text", "- first\n1. second"),
        ("table", "| k | v |\n| --- | --- |\n| rent | 5 |"),
    ]


def test_a_package_without_the_main_part_is_damaged_not_empty() -> None:
    with pytest.raises(Unreadable) as caught:
        parse("a.docx", zipped({"word/styles.xml": STYLES, "_rels/.rels": relations(("officeDocument", "word/document.xml"))}))
    assert caught.value.code == "damaged"
