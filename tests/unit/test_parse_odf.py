from __future__ import annotations

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument
from shared.tokens import load_token_counter
from tests.making import odf


def _told(parsed: ParsedDocument) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in parsed.elements]


def test_a_sentence_is_cited_by_its_headings() -> None:
    content = (
        '<text:h text:outline-level="1">Billing</text:h><text:p>' + "All of it is new. " * 40 + "</text:p>"
        '<text:h text:outline-level="2">Cancelling</text:h><text:p>Refunds take five days. '
        + "There are exceptions. " * 20
        + "</text:p>"
    )
    parsed = parse("a.odt", odf("text", content))
    (chunk,) = [c for c in chunk_document(parsed, load_token_counter(), 64, 0) if "five days" in c.text]
    assert chunk.section == ("Billing", "Cancelling")
    assert (chunk.span.page_start, parsed.page_count, parsed.title) == (None, None, "Billing")


def test_lists_tables_notes_comments_and_boxes_are_read() -> None:
    item = "<text:list-item><text:p>{}</text:p>{}</text:list-item>"
    inner = f"<text:list>{item.format('inner', '')}</text:list>"
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = "<table:table-row>{}</table:table-row>"
    wide = '<table:table-cell table:number-columns-repeated="16000"/>'
    body = "<text:note-body><text:p>the law</text:p></text:note-body>"
    note = f"<text:note><text:note-citation>1</text:note-citation>{body}</text:note>"
    comment = "<office:annotation><dc:creator>Ann</dc:creator><text:p>really?</text:p></office:annotation>"
    box = "<draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame>"
    content = (
        f"<text:list>{item.format('outer', inner)}</text:list>"
        f"<table:table>{row.format(cell.format('k') + cell.format('v') + wide)}"
        f"{row.format(cell.format('rent') + cell.format('5'))}"
        f"</table:table><text:p>Claim{note}{comment}{box}<text:s text:c='2'/>on<text:tab/>and<text:line-break/>on</text:p>"
        "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
    )
    assert _told(parse("a.odt", odf("text", content))) == [
        ("text", "- outer\n  - inner"),
        ("table", "| k | v |\n| --- | --- |\n| rent | 5 |"),
        ("text", "Claim[^1]  on\tand\non"),
        ("text", "[^1]: the law"),
        ("text", "Comment by Ann: really?"),
        ("text", "boxed"),
    ]


def test_headers_and_the_title_of_the_document_are_read() -> None:
    styles = '<s xmlns:style="st" xmlns:text="t"><style:header><text:p>ACME</text:p></style:header></s>'
    meta = '<m xmlns:dc="d"><dc:title>The  plan</dc:title></m>'
    parsed = parse("a.odt", odf("text", "<text:p>x</text:p>", parts={"styles.xml": styles, "meta.xml": meta}))
    assert _told(parsed) == [("text", "ACME"), ("text", "x")]
    assert parsed.title == "The plan"


def test_a_slide_is_cited_by_its_number_with_its_notes() -> None:
    frame = "<draw:frame{}><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    title = frame.format(' presentation:class="title"', "Costs")
    notes = f"<presentation:notes>{frame.format('', 'say this')}</presentation:notes>"
    picture = "<draw:frame><draw:image/></draw:frame>"
    pages = [frame.format("", "first"), frame.format("", "We spend little.") + title + notes, picture]
    parsed = parse("a.odp", odf("presentation", "".join(f"<draw:page>{page}</draw:page>" for page in pages)))
    assert [(e.span.slide, e.kind.value, e.text) for e in parsed.elements] == [
        (1, "text", "first"),
        (2, "heading", "Costs"),
        (2, "text", "We spend little."),
        (2, "text", "Notes: say this"),
    ]
    assert (parsed.page_count, parsed.pages_with_text) == (3, 2)


def test_the_data_of_a_chart_is_a_table() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"<table:table-row>{cell}{cell}</table:table-row>"
    chart = f'<c xmlns:table="t" xmlns:text="x"><table:table>{row.format("", "2024")}{row.format("East", "5")}</table:table></c>'
    content = '<text:p><draw:frame><draw:object xlink:href="./Object 1"/></draw:frame></text:p>'
    parsed = parse("a.odt", odf("text", content, parts={"Object 1/content.xml": chart}))
    assert _told(parsed) == [("table", "|  | 2024 |\n| --- | --- |\n| East | 5 |")]


def test_an_encrypted_document_says_so() -> None:
    manifest = "<manifest:manifest xmlns:manifest='m'><manifest:encryption-data/></manifest:manifest>"
    with pytest.raises(Unreadable) as caught:
        parse("a.odt", odf("text", "", parts={"META-INF/manifest.xml": manifest}))
    assert caught.value.code == "encrypted"
