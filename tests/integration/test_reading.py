"""Documents as they are read, listed and looked up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from query_server.service import SearchService
from shared.documents import Span
from shared.errors import PermanentError
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def service(database: Database) -> Iterator[SearchService]:
    with serving(database) as found:
        yield found


def test_a_document_is_read_in_order_and_around_a_place(corpus: Corpus, service: SearchService) -> None:
    chunks = [
        text_chunk(f"Sentence number {page} begins here and ends.", span=Span(page_start=page, page_end=page))
        for page in range(1, 7)
    ]
    document = add(corpus, "book.pdf", *chunks)
    whole = service.read(document)
    assert [piece["citation"] for piece in whole["pieces"]] == [f"[book.pdf, page {page}]" for page in range(1, 7)]
    assert whole["document"]["path"] == "book.pdf"
    assert [piece["page_start"] for piece in service.read(document, page_start=2, page_end=3)["pieces"]] == [2, 3]
    around = service.read(document, chunk_id=str(chunks[3].chunk_id))
    assert [piece["page_start"] for piece in around["pieces"]] == [3, 4, 5]
    assert (
        "no text in that range. It takes page_start and page_end (pages 1 to 6), and has no lines."
        in (service.read(document, page_start=99)["message"])
    )


@pytest.mark.parametrize(
    ("span", "asked", "said"),
    [
        (Span(page_start=2, page_end=9), {"line_start": 1}, "It takes page_start and page_end (pages 2 to 9), and has no lines."),
        (
            Span(line_start=1, line_end=40),
            {"page_start": 1},
            "It takes line_start and line_end (lines 1 to 40), and has no pages.",
        ),
        (Span(slide=3), {"line_end": 9}, "It takes page_start and page_end (slides 3 to 3), and has no lines."),
        (Span(sheet="S", row_start=2, row_end=8), {"page_end": 9}, "It takes line_start and line_end (rows 2 to 8), and has no"),
        (Span(), {"page_start": 1}, "It has neither pages nor lines: read it whole"),
        (Span(), {"chunk_id": str(uuid.UUID(int=7))}, "no such passage"),
    ],
)
def test_a_range_that_a_document_has_not_is_told_with_those_that_it_has(
    corpus: Corpus, service: SearchService, span: Span, asked: dict[str, Any], said: str
) -> None:
    answer = service.read(add(corpus, "a.bin", text_chunk("some text", span=span)), **asked)
    assert answer["pieces"] == []
    assert said in answer["message"]


def test_a_passage_that_is_read_without_its_overlap_is_cited_by_the_lines_that_are_left(
    corpus: Corpus, service: SearchService
) -> None:
    lines = [f"Line {number}: what is said here is said once" for number in range(1, 13)]
    chunks = [
        text_chunk("\n".join(lines[first - 1 : last]), span=Span(line_start=first, line_end=last))
        for first, last in ((1, 6), (5, 9), (8, 12))
    ]
    document = add(corpus, "long.txt", *chunks)

    def shown(**asked: Any) -> list[tuple[str, int]]:
        pieces = service.read(document, **asked)["pieces"]
        assert all(piece["text"].startswith(f"Line {piece['line_start']}:") for piece in pieces)
        return [(piece["citation"], piece["line_end"]) for piece in pieces]

    assert shown() == [("[long.txt, lines 1–6]", 6), ("[long.txt, lines 7–9]", 9), ("[long.txt, lines 10–12]", 12)]
    # Line 6 stands in two passages, and in the second one's overlap alone.
    assert shown(line_start=6, line_end=6) == [("[long.txt, lines 1–6]", 6)]
    assert shown(line_start=7, line_end=7) == [("[long.txt, lines 5–9]", 9)]
    ((_, last),) = shown(line_start=10, max_tokens=40)
    assert 8 <= last < 12


def test_reading_pages_through_a_document_without_loss(corpus: Corpus, service: SearchService) -> None:
    chunks = [text_chunk(f"part {part} " + "word " * 30, span=Span(line_start=part + 1, line_end=part + 1)) for part in range(9)]
    document = add(corpus, "a.txt", *chunks)
    lines: list[int] = []
    cursor = ""
    while True:
        page = service.read(document, max_tokens=150, cursor=cursor)
        assert page["tokens_used"] <= 150
        lines += [piece["line_start"] for piece in page["pieces"]]
        cursor = page.get("next_cursor", "")
        if not cursor:
            break
    assert lines == list(range(1, 10))


def test_documents_are_listed_by_state_and_page(corpus: Corpus, service: SearchService) -> None:
    for number in range(5):
        add(corpus, f"d{number}.md", text_chunk(f"text {number}"))
    corpus.ask("waiting.md")
    assert [found["path"] for found in service.list(state="queued")["documents"]] == ["waiting.md"]
    first = service.list(limit=4)
    second = service.list(limit=4, cursor=first["next_cursor"])
    assert [found["path"] for found in first["documents"] + second["documents"]] == [
        *(f"d{number}.md" for number in range(5)),
        "waiting.md",
    ]
    assert "next_cursor" not in second
    with pytest.raises(PermanentError, match="needs_ocr"):
        service.list(state="nonsense")


def test_the_status_of_a_path_tells_its_stage(corpus: Corpus, service: SearchService) -> None:
    add(corpus, "docs/a.md", text_chunk("alpha"))
    status = service.status("a.md")
    assert (status["by_state"], status["chunks"], status["embedding_model"]) == ({"indexed": 1}, 1, "test")
    assert status["path"]["documents"][0]["state"] == "indexed"
    assert service.status("unknown.md")["path"] == {"path": "unknown.md", "known": False, "documents": []}
