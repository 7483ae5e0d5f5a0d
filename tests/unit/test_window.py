"""A passage that does not fit is cut to the part that was asked for, and cited by it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_server.retrieve.collapse import Candidate, Found
from query_server.retrieve.places import Place
from query_server.retrieve.ranking import Hit
from query_server.retrieve.window import choose_window, cut_round, part_of
from shared.documents import Span

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _found(text: str, span: Span, kind: str = "text") -> Found:
    key = (1, uuid.UUID(int=1))
    place = Place(
        audience_id=1, chunk_id=key[1], document_id=uuid.UUID(int=2), ordinal=0, page_start=None, page_end=None, page_label=None,
        line_start=None, line_end=None, slide=None, sheet=None, row_start=None, row_end=None, attachment=None, path="a.md",
        source_id=1, namespace_id=1, title=None, url=None, tags=[], version=1, last_indexed=NOW, source_modified=None,
        kind=kind, section=None, symbol=None, language=None, tokens=len(text.split()),
    )  # fmt: skip
    hit = Hit(key=key, score=1.0, ranks={"keyword": 1}, exact=1, certain=True)
    return Found(best=Candidate(hit=hit, place=place, text=text), text=text, span=span, tokens=len(text.split()))


LINES = "\n".join(f"line {number} of filler words" for number in range(10, 110)).replace("line 70 ", "the refund ")


def test_the_part_with_the_words_that_were_asked_for_is_kept_and_cited_by_its_lines() -> None:
    cut = cut_round(_found(LINES, Span(line_start=10, line_end=109)), 60, "when is a refund paid")
    assert "the refund of filler words" in cut.text
    assert cut.text.startswith("[…] ")
    assert cut.text.endswith(" […]")
    assert cut.span.line_start is not None
    assert cut.span.line_end is not None
    kept = cut.text.removeprefix("[…] ").removesuffix(" […]").split("\n")
    whole = LINES.split("\n")
    assert cut.span.line_end - cut.span.line_start == len(kept) - 1
    assert whole[cut.span.line_start - 10].endswith(kept[0])
    assert whole[cut.span.line_end - 10].startswith(kept[-1])
    assert not cut.best.hit.certain


def test_without_a_word_of_the_question_the_front_is_kept() -> None:
    cut = cut_round(_found(LINES, Span(line_start=10, line_end=109)), 60, "unheard")
    assert cut.text.startswith("line 10 of")
    assert (cut.span.line_start, cut.text.endswith(" […]")) == (10, True)


def test_where_lines_of_the_text_are_not_those_of_the_file_the_place_of_the_whole_stays() -> None:
    span = Span(page_start=3, page_end=4, line_start=10, line_end=50)
    assert cut_round(_found(LINES, span), 60, "refund").span == span


TABLE = "| item | price |\n|---|---|\n" + "\n".join(f"| part{number} | {number} EUR |" for number in range(2, 102))


def test_of_a_table_whole_rows_are_kept_below_its_header_and_cited_by_their_numbers() -> None:
    cut = cut_round(_found(TABLE, Span(sheet="Prices", row_start=1, row_end=101), kind="table"), 90, "price of part70")
    lines = cut.text.split("\n")
    assert lines[:2] == ["| item | price |", "|---|---|"]
    rows = [line.removeprefix("[…] ").removesuffix(" […]") for line in lines[2:]]
    assert all(row.startswith("| part") and row.endswith(" EUR |") for row in rows)
    assert (cut.span.row_start, cut.span.row_end) == (int(rows[0].split()[1][4:]), int(rows[-1].split()[1][4:]))
    assert cut.span.row_start <= 70 <= cut.span.row_end
    front = cut_round(_found(TABLE, Span(row_start=1, row_end=101, line_start=5, line_end=106), kind="table"), 90, "unheard")
    assert (front.span.row_start, front.span.line_end) == (2, 5 + front.text.count("\n"))


def test_a_piece_of_a_table_with_its_header_repeated_is_cited_by_its_own_rows() -> None:
    piece = "| a | b |\n|---|---|\n| r50 | x |\n| r51 | x |\n| r52 | x |"
    whole = Span(row_start=50, row_end=52, line_start=60, line_end=62)
    ends = piece.index(" | x |\n| r52")
    assert part_of(whole, piece, 0, ends, is_table=True) == Span(row_start=50, row_end=51, line_start=60, line_end=61)
    assert part_of(whole, piece, piece.index("| r52"), len(piece), is_table=True).row_start == 52
    assert part_of(Span(page_start=3, page_end=4), piece, 30, 40, is_table=True) == Span(page_start=3, page_end=4)


def test_a_row_that_is_longer_than_its_room_is_cut_like_a_text() -> None:
    long = "| a |\n|---|\n| " + "word " * 300 + "needle |"
    cut = cut_round(_found(long, Span(row_start=1, row_end=2), kind="table"), 60, "needle")
    assert "needle" in cut.text
    assert (cut.span.row_start, cut.span.row_end) == (2, 2)


def test_the_part_with_most_different_words_wins() -> None:
    text = "alpha " * 3 + "filler " * 200 + "alpha beta " + "filler " * 200 + "beta beta"
    start, end = choose_window(text, 200, "alpha beta")
    assert "alpha beta" in text[start:end]


@pytest.mark.parametrize("keep", [0, 1, 5])
def test_hardly_any_room_leaves_a_mark(keep: int) -> None:
    assert "[…]" in cut_round(_found(LINES, Span()), keep, "refund").text


@given(st.text(max_size=300), st.integers(min_value=1, max_value=299), st.text(max_size=20))
def test_a_window_lies_in_its_text_and_in_its_room(text: str, room: int, query: str) -> None:
    if room < len(text):
        start, end = choose_window(text, room, query)
        assert 0 <= start <= end <= len(text)
        assert end - start <= room
