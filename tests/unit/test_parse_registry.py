from __future__ import annotations

import pytest
from tree_sitter_language_pack import get_parser

from ingest_worker.parse.errors import Skipped, Unreadable, Unsupported
from ingest_worker.parse.languages import BY_EXTENSION, BY_NAME, language_of
from ingest_worker.parse.registry import FormatKind, detect
from tests.compound import compound_file
from tests.making import docx, epub, msg, odf, pptx, xls, xlsx, zipped


@pytest.mark.parametrize(
    ("path", "data", "kind", "language"),
    [
        ("notes/a.md", b"# Hi", FormatKind.MARKDOWN, None),
        ("man/x.7.ronn", b"x(7) -- y\n=====", FormatKind.MARKDOWN, None),
        ("a.txt", b"plain", FormatKind.TEXT, None),
        ("LICENSE", b"Permission is granted", FormatKind.TEXT, None),
        ("report", b"%PDF-1.7\n", FormatKind.PDF, None),
        ("broken.pdf", b"no magic at all", FormatKind.PDF, None),
        ("src/a.py", b"x = 1", FormatKind.SOURCE, "python"),
        ("Makefile", b"all:\n\ttrue", FormatKind.SOURCE, "make"),
        ("docker/Dockerfile.dev", b"FROM x", FormatKind.SOURCE, "dockerfile"),
        ("bin/run", b"#!/usr/bin/env -S python3 -u\nprint(1)", FormatKind.SOURCE, "python"),
        ("bin/go", b"#!/bin/sh\necho 1", FormatKind.SOURCE, "bash"),
        ("tei.odd", b'<?xml version="1.0"?><TEI/>', FormatKind.SOURCE, "xml"),
        ("a.h", b"#include <x.h>\nint f(void);", FormatKind.SOURCE, "c"),
        ("a.h", b"namespace x { class A; }", FormatKind.SOURCE, "cpp"),
        ("a.m", b"#import <Foundation/Foundation.h>", FormatKind.SOURCE, "objc"),
        ("ci.yaml", b"a: 1", FormatKind.SOURCE, "yaml"),
    ],
)
def test_a_file_is_known_by_its_name_and_its_bytes(path: str, data: bytes, kind: FormatKind, language: str | None) -> None:
    found = detect(path, data)
    assert (found.kind, found.language) == (kind, language)


_HTML = b"<!DOCTYPE html><html></html>"


@pytest.mark.parametrize(
    ("path", "data", "kind"),
    [
        ("a.docx", docx(""), FormatKind.WORD),
        ("upload", docx(""), FormatKind.WORD),
        ("renamed.xlsx", docx(""), FormatKind.WORD),
        ("a.pptm", pptx([""]), FormatKind.SLIDES),
        ("a.xlsm", xlsx({"S": ""}), FormatKind.SHEETS),
        ("a.xlsb", zipped({"xl/workbook.bin": b""}), FormatKind.OTHER_SHEETS),
        ("a.xls", xls([["x"]]), FormatKind.OTHER_SHEETS),
        ("a.ods", odf("spreadsheet", ""), FormatKind.OTHER_SHEETS),
        ("a.odt", odf("text", ""), FormatKind.OPEN_DOCUMENT),
        ("a.odp", odf("presentation", ""), FormatKind.OPEN_DOCUMENT),
        ("book", epub({"a": ""}), FormatKind.EPUB),
        ("a.msg", msg({"0037": "x"}), FormatKind.OUTLOOK),
        ("a.xlsx", compound_file({"EncryptedPackage": b"x", "EncryptionInfo": b"x"}), FormatKind.ENCRYPTED_OFFICE),
        ("letter.doc", b"{\\rtf1 x}", FormatKind.RICH_TEXT),
        ("page", _HTML, FormatKind.HTML),
        ("report.xls", _HTML, FormatKind.HTML),
        ("report.xls", b"a\tb\n1\t2\n", FormatKind.DELIMITED),
        ("a.htm", b"<p>x", FormatKind.HTML),
        ("a.csv", b"a,b", FormatKind.DELIMITED),
        ("a.eml", b"Subject: x\n\ny", FormatKind.MAIL),
        ("1709630000.M1P2.host", b"Return-Path: <a>\nFrom: a\nDate: x\n\nbody", FormatKind.MAIL),
        ("dialogue", b"From: here on\nwe talk\n", FormatKind.TEXT),
        ("robot/Point.msg", b"float64 x\nfloat64 y\n", FormatKind.TEXT),
        ("a.ipynb", b"{}", FormatKind.NOTEBOOK),
        ("photo", b"\x89PNG\r\n\x1a\n\0\0", FormatKind.IMAGE),
        ("scan.tif", b"II*\0\0", FormatKind.IMAGE),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", FormatKind.IMAGE),
        ("a.svg", b"<svg/>", FormatKind.DRAWING),
        ("settings.json", b"{}", FormatKind.SOURCE),
    ],
)
def test_office_mail_web_and_picture_formats_are_known_by_what_is_in_them(path: str, data: bytes, kind: FormatKind) -> None:
    assert detect(path, data).kind is kind


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("a.zip", zipped({"a.txt": "x"}), "Unsupported for now: archive (.zip)"),
        ("upload", zipped({"a.txt": "x"}), "Unsupported for now: archive (upload)"),
        ("a.doc", compound_file({"WordDocument": b"x"}), "Unsupported for now: Word document of Office 97–2003 (a.doc)"),
        ("a.ppt", compound_file({"PowerPoint Document": b"x"}), "Unsupported for now: PowerPoint presentation of Office 97"),
        ("help.chm", b"ITSF", "Unsupported for now: compiled help file (.chm)"),
        ("film", b"\x1f\x8b\x08", "Unsupported for now: archive"),
    ],
)
def test_a_format_that_nothing_reads_yet_is_named(path: str, data: bytes, message: str) -> None:
    with pytest.raises(Unsupported) as caught:
        detect(path, data)
    assert str(caught.value).startswith(message)
    assert caught.value.code == "unsupported_format"


@pytest.mark.parametrize("path", ["a.docx", "a.xlsx", "a.odt", "a.epub", "a.rtf", "a.png"])
@pytest.mark.parametrize("data", [b"something else", b"PK\x03\x04cut off"])
def test_a_file_whose_content_is_not_what_its_name_says_is_damaged(path: str, data: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        detect(path, data)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("a.md", b" \n\t\n", "empty"),
        ("a.txt", b"", "empty"),
        ("a.bin", b"\0\1\2\3" * 50, "binary"),
        ("app.min.js", b"var a=1;", "minified"),
        ("app.js", b"var a=1;" * 2000, "minified"),
        ("app.css.map", b'{"version":3,"mappings":"AAAA"}', "generated"),
    ],
)
def test_a_file_is_left_out_with_a_reason(path: str, data: bytes, code: str) -> None:
    with pytest.raises(Skipped) as caught:
        detect(path, data)
    assert caught.value.code == code


def test_generated_source_and_long_lines_of_data_are_kept() -> None:
    assert detect("x_pb2.py", b"# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1").language == "python"
    assert detect("article.xml", b"<?xml version='1.0'?>" + b"<p>text</p>" * 2000).language == "xml"


def test_every_language_of_the_tables_has_a_bundled_grammar() -> None:
    for language in sorted({*BY_EXTENSION.values(), *BY_NAME.values()}):
        assert get_parser(language) is not None  # type: ignore[arg-type]


def test_an_unknown_extension_is_no_language() -> None:
    assert language_of("a.unknownext", b"text") is None
