"""Answers do not get worse: a set of our own, measured against the figures of before."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from query_server.evaluate.run import Answered
from tests.conftest import Database
from tests.evaluation.gate import CORPUS, Figures, baseline, complaints, measure, questions

# Some twenty seconds of processor time, most of it for the model; a machine that is busy takes longer.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def answered(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> list[Answered]:
    return measure(module_database, tmp_path_factory.mktemp("gate") / "corpus")


def test_retrieval_is_no_worse_than_the_baseline(answered: list[Answered]) -> None:
    said = complaints(baseline(), Figures.of(answered))
    assert not said, (
        "Retrieval got worse. When that is meant, `python -m tests.evaluation.gate` writes a new baseline.\n" + "\n".join(said)
    )


def test_each_question_of_the_baseline_is_asked_and_each_asked_one_is_in_it(answered: list[Answered]) -> None:
    assert baseline()["scores"].keys() == {one.question.text for one in answered if one.question.answerable}


def test_a_question_that_got_worse_is_named_with_what_came_instead(answered: list[Answered]) -> None:
    figures = Figures.of(answered)
    before: dict[str, Any] = {"means": dict(figures.means), "scores": dict(figures.scores), "no_match": list(figures.no_match)}
    assert complaints(before, figures) == []
    better = copy.deepcopy(before)
    lost = next(question for question, score in figures.scores.items() if score < 1)
    better["scores"][lost] = 1.0
    better["means"]["mrr"] += 0.05
    said = complaints(better, figures)
    assert said[0].startswith("mrr fell from ")
    assert lost in said[1]
    assert "first instead" in said[1] or "rank: hybrid" in said[1]


def test_every_expected_place_is_in_the_corpus_and_every_kind_is_asked_for() -> None:
    documents = {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file()}
    asked = questions().questions
    assert {expected.path for question in asked for expected in question.expected} <= documents
    assert len(documents) >= 30
    assert sum(question.answerable for question in asked) >= 60
    assert sum(not question.answerable for question in asked) >= 8
    assert len({question.category for question in asked}) >= 8
