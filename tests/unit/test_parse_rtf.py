from __future__ import annotations

import time

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument
from shared.tokens import load_token_counter

_HEAD = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Cyr;}{\f2\fcharset128 MS;}}"
    r"{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 Kop een;}{\s2 heading 2;}{\*\cs10 Font;}}"
)


def _rtf(body: str) -> ParsedDocument:
    return parse("a.rtf", f"{_HEAD}{body}}}".encode("latin-1"))


def _told(body: str) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in _rtf(body).elements]


def test_a_sentence_is_cited_by_its_headings() -> None:
    body = (
        r"\pard\s1 Billing\par\pard "
        + "All of it is new. " * 40
        + r"\par\pard\s2 Cancelling\par\pard Refunds take five days. "
        + "There are exceptions. " * 20
        + r"\par"
    )
    (chunk,) = [c for c in chunk_document(_rtf(body), load_token_counter(), 64, 0) if "five days" in c.text]
    assert chunk.section == ("Billing", "Cancelling")
    assert (chunk.span.page_start, chunk.span.line_start) == (None, None)


def test_characters_of_all_code_pages_are_read() -> None:
    body = r"\pard Caf\'e9 {\f1\'cf\'f0} {\f2\'82\'a0\'83A} \u8364?5 {\uc2\u20320\'c4\'e3} \u-10179?\u-8704? 5\~\emdash\_x\-y\par"
    assert _told(body) == [("text", "Café Пр あア €5 你 😀 5\u00a0—-xy")]


def test_tables_lists_notes_and_fields_are_read() -> None:
    body = (
        r"{\header\pard ACME\par}\pard{\listtext 1.\tab}one\par{\listtext\'b7\tab}two\par\pard Claim{\footnote\pard see the law}"
        r"{\field{\*\fldinst HYPERLINK x}{\fldrslt  link}}\par"
        r"\trowd\pard\intbl Plan\cell Price\cell\row\trowd\pard\intbl Basic\par more\cell 5\cell\row\pard end\par"
    )
    assert _told(body) == [
        ("text", "ACME"),
        ("text", "1. one\n- two"),
        ("text", "Claim[^1] link"),
        ("text", "[^1]: see the law"),
        ("table", "| Plan | Price |\n| --- | --- |\n| Basic more | 5 |"),
        ("text", "end"),
    ]


def test_what_nobody_sees_is_left_out() -> None:
    body = (
        r"{\info{\title The plan}{\author Ann}}{\*\generator Word;}{\colortbl;\red0;}\pard seen{\v unseen}{\deleted gone}"
        r"{\*\unknown x{\b y}}{\pict\pngblip 89504e47}{\upr{old}{\*\ud  new}}\bin4 ABCD\par"
    )
    assert _told(body) == [("text", "seen new")]
    assert _rtf(body).title == "The plan"


def test_a_scan_in_a_document_needs_ocr() -> None:
    parsed = _rtf(r"{\pict\pngblip 89504e47}")
    assert (parsed.elements, parsed.page_count, parsed.pages_with_text) == ((), 1, 0)


def test_a_file_that_was_cut_off_gives_what_is_there() -> None:
    assert _told(r"\pard first\par second {\b bo")[-1] == ("text", "second bo")


def test_nesting_without_end_is_refused_and_odd_bytes_are_passed_over() -> None:
    began = time.thread_time()
    with pytest.raises(Unreadable) as caught:
        _rtf("{" * 200_000)
    assert caught.value.code == "too_deep"
    odd = "}}}}\\pard still \\'zz here\\u99999999999999 \\par"
    assert _told(odd)[0][1].startswith("still")
    assert time.thread_time() - began < 5
