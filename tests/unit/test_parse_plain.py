from __future__ import annotations

import pytest

from ingest_worker.parse.encoding import decode
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.parse import parse
from ingest_worker.parse.plain import parse_plain
from shared.documents import Span


def test_paragraphs_keep_their_lines() -> None:
    document = parse_plain(decode(b"one\ntwo\n\n\nthree\r\n"), "text/plain")
    assert [(e.text, e.span) for e in document.elements] == [
        ("one\ntwo", Span(line_start=1, line_end=2)),
        ("three", Span(line_start=5, line_end=5)),
    ]
    assert document.page_count is None


def test_form_feeds_make_pages() -> None:
    document = parse_plain(decode(b"first\n\x0csecond\nmore\n\x0c\n\x0cfourth"), "text/plain")
    assert [(e.text, e.span.page_start, e.span.line_start) for e in document.elements] == [
        ("first", 1, 1),
        ("second\nmore", 2, 2),
        ("fourth", 4, 5),
    ]
    assert (document.page_count, document.pages_with_text) == (4, 3)


def test_source_is_one_element_and_says_so() -> None:
    document = parse("a.py", b"x = 1\n\ny = 2\n")
    assert document.is_source
    assert document.elements[0].text == "x = 1\n\ny = 2\n"
    assert document.elements[0].span == Span(line_start=1, line_end=3)


def test_a_byte_order_mark_alone_is_an_empty_file() -> None:
    with pytest.raises(Skipped) as caught:
        parse("a.txt", b"\xef\xbb\xbf \n")
    assert caught.value.code == "empty"
