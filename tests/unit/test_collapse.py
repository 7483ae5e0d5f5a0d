"""Passages that say the same, and passages that go on from one to the other."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from query_server.retrieve.collapse import CLOSE_RANKS, MOST_MERGED_TOKENS, Candidate, collapse
from query_server.retrieve.places import Place
from query_server.retrieve.ranking import Hit

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
PLACES = "page_start page_end page_label line_start line_end slide sheet row_start row_end attachment"
UNKNOWN = f"{PLACES} title url source_modified section symbol language"
NOTHING: dict[str, Any] = dict.fromkeys(UNKNOWN.split())


def _candidate(text: str, ordinal: int = 0, document: uuid.UUID = ONE, **facts: Any) -> Candidate:
    chunk = uuid.uuid5(document, f"{ordinal} {text}")
    known = {"audience_id": 1, "chunk_id": chunk, "document_id": document, "ordinal": ordinal, "path": "a.md", "source_id": 1}
    known |= {"namespace_id": 1, "tags": [], "version": 1, "last_indexed": datetime(2026, 1, 1, tzinfo=UTC), "kind": "text"}
    known |= {"tokens": len(text.split())}
    return Candidate(hit=Hit(key=(1, chunk), score=0.5, ranks={}), place=Place(**(NOTHING | known | facts)), text=text)


def _words(start: int, count: int = 40) -> str:
    return " ".join(f"word{number}" for number in range(start, start + count))


def test_near_duplicates_of_one_document_fall_into_the_better_one() -> None:
    best, twin = _candidate(_words(0), 3), _candidate(_words(0) + " and one more", 9)
    [found] = collapse([best, twin])
    assert (found.best, found.collapsed, found.text) == (best, (twin,), best.text)


def test_a_passage_that_says_much_more_is_no_duplicate_of_the_short_one() -> None:
    assert len(collapse([_candidate(_words(0, 10), 3), _candidate(_words(0, 80), 9)])) == 2
    assert len(collapse([_candidate(_words(0, 80), 3), _candidate(_words(0, 10), 9)])) == 1


def test_the_same_words_in_two_documents_are_two_answers() -> None:
    assert len(collapse([_candidate(_words(0), 3), _candidate(_words(0), 3, OTHER)])) == 2


def test_the_overlap_of_neighbours_makes_them_no_duplicates() -> None:
    candidates = [_candidate(_words(0), 3, section="A"), _candidate(_words(32), 4, section="B")]
    assert [found.best for found in collapse(candidates)] == candidates


def test_chinese_passages_are_compared_by_characters() -> None:
    text = "第一章介绍部署流程和配置文件的位置以及常见问题的解决办法"
    [found] = collapse([_candidate(text, 1), _candidate(text + "。", 7)])
    assert len(found.collapsed) == 1


def test_neighbours_become_one_passage_in_reading_order_with_the_place_of_the_whole() -> None:
    second = _candidate(_words(32), 5, page_start=4, page_end=5, line_start=60, line_end=90)
    first = _candidate(_words(0), 4, page_start=3, page_end=4, line_start=20, line_end=65)
    [found] = collapse([second, first])
    assert found.text == _words(0, 72)
    assert (found.span.page_start, found.span.page_end, found.span.line_start, found.span.line_end) == (3, 5, 20, 90)
    assert (found.best, found.merged, found.tokens) == (second, (first, second), 80)


def test_a_passage_of_neighbours_is_a_part_of_its_file() -> None:
    lines = [f"Line {number}: the gasket is checked before the start." for number in range(12)]
    first, second = _candidate("\n".join(lines[:8]), 1), _candidate("\n".join(lines[6:]), 2)
    [found] = collapse([first, second])
    assert found.text == "\n".join(lines)


def test_neighbours_without_an_overlap_stay_paragraphs() -> None:
    [found] = collapse([_candidate("one thing.", 1), _candidate("Another thing.", 2)])
    assert found.text == "one thing.\n\nAnother thing."


def test_passages_of_two_pages_are_cited_by_one_page_each() -> None:
    pages = [_candidate(_words(100 * page), page, page_start=page, page_end=page) for page in (1, 2)]
    assert [found.span.page_end for found in collapse(pages)] == [1, 2]
    assert len(collapse(pages[::-1])) == 2


def test_a_border_of_the_document_keeps_neighbours_apart() -> None:
    for facts in ({"section": "B"}, {"slide": 2}, {"kind": "table"}, {"kind": "code"}, {"attachment": "b.docx"}):
        assert len(collapse([_candidate("one thing here", 1), _candidate("quite another", 2, **facts)])) == 2


def test_a_passage_does_not_grow_beyond_two_full_chunks() -> None:
    long = MOST_MERGED_TOKENS // 2
    found = collapse([_candidate(_words(number * 1000, long), number) for number in range(3)])
    assert [one.tokens for one in found] == [2 * long, long]


def test_a_neighbour_far_below_stays_where_it_is() -> None:
    others = [_candidate(_words(1000 * number, 5), 10 * number, OTHER) for number in range(1, CLOSE_RANKS + 2)]
    found = collapse([_candidate("one thing", 1), *others, _candidate("another", 2)])
    assert len(found) == len(others) + 2


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from([ONE, OTHER]), st.integers(0, 3)), max_size=25, unique=True))
def test_every_candidate_is_in_exactly_one_passage(drawn: list[tuple[int, uuid.UUID, int]]) -> None:
    candidates = [_candidate(_words(text * 7, 30), ordinal, document) for ordinal, document, text in drawn]
    found = collapse(candidates)
    members = [member for one in found for member in (one.merged or (one.best,)) + one.collapsed]
    assert sorted(id(member) for member in members) == sorted(id(candidate) for candidate in candidates)
    places = [candidates.index(one.best) for one in found]
    assert places == sorted(places)
    for one in found:
        ordinals = [member.place.ordinal for member in one.merged]
        assert ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals))) if ordinals else True
