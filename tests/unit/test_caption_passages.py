"""Captions among the passages of a document: where they stand, and what the document may say of itself with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest_worker.enrich.caption_passages import Described, place_for, with_captions
from ingest_worker.parse.pictures import Picture
from ingest_worker.publish import NewVersion
from shared.documents import Chunk, ChunkKind, DocumentState, Span, caption_text

BARE = NewVersion(
    version_id=1,
    number=1,
    audience_id=1,
    state=DocumentState.NEEDS_OCR,
    reason_code="no_text",
    reason="None of its 2 pages has text: they are pictures. It needs OCR.",
    page_count=2,
    pages_with_text=0,
)


def chunk(text: str, **span: int | str) -> Chunk:
    return Chunk(kind=ChunkKind.TEXT, text=text, tokens=1, span=Span(**span))  # type: ignore[arg-type]


def described(caption: str, page: int) -> Described:
    span = Span(page_start=page, page_end=page)
    picture = Picture(key=f"{page:064x}", span=span, width=400, height=300, data=b"", thumbnail=b"jpeg", section=("Sales",))
    return Described(picture=picture, caption=caption, model="m")


def test_a_document_without_text_is_partial_by_its_captions_and_stays_what_it_is_without() -> None:
    once = with_captions(BARE, [described("A chart.", 1)], count=len)
    assert (once.state, once.reason_code) == (DocumentState.PARTIAL, "captions_only")
    assert once.reason == f"{BARE.reason} What is searchable are captions of its pictures, written by a model."
    (passage,) = once.chunks
    assert (passage.text, passage.section, passage.span.page_start) == (caption_text("m", "A chart."), ("Sales",), 1)
    assert passage.embedded_text == "Sales\nA chart."
    assert once.thumbnails[passage.chunk_id].image == b"jpeg"

    more = with_captions(once, [described("A chart.", 1), described("A map.", 2)], count=len)
    assert (more.state, more.reason, len(more.chunks)) == (once.state, once.reason, 2)
    none = with_captions(more, [])
    assert replace(none, captioned=False) == BARE


def test_captions_say_that_they_are_there_beside_pages_without_text() -> None:
    reason = "1 of 2 pages had text; the others need OCR."
    text = replace(
        BARE, state=DocumentState.PARTIAL, reason_code="pages_without_text", reason=reason, chunks=(chunk("x", page_start=1),)
    )
    found = with_captions(with_captions(text, [described("A chart.", 2)], count=len), [described("A map.", 2)], count=len)
    assert found.reason == f"{reason} Captions of its pictures, written by a model, are searchable too."
    assert [one.kind.value for one in found.chunks] == ["text", "caption"]


@pytest.mark.parametrize(
    ("span", "place"),
    [
        (Span(page_start=1), 2),
        (Span(page_start=2), 2),
        (Span(page_start=3), 3),
        (Span(slide=4), 5),
        (Span(sheet="B"), 6),
        (Span(attachment="a.pdf", page_start=1), 7),
        (Span(attachment="b.pdf", page_start=1), 7),
        (Span(), 7),
    ],
)
def test_a_caption_stands_behind_the_words_of_its_place(span: Span, place: int) -> None:
    words = [
        chunk("1", page_start=1),
        chunk("2", page_start=1),
        chunk("3", page_start=3),
        chunk("4", slide=2),
        chunk("5", slide=4),
        chunk("6", sheet="B"),
        chunk("7", attachment="a.pdf", page_start=1),
    ]
    caption = Chunk(kind=ChunkKind.CAPTION, text="c", tokens=1, span=span, section=("Elsewhere",))
    assert place_for(caption, words) == place
