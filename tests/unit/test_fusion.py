"""Fusion by rank, token budgets, citations, cursors and the other pure parts of a search."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query_server.cursor import Cursor, decode_cursor
from query_server.retrieve import bm25
from query_server.retrieve.budget import cost, cut_text, take
from query_server.retrieve.candidates import choose_candidates
from query_server.retrieve.citation import cite
from query_server.retrieve.filters import glob_pattern, make_filters
from query_server.retrieve.fusion import K, RankedList, fuse
from query_server.retrieve.overlap import without_overlap
from shared.documents import Span
from shared.errors import PermanentError
from shared.lexical import TermKind
from shared.query_terms import QueryTerm


def _lists(keyword: list[str], semantic: list[str]) -> list[RankedList[str]]:
    return [RankedList(leg="keyword", keys=keyword), RankedList(leg="semantic", keys=semantic)]


def test_scores_are_those_of_the_paper() -> None:
    fused = {hit.key: hit.score for hit in fuse(_lists(["a", "b"], ["b", "c"]))}
    assert fused["a"] == pytest.approx(1 / (K + 1))
    assert fused["b"] == pytest.approx(1 / (K + 2) + 1 / (K + 1))
    assert fused["c"] == pytest.approx(1 / (K + 2))


def test_a_tie_goes_to_the_keyword_leg() -> None:
    assert [hit.key for hit in fuse(_lists(["a", "b"], ["c", "d"]))] == ["a", "c", "b", "d"]


def test_an_exact_hit_is_not_buried_by_arithmetic() -> None:
    """OpenMetadata 31967: the exact name landed at rank 16."""
    keyword = [f"k{rank}" for rank in range(30)] + ["exact"]
    fused = fuse(_lists(keyword, keyword[:30]), lifted={"exact": 1})
    assert fused[0].key == "exact"


def test_what_holds_all_that_was_asked_for_comes_before_what_holds_a_part_and_after_exact_hits() -> None:
    keyword = [f"k{rank}" for rank in range(30)] + ["all", "exact"]
    fused = fuse(_lists(keyword, keyword[:30]), lifted={"exact": 1}, held={"all": 5, "k0": 2})
    assert [hit.key for hit in fused[:3]] == ["exact", "all", "k0"]


@given(st.lists(st.integers(0, 20), unique=True), st.lists(st.integers(0, 20), unique=True))
def test_fusion_keeps_every_hit_once_in_one_order(keyword: list[int], semantic: list[int]) -> None:
    lists = [RankedList(leg="keyword", keys=keyword), RankedList(leg="semantic", keys=semantic)]
    fused = fuse(lists)
    assert {hit.key for hit in fused} == {*keyword, *semantic}
    assert len(fused) == len({*keyword, *semantic})
    assert fuse(lists) == fused
    scores = [round(hit.score, 12) for hit in fused]
    assert scores == sorted(scores, reverse=True)


@given(st.lists(st.integers(1, 600), max_size=20), st.integers(50, 5000))
def test_passages_fit_the_budget(tokens: list[int], budget: int) -> None:
    costs = [cost(count, "a.md") for count in tokens]
    taken = take(costs, tokens, budget)
    assert taken.tokens <= budget
    assert taken.count + taken.dropped == len(tokens)
    assert (taken.count > 0) == bool(tokens)
    if taken.cut is None:
        assert sum(costs[: taken.count]) == taken.tokens


def test_a_cut_text_ends_at_a_word_and_says_so() -> None:
    text = "word " * 100
    cut = cut_text(text, 100, 20)
    assert cut.endswith("word […]")
    assert len(cut) < len(text) * 0.2
    assert cut_text(text, 100, 100) == text


@pytest.mark.parametrize(
    ("span", "section", "citation"),
    [
        (Span(page_start=3, page_end=3), "A > B", "[billing.md, page 3]"),
        (Span(page_start=3, page_end=4, line_start=1), None, "[billing.md, pages 3–4]"),
        (Span(line_start=10, line_end=40), "A > B", "[billing.md, lines 10–40]"),
        (Span(slide=3), "A > B", "[billing.md, slide 3]"),
        (Span(sheet="Sales", row_start=2, row_end=40), "Sales", "[billing.md, sheet Sales, rows 2–40]"),
        (Span(sheet="Notes"), "Notes", "[billing.md, sheet Notes]"),
        (Span(row_start=7, row_end=7, line_start=9), None, "[billing.md, row 7]"),
        (Span(attachment="offer.docx"), "Terms > Price", "[billing.md, attachment offer.docx, Price]"),
        (Span(attachment="fw.eml > a.pdf", page_start=2), None, "[billing.md, attachment fw.eml > a.pdf, page 2]"),
        (Span(), "A > B", "[billing.md, B]"),
        (Span(), None, "[billing.md]"),
    ],
)
def test_a_passage_is_cited_by_what_is_known(span: Span, section: str | None, citation: str) -> None:
    assert cite("docs/billing.md", span, section) == citation


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = Cursor(question="abc", index_version=17, offset=2**127)
    assert decode_cursor(cursor.encode(), "abc") == cursor
    assert decode_cursor("", "abc") is None


@pytest.mark.parametrize("text", ["x", "!!", "WyJhIiwxLDJd", "bnVsbA", "e30", "WzEsMiwzXQ", "é"])
def test_a_cursor_that_is_none_of_this_question_is_refused(text: str) -> None:
    with pytest.raises(PermanentError, match="cursor"):
        decode_cursor(text, "abc")


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.md", "docs/a.md", True),
        ("*.md", "a.md.txt", False),
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/sub/a.md", False),
        ("docs/**", "docs/sub/a.md", True),
        ("docs/", "docs/sub/a.md", True),
        ("**/a.md", "a.md", True),
        ("**/a.md", "x/y/a.md", True),
        ("docs/**/a.md", "docs/a.md", True),
        ("a?.md", "ab.md", True),
        ("a[bc].md", "ac.md", True),
        ("a[!bc].md", "ac.md", False),
        ("a+(b).md", "a+(b).md", True),
        ("a.md", "aXmd", False),
        ("[", "[", True),
        ("日本*", "日本語.txt", True),
    ],
)
def test_globs_match_paths(glob: str, path: str, matches: bool) -> None:
    assert (re.search(glob_pattern(glob), path) is not None) is matches


def test_a_time_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(PermanentError, match="2026-11-29"):
        make_filters(modified_after="yesterday")


def test_idf_is_never_negative_and_falls_with_frequency() -> None:
    values = [bm25.idf(frequency, 1000) for frequency in (0, 1, 10, 500, 1000)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0


def test_a_score_saturates_with_the_count_and_falls_with_the_length() -> None:
    counts = np.array([[1], [2], [60], [1]])
    lengths = np.array([100.0, 100.0, 100.0, 400.0])
    scores = bm25.scores(counts, lengths, np.array([2.0]), 100.0)
    assert scores[0] == pytest.approx(2.0)
    assert scores[0] < scores[1] < scores[2] < 2 * 2.2
    assert scores[3] < scores[0]


def _term(number: int, kind: TermKind = TermKind.STEM) -> QueryTerm:
    return QueryTerm(number=number, surface=str(number), kind=kind, weight=1.0)


def test_candidates_come_from_the_rarest_terms_and_from_all_common_ones_together() -> None:
    terms = [_term(1), _term(2), _term(3), _term(4), _term(5, TermKind.EXACT), _term(6)]
    frequencies = {1: 5000, 2: 10, 3: 9000, 4: 100, 5: 9500, 6: 0}
    chosen = choose_candidates(terms, frequencies, most=2000, chunks=100_000)
    assert (chosen.wanted, chosen.together, chosen.instead) == ((2, 4), ((1, 3),), None)
    alone = choose_candidates([_term(1)], frequencies, most=2000, chunks=100_000)
    assert (alone.wanted, alone.together, alone.instead) == ((), (), 1)
    nowhere = choose_candidates([_term(6)], frequencies, most=2000, chunks=100_000)
    assert (nowhere.wanted, nowhere.together, nowhere.instead) == ((), (), None)


def test_common_terms_make_candidates_two_or_three_at_a_time_while_these_are_not_too_many() -> None:
    frequencies = {1: 10_000, 2: 20_000, 3: 40_000, 4: 50_000}
    chosen = choose_candidates([_term(number) for number in frequencies], frequencies, most=2000, chunks=100_000)
    assert chosen.wanted == ()
    # 1 and 2 stand together in 2,000 chunks, if they are independent; every other pair in more than is left.
    assert chosen.together == ((1, 2),)
    assert chosen.instead == 1


def test_common_terms_never_push_out_the_rare_ones() -> None:
    frequencies = {1: 70, 2: 50_000, 3: 40_000}
    chosen = choose_candidates([_term(number) for number in frequencies], frequencies, most=2000, chunks=100_000)
    assert (chosen.wanted, chosen.together) == ((1,), ())
    commonest = choose_candidates([_term(2), _term(3)], frequencies, most=2000, chunks=100_000)
    assert (commonest.wanted, commonest.together) == ((), ((3, 2),))


def test_the_exact_form_of_a_word_that_is_a_candidate_makes_no_more() -> None:
    terms = [_term(1), QueryTerm(number=2, surface="2", kind=TermKind.EXACT, weight=0.25, word=0)]
    assert choose_candidates(terms, {1: 50, 2: 20}, most=2000, chunks=100_000).wanted == (1,)
    assert choose_candidates(terms, {1: 9000, 2: 20}, most=2000, chunks=100_000).wanted == (2,)


def test_the_words_of_a_phrase_are_always_looked_for_together() -> None:
    chosen = choose_candidates([_term(1), _term(2)], {1: 50_000, 2: 60_000}, most=2000, chunks=100_000, certain=[(2, 1)])
    assert chosen.together[0] == (2, 1)


@pytest.mark.parametrize(
    ("before", "text", "rest"),
    [
        ("one two three four five.", "three four five. six", " six"),
        ("one two", "two three", "two three"),
        ("", "text", "text"),
        ("the same text as here", "the same text as here", ""),
    ],
)
def test_an_overlap_is_written_once(before: str, text: str, rest: str) -> None:
    assert without_overlap(before, text) == rest
