"""When an answer is one, and when a passage is called certain."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from query_server.retrieve.confidence import CALIBRATIONS, Calibration
from query_server.retrieve.exact import Absent
from query_server.retrieve.keyword import KeywordHit
from query_server.retrieve.legs import Legs
from query_server.retrieve.matches import ChunkKey
from query_server.retrieve.ranking import rank
from query_server.retrieve.request import Mode
from query_server.retrieve.semantic import SemanticHit

MEASURED = Calibration(coverage=0.15, relevant=0.89, relevant_alone=0.83, certain=0.92, certain_alone=0.92)


def _key(number: int) -> ChunkKey:
    return 1, uuid.UUID(int=number)


def _legs(*keyword: tuple[int, float], semantic: list[tuple[int, float]] | None = None, exact: int = 0) -> Legs:
    """Keyword hits by (passage, coverage), semantic ones by (passage, cosine), best first."""
    return Legs(
        keyword=[KeywordHit(key=_key(one), score=1.0, coverage=coverage, exact=exact) for one, coverage in keyword],
        semantic=[] if semantic is None else [[SemanticHit(key=_key(one), similarity=cosine) for one, cosine in semantic]],
    )


@pytest.mark.parametrize(
    ("legs", "mode", "answered"),
    [
        (_legs((1, 0.5), semantic=[(1, 0.82)]), "hybrid", True),
        (_legs((1, 0.1), semantic=[(1, 0.84)]), "hybrid", False),
        (_legs(semantic=[(1, 0.9)]), "hybrid", True),
        (_legs(semantic=[(1, 0.84)]), "hybrid", False),
        (_legs((1, 0.1), semantic=[(2, 0.7)], exact=1), "hybrid", True),
        (_legs(semantic=[(1, 0.84)]), "semantic", True),
        (_legs(semantic=[(1, 0.82)]), "semantic", False),
        (_legs((1, 0.1)), "keyword", True),
        (_legs(), "keyword", False),
        (_legs((1, 0.3)), "hybrid", True),
        (_legs((1, 0.1)), "hybrid", False),
        (_legs(), "hybrid", False),
    ],
)
def test_an_answer_needs_evidence_of_both_legs_together(legs: Legs, mode: Mode, answered: bool) -> None:
    assert bool(rank(legs, mode, MEASURED).hits) is answered


def test_the_nearest_passage_of_an_unmeasured_model_is_taken_for_an_answer_and_never_for_a_certain_one() -> None:
    [hit] = rank(_legs(semantic=[(1, 0.2)]), "hybrid", None).hits
    assert not hit.certain


def test_certain_is_what_both_legs_put_first_on_enough_evidence() -> None:
    def certain(*keyword: tuple[int, float], semantic: list[tuple[int, float]], mode: Mode = "hybrid") -> list[int]:
        hits = rank(_legs(*keyword, semantic=semantic), mode, MEASURED).hits
        return [hit.key[1].int for hit in hits if hit.certain]

    assert certain((1, 0.9), (2, 0.9), semantic=[(1, 0.87), (2, 0.86)]) == [1]
    assert certain((1, 0.9), (2, 0.9), semantic=[(2, 0.87), (1, 0.86)]) == []
    assert certain((1, 0.2), semantic=[(1, 0.87)]) == []
    assert certain(semantic=[(1, 0.95)]) == []
    assert certain(semantic=[(1, 0.95), (2, 0.93), (3, 0.9)], mode="semantic") == [1, 2]


def test_what_only_resembles_an_identifier_or_a_phrase_is_not_certain() -> None:
    legs = _legs((1, 0.9), semantic=[(1, 0.9)])
    assert rank(legs, "hybrid", MEASURED).hits[0].certain
    assert not rank(replace(legs, exactly=True), "hybrid", MEASURED).hits[0].certain
    assert rank(replace(_legs((1, 0.9), semantic=[(1, 0.9)], exact=1), exactly=True), "hybrid", MEASURED).hits[0].certain


def test_an_exact_thing_that_stands_nowhere_is_answered_by_what_holds_parts_of_it_and_by_nothing_else() -> None:
    asked_alone = Absent(names=("ERR-9999",), alone=True)

    def found(legs: Legs, mode: Mode = "hybrid", absent: Absent = asked_alone) -> list[int]:
        return [hit.key[1].int for hit in rank(replace(legs, exactly=True, absent=absent), mode, MEASURED).hits]

    assert found(_legs(semantic=[(1, 0.95)])) == []
    assert found(_legs((2, 0.1), semantic=[(1, 0.95)])) == []
    assert found(_legs((2, 0.4), (3, 0.1), semantic=[(1, 0.95), (2, 0.7)])) == [2]
    assert found(_legs((2, 0.1)), "keyword") == [2]
    assert found(_legs(semantic=[(1, 0.95)]), absent=replace(asked_alone, alone=False)) == [1]


def test_signs_without_a_word_are_answered_only_by_what_holds_them() -> None:
    assert rank(replace(_legs(semantic=[(1, 0.95)]), wordless=True), "hybrid", MEASURED).hits == ()
    assert rank(replace(_legs((1, 1.0), semantic=[(1, 0.7)], exact=1), wordless=True), "hybrid", MEASURED).hits


def test_the_model_that_comes_along_is_measured() -> None:
    assert "intfloat/multilingual-e5-small" in CALIBRATIONS
