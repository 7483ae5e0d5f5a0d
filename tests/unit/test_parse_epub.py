from __future__ import annotations

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument
from shared.tokens import load_token_counter
from tests.making import epub


def _told(parsed: ParsedDocument) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in parsed.elements]


def test_a_sentence_is_cited_by_its_chapter_in_reading_order() -> None:
    chapters = {"c2": f"<p>The whale sleeps. {'It is large. ' * 80}</p>", "c1": f"<h1>Ashore</h1><p>{'We eat. ' * 80}</p>"}
    parsed = parse("moby.epub", epub(chapters, titles={"c2": "The Sea", "c1": "Ashore"}))
    chunks = chunk_document(parsed, load_token_counter())
    assert [chunk.section for chunk in chunks] == [("The Sea",), ("Ashore",)]
    assert "The whale sleeps." in chunks[0].text
    assert (parsed.title, chunks[0].span.page_start) == ("The book", None)
    assert [text for kind, text in _told(parsed) if kind == "heading"] == ["The Sea", "Ashore"]


def test_a_book_without_titles_goes_on_under_the_last_heading() -> None:
    parsed = parse("a.epub", epub({"a": "<h2>One</h2><p>x</p>", "b": "<p>y</p>"}))
    assert _told(parsed) == [("heading", "One"), ("text", "x"), ("text", "y")]


def test_a_missing_chapter_makes_the_book_partial() -> None:
    parsed = parse("a.epub", epub({"a": "<p>x</p>", "b": "<p>y</p>"}).replace(b"OEBPS/b.xhtml", b"OEBPS/z.xhtml"))
    assert _told(parsed) == [("text", "x")]
    assert "OEBPS/b.xhtml is missing" in parsed.unread[0]


def test_a_book_of_pictures_needs_ocr() -> None:
    parsed = parse("a.epub", epub({"a": "<img src=x>", "b": "<img src=y>"}, titles={"a": "Page 1"}))
    assert (parsed.elements, parsed.page_count, parsed.pages_with_text) == ((), 2, 0)


def test_a_protected_book_says_so_and_hidden_fonts_are_no_protection() -> None:
    entry = '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/></EncryptedData></encryption>'
    chapters = {"a": "<p>x</p>"}
    fonts = epub(chapters, parts={"META-INF/encryption.xml": entry.format("http://www.idpf.org/2008/embedding")})
    assert _told(parse("a.epub", fonts)) == [("text", "x")]
    with pytest.raises(Unreadable) as caught:
        parse(
            "a.epub",
            epub(chapters, parts={"META-INF/encryption.xml": entry.format("http://www.w3.org/2001/04/xmlenc#aes128-cbc")}),
        )
    assert caught.value.code == "encrypted"
