from __future__ import annotations

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.delimited import Dialect, find_dialect
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.grid import column_name
from ingest_worker.parse.parse import parse
from shared.documents import Chunk, ChunkKind
from shared.tokens import load_token_counter


def _chunks(data: bytes, name: str = "a.csv") -> tuple[Chunk, ...]:
    return chunk_document(parse(name, data), load_token_counter())


def test_a_value_is_cited_by_its_row_as_a_spreadsheet_counts() -> None:
    data = "name,note\n" + 'ann,"two\nlines"\n\n' + "".join(f"person {i},{'words ' * 20}\n" for i in range(200))
    chunks = _chunks(data.encode())
    (chunk,) = [chunk for chunk in chunks if "person 150 " in chunk.text]
    # Row 1 is the header, row 2 has two lines, row 3 is blank.
    row = 4 + 150
    assert chunk.span.row_start is not None
    assert chunk.span.row_end is not None
    assert chunk.span.row_start <= row <= chunk.span.row_end
    lines = chunk.text.split("\n")
    assert lines[:2] == ["| name | note |", "| --- | --- |"]
    assert lines[2 + row - chunk.span.row_start].startswith("| person 150 |")
    assert chunk.kind is ChunkKind.TABLE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", Dialect(delimiter=",")),
        ("Menge;Preis\n1,5;2,50\n3,1;4,00\n", Dialect(delimiter=";")),
        ("a\tb, c\n1\t2, 3\n", Dialect(delimiter="\t")),
        ("a|b|c\n1|2|3\n", Dialect(delimiter="|")),
        ('id,text\n1,"a; b; c"\n2,"d; e; f"\n', Dialect(delimiter=",")),
        ("only\none\ncolumn\n", Dialect(delimiter=",")),
    ],
)
def test_the_delimiter_is_the_one_that_makes_columns(text: str, expected: Dialect) -> None:
    assert find_dialect(text) == expected


def test_a_quotation_mark_inside_a_cell_does_not_swallow_the_rest() -> None:
    parsed = parse("a.tsv", b'size\tname\n5"\tdisk\n3\t"half\n7\twhole\n')
    (table,) = parsed.elements
    assert table.text.count("\n") == 4
    assert "whole" in table.text.split("\n")[-1]


def test_the_separator_line_of_excel_is_obeyed() -> None:
    (table,) = parse("a.csv", b"sep=|\nx|y\n1|2\n").elements
    assert table.text == "| x | y |\n| --- | --- |\n| 1 | 2 |"


def test_rows_without_a_header_get_the_letters_of_their_columns() -> None:
    (table,) = parse("a.csv", b"5,6\n7,8\n").elements
    assert table.text.split("\n")[0] == "| A | B |"
    assert (table.span.row_start, table.span.row_end) == (1, 2)
    assert [column_name(n) for n in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]


@pytest.mark.parametrize("header", ["region,2023,2024", "day,1,2,3,4", "month,2024-01-01,2024-02-01"])
def test_years_counts_and_dates_above_other_values_are_a_header(header: str) -> None:
    width = header.count(",")
    (table,) = parse("a.csv", f"{header}\nnorth{',77' * width}\n".encode()).elements
    assert table.text.split("\n")[0] == f"| {header.replace(',', ' | ')} |"


def test_a_wide_table_is_laid_out_as_several_that_each_name_the_row() -> None:
    names = ["who", *(f"measure number {n}" for n in range(80))]
    rows = [[f"person {p}", *(f"{p * 1000 + n + 5000}" for n in range(80))] for p in range(30)]
    chunks = _chunks("\n".join([",".join(names), *map(",".join, rows)]).encode())
    assert all(chunk.text.startswith("| who | measure number ") for chunk in chunks)
    for p, n in ((0, 0), (17, 40), (29, 79)):
        (chunk,) = [chunk for chunk in chunks if f" {p * 1000 + n + 5000} " in chunk.text]
        header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in chunk.text.split("\n")]
        (line,) = [line for line in lines if f"{p * 1000 + n + 5000}" in line]
        assert (line[0], header[line.index(f"{p * 1000 + n + 5000}")]) == (f"person {p}", f"measure number {n}")
        assert chunk.span.row_start is not None
        assert chunk.span.row_end is not None
        assert chunk.span.row_start <= p + 2 <= chunk.span.row_end


def test_other_codecs_are_read() -> None:
    assert "Köln" in parse("a.csv", "Ort,Land\nKöln,DE\n".encode("utf-16")).elements[0].text
    assert "Köln" in parse("a.csv", "Ort;Land\nKöln;DE\n".encode("cp1252")).elements[0].text


def test_a_table_without_values_is_skipped_and_a_giant_cell_refused() -> None:
    with pytest.raises(Skipped) as empty:
        parse("a.csv", b",,,\n,,,\n")
    assert empty.value.code == "empty"
    with pytest.raises(Unreadable) as giant:
        parse("a.csv", b'a,b\n1,2\n3,"' + b"x" * (17 * 1024**2))
    assert giant.value.code == "too_large"
    assert "Row 3" in str(giant.value)


def test_an_inserted_row_changes_two_chunks_of_ten_thousand_rows_and_their_windows_stay() -> None:
    rows = ["id,name,note", *(f"{i},customer {i},text of row {i % 97} and {i % 89}" for i in range(10_000))]
    before = _chunks("\n".join(rows).encode())
    rows.insert(777, "new,row,here")
    after = _chunks("\n".join(rows).encode())
    assert len({c.chunk_id for c in after} - {c.chunk_id for c in before}) <= 2
    assert len(before) > 200


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12), min_size=3, max_size=3
        ),
        min_size=2,
        max_size=60,
    )
)
def test_no_row_and_no_cell_is_lost(rows: list[list[str]]) -> None:
    out = ["kind,size,place"] + [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    chunks = _chunks("\n".join(out).encode())
    lines = [line for chunk in chunks for line in chunk.text.split("\n") if not line.startswith("| ---")]
    found = [line for line in lines if line != "| kind | size | place |"]
    assert len(found) == len(rows)
    read = list(csv.reader(out[1:]))
    for cells, line in zip(read, found, strict=True):
        assert all(" ".join(cell.split()).replace("|", "\\|")[:3] in line for cell in cells if cell.isascii())
