from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.chunk.chunk import chunk_document, heading_name
from ingest_worker.chunk.sentences import split_sentences
from ingest_worker.parse.parse import parse
from shared.documents import Chunk, ChunkKind
from shared.tokens import load_token_counter

_WORDS = st.sampled_from(
    ["alpha", "beta.", "gamma,", "Delta!", "42", "längst", "配置する。", "naïve", "`code`", "x" * 90, "| a | b |", "- item"]
)  # fmt: skip
_BLOCKS = st.one_of(
    st.lists(_WORDS, min_size=1, max_size=120).map(" ".join),
    st.integers(1, 6).map(lambda level: "#" * level + " Heading of level " + str(level)),
    st.integers(1, 40).map(lambda rows: "| k | v |\n|---|---|\n" + "\n".join(f"| key {i} | value {i} |" for i in range(rows))),
    st.integers(1, 60).map(lambda n: "```python\n" + "\n".join(f"print({i})" for i in range(n)) + "\n```"),
    st.just("\f"),
)


def _visible(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _chunks(name: str, text: str, target: int = 480, overlap: int = 80) -> tuple[Chunk, ...]:
    return chunk_document(parse(name, text.encode()), load_token_counter(), target, overlap)


def _covers(chunks: Sequence[Chunk], paragraphs: Sequence[str]) -> bool:
    joined = "\x00".join(_visible(chunk.text) for chunk in chunks)
    words = {word for paragraph in paragraphs for word in paragraph.split() if not word.startswith("x" * 90)}
    return all(_visible(word) in joined for word in words)


@settings(max_examples=40, deadline=None)
@given(st.lists(_BLOCKS, min_size=1, max_size=25), st.sampled_from([64, 200, 480]))
def test_no_chunk_is_too_large_and_no_word_is_lost(blocks: list[str], target: int) -> None:
    text = "\n\n".join(blocks)
    if not text.strip():
        return
    for name in ("a.md", "a.txt"):
        document = parse(name, text.encode())
        chunks = chunk_document(document, load_token_counter(), target, target // 6)
        assert all(0 < chunk.tokens <= target for chunk in chunks)
        assert [chunk.tokens for chunk in chunks] == load_token_counter().count_many([chunk.text for chunk in chunks])
        assert _covers(chunks, [element.text for element in document.elements])
        assert chunks == chunk_document(document, load_token_counter(), target, target // 6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(_WORDS, min_size=1, max_size=150).map(" ".join), min_size=1, max_size=20))
def test_without_overlap_the_chunks_of_plain_text_are_the_text(paragraphs: list[str]) -> None:
    text = "\n\n".join(paragraphs)
    assert _visible("".join(chunk.text for chunk in _chunks("a.txt", text, overlap=0))) == _visible(text)


def _prose(sentences: int) -> str:
    return " ".join(f"Sentence number {i} says something about the topic at hand." for i in range(sentences))


def test_sections_are_chunks_with_their_heading_path() -> None:
    text = f"# Billing\n\n{_prose(10)}\n\n## Cancelling `now` [here](x)\n\n{_prose(9)}\n"
    chunks = _chunks("a.md", text)
    assert [chunk.section for chunk in chunks] == [("Billing",), ("Billing", "Cancelling now here")]
    assert chunks[1].section_text == "Billing > Cancelling now here"
    assert chunks[1].text.startswith("## Cancelling `now` [here](x)\n\nSentence number 0")
    assert (chunks[1].span.line_start, chunks[1].span.line_end) == (5, 7)


def test_very_small_sections_are_joined() -> None:
    text = "# Options\n\n" + "\n\n".join(f"## --flag{i}\n\nTurns on feature {i}." for i in range(40))
    chunks = _chunks("a.md", text)
    assert len(chunks) < 16
    assert all(chunk.tokens >= 40 for chunk in chunks)


def test_small_sections_in_one_chunk_are_cited_by_all_their_names_or_by_what_holds_them() -> None:
    siblings = "# Guide\n\n## Alpha\n\nOne line.\n\n## Beta\n\nAnother line.\n"
    assert [chunk.section for chunk in _chunks("a.md", siblings)] == [("Guide", "Alpha; Beta")]
    nested = "# Guide\n\nA first line.\n\n## Alpha\n\nOne line.\n"
    assert [chunk.section for chunk in _chunks("a.md", nested)] == [("Guide",)]
    apart = "".join(f"# Part {i}\n\nLine {i}.\n\n" for i in range(6))
    assert [chunk.section_text for chunk in _chunks("a.md", apart)] == ["Part 0; Part 1; Part 2; Part 3; …"]


def _item(number: int, nested: int) -> str:
    """An item of about 100 tokens with `nested` small items inside."""
    inner = "".join(f"\n   - nested {number}-{i} is small\n     and goes on" for i in range(nested))
    return f"{number}. {_prose(7)}{inner}"


def test_an_item_of_a_list_is_never_split_when_it_fits_and_keeps_its_indentation() -> None:
    items = [_item(number, nested=3) for number in range(1, 10)]
    for text in ("\n".join(items), "\n\n".join(items)):
        chunks = _chunks("a.md", f"# Steps\n\n{text}\n", overlap=0)
        assert len(chunks) >= 3
        for item in items:
            assert sum(item in chunk.text for chunk in chunks) == 1


def test_a_long_item_is_split_before_its_own_items_first() -> None:
    items = "\n".join(f"   - nested {i}: {_prose(3)}" for i in range(12))
    chunks = _chunks("a.md", f"1. First.\n{items}\n2. Second.\n", overlap=0)
    assert len(chunks) > 1
    assert all(chunk.text.lstrip().startswith(("1. First", "- nested")) for chunk in chunks)


def test_a_long_code_block_in_a_list_is_closed_and_opened_again() -> None:
    code = "\n".join(f"   call_number_{i}(first, second, third)" for i in range(90))
    text = f"1. Do this:\n\n   ```py\n{code}\n   ```\n\n   Then wait.\n\n2. Done.\n"
    blocks = [chunk for chunk in _chunks("a.md", text) if chunk.kind is ChunkKind.CODE]
    assert len(blocks) > 1
    for block in blocks:
        assert block.text.count("   ```py\n") == 1
        assert block.text.endswith("\n   ```")
    assert sum(block.text.count("call_number_") for block in blocks) == 90
    assert any("   Then wait.\n\n2. Done." in chunk.text for chunk in _chunks("a.md", text))


def test_a_number_is_no_sentence_of_its_own() -> None:
    assert split_sentences("1. First do this. 2. Then that.") == ["1. First do this. ", "2. Then that."]


def test_a_chunk_begins_with_whole_sentences_of_the_one_before() -> None:
    chunks = _chunks("a.txt", "\n\n".join(_prose(6) + f" Paragraph {i} ends." for i in range(30)))
    for before, after in pairwise(chunks):
        lead = after.text.split("\n\n")[0]
        assert lead.startswith(("Sentence number", "Paragraph"))
        assert lead in before.text
        assert 20 <= load_token_counter().count(lead) <= 80


def test_nothing_is_repeated_after_a_heading() -> None:
    text = "\n\n".join(f"# Part {i}\n\nOnly in {i}. {_prose(9)}" for i in range(5))
    chunks = _chunks("a.md", text)
    assert sum(chunk.text.count("Only in 3.") for chunk in chunks) == 1


def test_a_chunk_over_two_pages_knows_both() -> None:
    pages = "\f".join(f"Page {i} begins. {_prose(20)}" for i in range(1, 9))
    chunks = _chunks("a.txt", pages)
    assert chunks[0].span.page_start == 1
    assert chunks[-1].span.page_end == 8
    assert any(chunk.span.page_start != chunk.span.page_end for chunk in chunks)
    for chunk in chunks:
        named = [int(n) for n in re.findall(r"Page (\d) begins", chunk.text)]
        assert all(chunk.span.page_start <= page <= chunk.span.page_end for page in named)  # type: ignore[operator]


def test_a_single_line_of_a_megabyte_is_cut() -> None:
    chunks = _chunks("a.txt", "x" * 100_000 + " word" * 20_000)
    assert all(chunk.tokens <= 480 for chunk in chunks)


def test_a_small_code_block_stays_with_its_text_and_a_large_one_is_code() -> None:
    code = "```python\n" + "\n".join(f"value_{i} = compute({i})" for i in range(20)) + "\n```"
    chunks = _chunks("a.md", f"# Use\n\nRun this:\n\n```sh\nmake run\n```\n\nThen wait.\n\n## More\n\n{code}\n")
    assert [(chunk.kind, chunk.language) for chunk in chunks] == [(ChunkKind.TEXT, None), (ChunkKind.CODE, "python")]
    assert "Run this:\n\n```sh\nmake run\n```\n\nThen wait." in chunks[0].text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Plain", "Plain"),
        ("`a_b` and **c** [d](e)", "a_b and c d"),
        ("हिन्दी { #anchor }", "हिन्दी"),
        ("__init__ of x", "init of x"),
    ],
)
def test_a_heading_is_named_without_its_marks(text: str, name: str) -> None:
    assert heading_name(text) == name


def test_in_a_short_document_a_passage_ends_with_its_page() -> None:
    pages = [f"Page {page} begins here. " + _prose(9) for page in (1, 2, 3)]
    chunks = _chunks("a.txt", "\f".join(pages))
    assert [(chunk.span.page_start, chunk.span.page_end) for chunk in chunks] == [(1, 1), (2, 2), (3, 3)]
    assert [chunk.text.split(" begins")[0] for chunk in chunks] == ["Page 1", "Page 2", "Page 3"]
    brief = _chunks("a.txt", "The pump has a seal.\fIt is replaced after 4000 hours.\fThe warranty lasts two years.")
    assert [(chunk.span.page_start, chunk.span.page_end) for chunk in brief] == [(1, 1), (2, 2), (3, 3)]


def test_slides_are_passages_of_their_own_however_many_there_are() -> None:
    chunks = _chunks("a.txt", "\f".join(f"Slide {page} begins here. " + _prose(7) for page in range(60)))
    assert {(chunk.span.page_end or 0) - (chunk.span.page_start or 0) for chunk in chunks} == {0}


def test_a_page_with_hardly_any_text_and_a_sentence_that_goes_on_stay_with_their_neighbours() -> None:
    [chunk] = _chunks("a.txt", f"{_prose(9)}\f- 2 -")
    assert (chunk.span.page_start, chunk.span.page_end) == (1, 2)
    [chunk] = _chunks("a.txt", f"{_prose(9)} The sentence\fgoes on over the page. {_prose(9)}")
    assert (chunk.span.page_start, chunk.span.page_end) == (1, 2)


@pytest.mark.parametrize("sentence", ["These pages are full of a text that goes on and on. ", "本页写满了文字，下一页接着写。"])
def test_full_pages_of_a_long_text_are_no_borders(sentence: str) -> None:
    page = sentence * (2400 // len(sentence.encode()))
    chunks = _chunks("a.txt", "\f".join(f"{number}. {page}" for number in range(1, 31)))
    assert any(chunk.span.page_start != chunk.span.page_end for chunk in chunks)
