from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.documents import Chunk, ChunkKind, Element, ElementKind, ParsedDocument, Span
from shared.tokens import load_token_counter


def _chunks(text: str, target: int = 480) -> tuple[Chunk, ...]:
    return chunk_document(parse("a.md", text.encode()), load_token_counter(), target, target // 6)


def _table(rows: list[str]) -> str:
    return "\n".join(["| Name | Meaning |", "| --- | --- |", *rows])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=120), st.sampled_from([120, 480]))
def test_rows_are_never_cut_and_never_lost(lengths: list[int], target: int) -> None:
    rows = [f"| row{i} | {'value ' * length}|" for i, length in enumerate(lengths)]
    chunks = _chunks(_table(rows), target)
    assert all(chunk.kind is ChunkKind.TABLE and chunk.tokens <= target for chunk in chunks)
    assert all(chunk.text.startswith("| Name | Meaning |\n| --- | --- |\n") for chunk in chunks)
    assert [line for chunk in chunks for line in chunk.text.split("\n")[2:]] == rows


def test_a_heading_and_a_short_sentence_introduce_the_table_after_them() -> None:
    chunks = _chunks("# Codes\n\nThese exist:\n\n" + _table(["| 1 | one |"]) + "\n\nThat is all.")
    assert [chunk.kind for chunk in chunks] == [ChunkKind.TABLE, ChunkKind.TEXT]
    assert chunks[0].text.startswith("# Codes\n\nThese exist:\n\n| Name")
    assert chunks[0].section == ("Codes",)
    assert (chunks[0].span.line_start, chunks[0].span.line_end) == (1, 7)


def test_lines_of_a_part_are_those_of_its_rows() -> None:
    rows = [f"| row{i} | {'value ' * 20}|" for i in range(100)]
    lines = _table(rows).split("\n")
    for chunk in _chunks(_table(rows))[1:]:
        assert chunk.span.line_start is not None
        assert chunk.span.line_end is not None
        assert chunk.text.split("\n")[2:] == lines[chunk.span.line_start - 1 : chunk.span.line_end]


@pytest.mark.parametrize("header_row", [7, None])
def test_a_part_knows_the_sheet_rows_it_holds_with_or_without_a_header_among_them(header_row: int | None) -> None:
    rows = [f"| row{i} | {'value ' * 20}|" for i in range(8, 108)]
    span = Span(sheet="Sales", row_start=header_row or 8, row_end=107)
    table = Element(kind=ElementKind.TABLE, text=_table(rows), span=span)
    chunks = chunk_document(ParsedDocument(elements=(table,), media_type="x"), load_token_counter())
    assert len(chunks) > 3
    assert chunks[0].span.row_start == (header_row or 8)
    for chunk in chunks:
        numbers = [int(line.split()[1].removeprefix("row")) for line in chunk.text.split("\n")[2:]]
        assert (max(numbers[0], 8), numbers[-1]) == (max(chunk.span.row_start or 0, 8), chunk.span.row_end)
        assert chunk.span.sheet == "Sales"


def test_a_line_of_dashes_is_told_from_a_separator_at_once() -> None:
    text = f"a | b\n{'-' * 200_000}x\nc | d"
    table = Element(kind=ElementKind.TABLE, text=text)
    chunks = chunk_document(ParsedDocument(elements=(table,), media_type="x"), load_token_counter())
    assert sum(chunk.text.count("-") for chunk in chunks) == 200_000


def test_a_single_giant_row_is_cut_as_the_last_resort() -> None:
    chunks = _chunks(_table([f"| row | {'value ' * 3000}|"]))
    assert len(chunks) > 6
    assert all(chunk.tokens <= 480 for chunk in chunks)
    assert sum(chunk.text.count("value") for chunk in chunks) == 3000


def test_each_part_of_a_long_code_block_is_closed_and_opened_again() -> None:
    body = "\n\n".join("\n".join(f"step_{i}_{j}(argument)" for j in range(6)) for i in range(40))
    chunks = _chunks(f"~~~~sh title=x\n{body}\n~~~~")
    assert len(chunks) > 3
    for chunk in chunks:
        assert chunk.kind is ChunkKind.CODE
        assert chunk.language == "sh"
        assert chunk.text.startswith("~~~~sh title=x\n")
        assert chunk.text.endswith("\n~~~~")
    inner = "\n".join(line for chunk in chunks for line in chunk.text.split("\n")[1:-1])
    assert inner.split() == body.split()
