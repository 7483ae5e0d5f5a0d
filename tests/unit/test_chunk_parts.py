"""Slides, sheets and attachments are cited by themselves: no chunk holds text of two."""

from __future__ import annotations

import pytest

from ingest_worker.chunk.chunk import chunk_document
from shared.documents import Element, ElementKind, ParsedDocument, Span
from shared.tokens import load_token_counter


@pytest.mark.parametrize(
    "spans",
    [
        (Span(slide=1), Span(slide=2)),
        (Span(sheet="A", row_start=1, row_end=1), Span(sheet="B", row_start=1, row_end=1)),
        (Span(), Span(attachment="offer.docx")),
        (Span(attachment="a.pdf", page_start=1, page_end=1), Span(attachment="b.pdf", page_start=1, page_end=1)),
    ],
)
def test_a_new_part_begins_a_chunk_and_ends_the_headings(spans: tuple[Span, Span]) -> None:
    elements = (
        Element(kind=ElementKind.HEADING, text="First", level=1, span=spans[0]),
        Element(kind=ElementKind.TEXT, text="Short.", span=spans[0]),
        Element(kind=ElementKind.TEXT, text="Shorter.", span=spans[1]),
    )
    first, second = chunk_document(ParsedDocument(elements=elements, media_type="x"), load_token_counter())
    assert (first.section, first.span) == (("First",), spans[0])
    assert (second.text, second.section, second.span) == ("Shorter.", (), spans[1])


def test_lines_and_pages_do_not_part_a_chunk() -> None:
    elements = tuple(
        Element(kind=ElementKind.TEXT, text=f"Sentence {n}.", span=Span(page_start=n, page_end=n, page_label=f"{n}a"))
        for n in (1, 2)
    )
    (chunk,) = chunk_document(ParsedDocument(elements=elements, media_type="x"), load_token_counter())
    assert chunk.span == Span(page_start=1, page_end=2, page_label="1a")


def test_the_union_of_two_spans_names_no_part_that_holds_only_one_of_them() -> None:
    assert Span(slide=1, attachment="a").union(Span(slide=2, attachment="a")) == Span(attachment="a")
    assert Span(page_start=4, page_label="d").union(Span(page_start=2, page_label="b")) == Span(page_start=2, page_label="b")
