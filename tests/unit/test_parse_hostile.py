"""Input that was made to harm: bombs, entities, trees without end. Each ends at once, with a reason or with what there is."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.package import Package, PackageLimits
from ingest_worker.parse.parse import parse
from tests.making import cells, docx, epub, odf, paragraph, pptx, relations, shape, xls, xlsx, zipped

_SECRET = "the words of another file"


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < 10


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = docx(paragraph("x"), parts={"word/media/zeros": b"\0" * (70 * 1024**2)})
    assert len(bomb) < 100_000
    with pytest.raises(Unreadable) as caught:
        parse("bomb.docx", bomb)
    assert caught.value.code == "too_large"
    assert "times its size" in str(caught.value)


@pytest.mark.parametrize(
    "limits",
    [
        PackageLimits(members=3),
        PackageLimits(total_bytes=1000),
        PackageLimits(member_bytes=900),
        PackageLimits(ratio=2, always_bytes=10),
    ],
)
def test_each_limit_of_a_package_holds(limits: PackageLimits) -> None:
    data = zipped(dict.fromkeys("abcd", "x" * 1000))
    with pytest.raises(Unreadable) as caught:
        Package(data, "thing", limits)
    assert caught.value.code == "too_large"
    assert Package(data, "thing").read("a") == b"x" * 1000


def test_a_part_that_is_larger_than_it_says_is_not_read_to_its_end() -> None:
    data = zipped({"word/document.xml": "x" * 10_000}, compression=zipfile.ZIP_STORED)
    lied = data.replace((10_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    with pytest.raises(Unreadable) as caught:
        Package(lied, "thing").read("word/document.xml")
    assert caught.value.code == "damaged"


def _with_entities(content: str, root: str, secret: Path) -> str:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    return (
        f'<?xml version="1.0"?><!DOCTYPE {root} [<!ENTITY l0 "ha">{laughs}<!ENTITY file SYSTEM "{secret.as_uri()}">'
        f'<!ENTITY % out SYSTEM "http://127.0.0.1:9/x.dtd">]>{content}'
    )


def test_entities_are_never_expanded_and_never_fetched(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(_SECRET)
    entities = "&file;&l11;"
    word = _with_entities(
        f'<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>{entities}</w:t></w:r></w:p></w:body></w:document>', "w:document", secret
    )
    sheet = _with_entities(f"<sst><si><t>{entities}</t></si></sst>", "sst", secret)
    content = _with_entities(
        f'<o><b:body xmlns:b="b"><t:text xmlns:t="t"><t:p>{entities}</t:p></t:text></b:body></o>', "o", secret
    )
    files = {
        "a.docx": docx("", parts={"word/document.xml": word}),
        "a.xlsx": xlsx({"S": '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'}, parts={"xl/sharedStrings.xml": sheet}),
        "a.odt": odf("text", "", parts={"content.xml": content}),
        "a.svg": _with_entities(f"<svg><text>{entities}</text></svg>", "svg", secret).encode(),
        "a.epub": epub(
            {"a": entities}, parts={"OEBPS/a.xhtml": _with_entities(f"<html><p>kept {entities}</p></html>", "html", secret)}
        ),
        "a.html": _with_entities(f"<html><p>kept {entities}</p></html>", "html", secret).encode(),
    }
    for name, data in files.items():
        try:
            text = " ".join(element.text for element in parse(name, data).elements)
        except (Unreadable, Skipped):
            continue
        assert _SECRET not in text, name
        assert "haha" not in text, name


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt", "a.svg"])
def test_xml_that_is_nested_without_end_is_refused(name: str) -> None:
    deep = "<x>" * 100_000
    files = {
        "a.docx": docx(deep),
        "a.pptx": pptx([deep]),
        "a.xlsx": xlsx({"S": deep}),
        "a.odt": odf("text", deep),
        "a.svg": f"<svg>{deep}</svg>".encode(),
    }
    with pytest.raises(Unreadable) as caught:
        parse(name, files[name])
    assert caught.value.code in ("too_deep", "damaged")


def test_tables_in_tables_up_to_the_depth_of_xml_are_read() -> None:
    body = paragraph("innermost")
    for _ in range(60):
        cell = f"<w:tc>{body}</w:tc>"
        body = f"<w:tbl><w:tr>{cell}<w:tc>{paragraph('b')}</w:tc></w:tr><w:tr><w:tc>{paragraph('c')}</w:tc><w:tc/></w:tr></w:tbl>"
    assert "innermost" in "".join(element.text for element in parse("a.docx", docx(body)).elements)


@pytest.mark.parametrize(
    "row",
    [
        '<row r="99999999999999999999"><c r="A1"><v>1</v></c></row>',
        '<row r="-5"><c r="??"><v>1</v></c></row>',
        '<row><c><v>1</v></c><c r="ZZZZ9"><v>2</v></c></row>',
        '<row r="1"><c r="A1" t="s"><v>999999</v></c><c r="B1" t="s"><v>x</v></c><c r="C1" s="77"><v>1</v></c></row>',
        '<row r="1"><c r="A1"><v>1e999</v></c><c r="B1"><v>not a number</v></c></row>',
    ],
)
def test_a_sheet_that_breaks_its_own_rules_gives_what_can_be_understood(row: str) -> None:
    parse("a.xlsx", xlsx({"S": row}))


def test_a_million_rows_that_are_claimed_cost_what_is_there() -> None:
    rows = "".join(f'<row r="{n}"><c r="A{n}"><v>{n}</v></c></row>' for n in range(1, 1_000_000, 40_000))
    assert len(parse("a.xlsx", xlsx({"S": rows})).elements) == 26


def test_references_in_a_ring_end() -> None:
    style = '<w:style w:styleId="{}"><w:basedOn w:val="{}"/></w:style>'
    styles = f'<w:styles xmlns:w="w">{style.format("A", "B")}{style.format("B", "A")}</w:styles>'
    data = docx(paragraph("x", style="A"), parts={"word/styles.xml": styles}, related=[("styles", "styles.xml")])
    assert [element.text for element in parse("a.docx", data).elements] == ["x"]
    ring = {"ppt/slides/_rels/slide1.xml.rels": relations(("notesSlide", "slide1.xml"))}
    assert parse("a.pptx", pptx([shape("x", kind="body")], parts=ring)).elements


def test_names_that_lead_out_of_the_package_are_names_in_it() -> None:
    data = xlsx({"S": cells(1, "x")}, parts={"xl/_rels/workbook.xml.rels": relations(("worksheet", "../../../../etc/passwd"))})
    with pytest.raises(Unreadable) as caught:
        parse("a.xlsx", data)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.csv", "a.json", "a.eml", "a.rtf", "a.svg", "a.ipynb"])
def test_a_single_line_of_megabytes_ends_in_an_answer(name: str) -> None:
    start = {"a.html": "<p>", "a.rtf": "{\\rtf1 ", "a.svg": "<svg><text>", "a.eml": "Subject: x\n\n"}.get(name, "")
    with suppress(Unreadable):
        parse(name, (start + "word " * 600_000).encode())


def test_what_no_database_takes_is_cleaned_out_of_every_format() -> None:
    dirty = "a\\u0000b\\ud800c"
    texts = [
        *(e.text for e in parse("a.ipynb", f'{{"cells": [{{"cell_type": "raw", "source": "{dirty}"}}]}}'.encode()).elements),
        *(e.text for e in parse("a.html", b"<p>a&#0;b&#xd800;c&#1;").elements),
        *(e.text for e in parse("a.rtf", rb"{\rtf1 a\u0?b\u-10240?c}").elements),
        *(e.text for e in parse("a.csv", b"x,a\x01b\n" + b"1,2\n" * 200).elements),
    ]
    for text in texts:
        text.encode("utf-8")
        assert not any(ord(character) < 32 and character not in "\n\t" for character in text)
    assert len(texts) == 4


def test_names_titles_and_languages_are_cleaned_as_texts_are() -> None:
    book = parse("a.xls", xls([["a", "b"], ["c", 5.0]], name="Sa\0les\x01"))
    assert {element.span.sheet for element in book.elements} == {"Sales"}
    assert parse("a.rtf", rb"{\rtf1{\info{\title A\u0?B}}text}").title == "AB"
    cell = {"cell_type": "code", "source": "x = 1"}
    notebook = json.dumps({"cells": [cell], "metadata": {"language_info": {"name": "py\0thon"}}}).encode()
    assert [element.language for element in parse("a.ipynb", notebook).elements] == ["python"]


def test_an_entity_in_the_place_of_a_value_is_no_value() -> None:
    sheet = "<worksheet><sheetData><row r='1'><c r='A1'>&e;</c><c r='B1'><v>7</v></c></row></sheetData></worksheet>"
    part = f'<!DOCTYPE worksheet [<!ENTITY e "ha">]>{sheet}'
    assert [element.text for element in parse("a.xlsx", xlsx({"S": ""}, parts={"xl/worksheets/sheet1.xml": part})).elements] == [
        "S",
        "7",
    ]


@pytest.mark.parametrize("size", [1, 4, 100, 1000])
def test_a_file_that_was_cut_off_anywhere_ends_with_a_reason(size: int) -> None:
    files = {
        "a.docx": docx(paragraph("x" * 500)),
        "a.xlsx": xlsx({"S": cells(1, "x" * 500)}),
        "a.pptx": pptx([shape("x" * 500)]),
        "a.odt": odf("text", "<text:p>x</text:p>"),
        "a.epub": epub({"a": "<p>x</p>"}),
    }
    for name, data in files.items():
        with pytest.raises((Unreadable, Skipped)):
            parse(name, data[:-size])
