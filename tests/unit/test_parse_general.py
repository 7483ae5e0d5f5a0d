from __future__ import annotations

import io

import openpyxl
import pytest

from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.formats import FormatKind
from ingest_worker.parse.general import read_with_second_opinion
from shared.documents import ElementKind, ParsedDocument


def _stumbles(file: File) -> ParsedDocument:
    raise AttributeError("no such thing")


def test_where_a_parser_stumbles_the_general_one_reads_the_file_and_says_so() -> None:
    file = File(
        name="a.html", data=b"<h1>Billing</h1><p>Refunds take five days.</p><ul><li>one</li></ul>", media_type="text/html"
    )
    parsed = read_with_second_opinion(_stumbles, file, FormatKind.HTML)
    assert [(e.kind, e.text) for e in parsed.elements] == [
        (ElementKind.HEADING, "Billing"),
        (ElementKind.TEXT, "Refunds take five days."),
        (ElementKind.TEXT, "- one"),
    ]
    assert "no such thing" in parsed.warnings[0]


def test_its_sheets_keep_their_names_and_tables() -> None:
    book = openpyxl.Workbook()
    book.active.title = "Sales"
    book.active.append(["Region", "Sold"])
    book.active.append(["North", 5])
    out = io.BytesIO()
    book.save(out)
    parsed = read_with_second_opinion(_stumbles, File(name="a.xlsx", data=out.getvalue()), FormatKind.SHEETS)
    (table,) = [element for element in parsed.elements if element.kind is ElementKind.TABLE]
    assert "| North | 5 |" in table.text
    assert table.span.sheet == "Sales"


def test_when_it_finds_nothing_either_the_first_reason_stands() -> None:
    with pytest.raises(AttributeError, match="no such thing"):
        read_with_second_opinion(_stumbles, File(name="a.docx", data=b"nothing"), FormatKind.WORD)
    with pytest.raises(AttributeError, match="no such thing"):
        read_with_second_opinion(_stumbles, File(name="a.epub", data=b"nothing"), FormatKind.EPUB)


@pytest.mark.parametrize(
    "error",
    [
        Skipped("empty", code="empty"),
        Unreadable("locked", code="encrypted"),
        Unreadable("cut off", code="damaged"),
        MemoryError(),
    ],
)
def test_what_is_certain_is_asked_of_nobody_else(error: Exception) -> None:
    def refuses(file: File) -> ParsedDocument:
        raise error

    with pytest.raises(type(error)):
        read_with_second_opinion(refuses, File(name="a.html", data=b"<p>text</p>"), FormatKind.HTML)
