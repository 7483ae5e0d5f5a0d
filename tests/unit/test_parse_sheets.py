from __future__ import annotations

import io

import openpyxl
import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.number_format import GENERAL, NumberFormat, read_format, show_number
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument, Span
from shared.tokens import load_token_counter
from tests.making import cells, odf, relations, xls, xlsx

_TABLE = cells(1, "Region", "Sold") + "".join(cells(n, f"district {n} {'of the north ' * 12}", n * 10) for n in range(2, 120))


def _told(parsed: ParsedDocument) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in parsed.elements]


def test_a_value_is_cited_by_its_sheet_and_row() -> None:
    chunks = chunk_document(parse("q1.xlsx", xlsx({"Notes": cells(1, "Read me"), "Sales": _TABLE})), load_token_counter())
    (chunk,) = [chunk for chunk in chunks if "district 77 " in chunk.text]
    assert chunk.span.sheet == "Sales"
    assert chunk.section == ("Sales",)
    assert chunk.span.row_start is not None
    assert chunk.text.split("\n")[2 + 77 - chunk.span.row_start].startswith("| district 77 ")
    assert chunk.text.startswith("| Region | Sold |\n")
    assert chunks[0].span == Span(sheet="Notes", row_start=1, row_end=1)


def test_values_are_shown_as_the_workbook_shows_them() -> None:
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="#,##0.00\\ &quot;€&quot;"/>'
        '<numFmt numFmtId="165" formatCode="yyyy\\-mm"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="9"/><xf numFmtId="10"/><xf numFmtId="164"/>'
        '<xf numFmtId="14"/><xf numFmtId="165"/></cellXfs>'
    )
    row = "".join(
        f'<c r="{column}2" s="{style}"><v>{value}</v></c>'
        for column, style, value in [
            ("A", 0, "0.1"),
            ("B", 1, "0.05"),
            ("C", 2, "0.1234"),
            ("D", 3, "1234.5"),
            ("E", 4, "45356"),
            ("F", 5, "45356.5"),
        ]
    )
    others = (
        '<c r="G2" t="b"><v>1</v></c><c r="H2" t="e"><v>#N/A</v></c><c r="I2" t="s"><v>0</v></c>'
        '<c r="J2"><f>A2*2</f><v>0.2</v></c>'
        '<c r="K2"><f>SUM(A1:A2)</f></c><c r="L2" t="str"><f>"x"</f><v>text</v></c>'
    )
    head = cells(1, *"abcdefghijkl")
    (_, table) = parse(
        "a.xlsx", xlsx({"S": head + f'<row r="2">{row}{others}</row>'}, styles=styles, strings=["shared"])
    ).elements
    assert table.text.split("\n")[2] == (
        "| 0.1 | 5% | 12.34% | 1234.5 € | 2024-03-05 | 2024-03-05 12:00 | TRUE | #N/A | shared | 0.2 | =SUM(A1:A2) | text |"
    )


def test_hidden_sheets_are_read_and_said_to_be_hidden() -> None:
    parsed = parse("a.xlsx", xlsx({"Open": cells(1, "seen"), "Secret": cells(1, "found too")}, states={"Secret": "veryHidden"}))
    assert parsed.warnings == ("The sheet Secret is hidden.",)
    assert ("text", "found too") in _told(parsed)


def test_the_strict_dialect_is_read() -> None:
    assert ("text", "strictly") in _told(parse("a.xlsx", xlsx({"S": cells(1, "strictly")}, strict=True)))


def test_a_blank_row_ends_a_table_and_a_title_stands_above_it() -> None:
    rows = (
        cells(2, "Sales of 2024")
        + cells(3, "Region", "Sold")
        + cells(4, "North", 5)
        + cells(6, "South", 7)
        + cells(8, "Checked by Ann")
    )
    parsed = parse("a.xlsx", xlsx({"S": rows}))
    assert _told(parsed)[1:] == [
        ("text", "Sales of 2024"),
        ("table", "| Region | Sold |\n| --- | --- |\n| North | 5 |"),
        ("table", "| Region | Sold |\n| --- | --- |\n| South | 7 |"),
        ("text", "Checked by Ann"),
    ]
    assert [(e.span.row_start, e.span.row_end) for e in parsed.elements[1:]] == [(2, 2), (3, 4), (6, 6), (8, 8)]


def test_cells_far_away_cost_nothing() -> None:
    far = cells(1, "near") + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    parsed = parse("a.xlsx", xlsx({"S": far}))
    assert _told(parsed)[1:] == [("text", "near"), ("text", "1")]
    assert parsed.elements[2].span == Span(sheet="S", row_start=1_048_576, row_end=1_048_576)


def test_comments_on_cells_are_cited_by_their_row() -> None:
    parts = {
        "xl/worksheets/_rels/sheet1.xml.rels": relations(("comments", "../comments1.xml")),
        "xl/comments1.xml": (
            "<comments><authors><author>Ann</author></authors><commentList><comment ref='B7' authorId='0'><text>"
            "<r><t>Ann:</t></r><r><t>ask the bank</t></r></text></comment></commentList></comments>"
        ),
    }
    parsed = parse("a.xlsx", xlsx({"S": cells(1, "x")}, parts=parts))
    assert parsed.elements[-1].text == "Comment on B7 by Ann: ask the bank"
    assert parsed.elements[-1].span == Span(sheet="S", row_start=7, row_end=7)


def test_a_workbook_of_another_writer_is_read_the_same() -> None:
    book = openpyxl.Workbook()
    book.active.title = "Data"
    book.active.append(["name", "share"])
    book.active.append(["ann", 0.25])
    book.active["B2"].number_format = "0.0%"
    out = io.BytesIO()
    book.save(out)
    assert _told(parse("a.xlsx", out.getvalue()))[1] == ("table", "| name | share |\n| --- | --- |\n| ann | 25.0% |")


def test_old_workbooks_and_open_documents_are_read() -> None:
    expected = ("table", "| name | sold |\n| --- | --- |\n| ann | 5 |")
    assert _told(parse("a.xls", xls([["name", "sold"], ["ann", 5.0]])))[1] == expected
    row = (
        '<table:table-row><table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>{}</table:table-row>'
    )
    number = '<table:table-cell office:value-type="float" office:value="5"><text:p>5</text:p></table:table-cell>'
    word = '<table:table-cell office:value-type="string"><text:p>sold</text:p></table:table-cell>'
    sheet = f'<table:table table:name="Data">{row.format("name", word)}{row.format("ann", number)}</table:table>'
    parsed = parse("a.ods", odf("spreadsheet", sheet))
    assert _told(parsed)[1] == expected
    assert parsed.elements[1].span == Span(sheet="Data", row_start=1, row_end=2)


def test_an_old_workbook_counts_rows_and_columns_from_the_first() -> None:
    (_, table) = parse("a.xls", xls([[], [], ["", "name", "sold"], ["", "ann", 5.0]])).elements
    assert (table.span.row_start, table.span.row_end) == (3, 4)


def test_a_damaged_sheet_says_which() -> None:
    broken = xlsx({"S": "<row r='1'><c r='A1'><v>1</v></row>"})
    with pytest.raises(Unreadable) as caught:
        parse("a.xlsx", broken)
    assert caught.value.code == "damaged"
    assert "xl/worksheets/sheet1.xml" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("General", 1e20, "1e+20"),
        ("0", 3.0, "3"),
        ("[Red]0.0%", -0.5, "-50.0%"),
        ("[$-409]d. mmmm yyyy", 1, "1900-01-01"),
        ("[h]:mm", 0.5, "12:00"),
        ("[$CHF] #,##0", 7.25, "CHF 7.25"),
        ("$#,##0", 7, "$7"),
        ('"approx. "0', 7, "7"),
        ("yyyy", 1e9, "1000000000"),
    ],
)
def test_number_formats_keep_what_a_reader_needs(code: str, value: float, shown: str) -> None:
    assert show_number(value, read_format(200, code)) == shown


def test_the_other_date_system_starts_four_years_later() -> None:
    assert show_number(0, NumberFormat(kind="date"), mac_dates=True) == "1904-01-01"
    assert show_number(0.1 + 0.2, GENERAL) == "0.3"
