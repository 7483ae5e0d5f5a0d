"""Figures, reports and plots of a run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import pytest

from query_server.evaluate.metrics import measure
from query_server.evaluate.plot import draw, hit_curve
from query_server.evaluate.record import compare_records, make_record, recorded
from query_server.evaluate.report import write_report
from query_server.evaluate.run import HYBRID, HYDE, KEYWORD, SEMANTIC, Answered, Judged, Shown, ask
from query_server.evaluate.sets import BadSet, Expected, Question
from query_server.evaluate.summary import summarise
from shared.errors import PermanentError, ServiceUnavailable

SYSTEMS = (HYBRID, KEYWORD, SEMANTIC)


def _shown(*, right: bool, sure: bool = False) -> Shown:
    path = "right.md" if right else "wrong|one.md"
    return Shown(
        path=path, citation=f"[{path}]", section=None, score=0.1, matched_by=("keyword",), high_confidence=sure, right=right
    )


def _judged(rank: int | None, *, answerable: bool = True, outcome: str = "ok", sure: bool = False) -> Judged:
    shown = () if outcome == "no_match" else tuple(_shown(right=place == rank, sure=sure) for place in range(1, 6))
    gains = [float(place == rank) for place in range(1, 21)]
    metrics: Mapping[str, float] = measure(gains, [1.0]) if answerable else {}
    return Judged(outcome=outcome, rank=rank, metrics=metrics, shown=shown, index_version=7, pending=0)


def _answered(text: str, hybrid: Judged, keyword: Judged, semantic: Judged, *, category: str = "") -> Answered:
    expected = (Expected(path="right.md"),) if hybrid.metrics else ()
    question = Question(id=text[:8], text=text, expected=expected, category=category)
    return Answered(question=question, judged={"hybrid": hybrid, "keyword": keyword, "semantic": semantic})


RUN = [
    _answered("found at once", _judged(1, sure=True), _judged(1), _judged(2), category="easy"),
    _answered("lost by fusion", _judged(9), _judged(None), _judged(1), category="hard"),
    _answered("low everywhere", _judged(12), _judged(14), _judged(11), category="hard"),
    _answered("never found", _judged(None), _judged(None), _judged(None), category="hard"),
    _answered("denied", _judged(None, outcome="no_match"), _judged(3), _judged(None), category="hard"),
    _answered(
        "rightly denied",
        _judged(None, answerable=False, outcome="no_match"),
        _judged(None, answerable=False),
        _judged(None, answerable=False),
    ),
    _answered(
        "wrongly answered",
        _judged(None, answerable=False, sure=True),
        _judged(None, answerable=False),
        _judged(None, answerable=False),
    ),
]


def test_means_are_over_questions_that_have_an_answer() -> None:
    summary = summarise(RUN, SYSTEMS)
    assert (summary["questions"], summary["answerable"], summary["unanswerable"]) == (7, 5, 2)
    assert (summary["hit@5"], summary["hit@10"]) == (0.2, 0.4)
    assert summary["mrr"] == pytest.approx((1 + 1 / 9 + 1 / 12) / 5)
    assert summary["legs"]["keyword"]["hit@5"] == 0.4
    assert set(summary["categories"]) == {"(none)", "easy", "hard"}
    assert summary["categories"]["hard"]["hit@5"] == 0.0


def test_no_match_and_high_confidence_are_rated() -> None:
    summary = summarise(RUN, SYSTEMS)
    assert summary["no_match"] == {"count": 2, "precision": 0.5, "recall": 0.5, "wrongly": 1}
    sure = summary["high_confidence"]
    assert (sure["count"], sure["precision"], sure["on_unanswerable"]) == (10, 0.1, 5)


def test_each_failure_has_its_kind() -> None:
    assert summarise(RUN, SYSTEMS)["failures"] == {
        "answered as no_match": 1,
        "not found at all": 1,
        "low in every leg": 1,
        "in the first five of a leg, not of the fusion": 1,
    }


def test_hybrid_is_held_against_the_leg_that_is_better_at_each_metric() -> None:
    compared = summarise(RUN, SYSTEMS)["hybrid_against_better_leg"]
    assert compared["hit@5"]["leg"] == "keyword"
    assert compared["hit@5"]["difference"] == pytest.approx(-0.2)
    assert compared["hit@5"]["n"] == 5


def test_a_set_without_answerable_questions_has_rates_and_no_means() -> None:
    summary = summarise(RUN[5:], SYSTEMS)
    assert summary["hit@5"] is None
    assert summary["no_match"]["recall"] == 0.5


def _facts() -> dict[str, Any]:
    return {"set": "mine", "measured": "2026-11-30T03:00:00Z", "index_version": 7}


def test_the_report_names_what_failed_with_ranks_and_what_came_first_instead() -> None:
    summary = {**_facts(), **summarise(RUN, SYSTEMS), "gate": {"min_hit_rate": 0.5, "passed": False}}
    report = write_report(summary, make_record("mine", RUN), plot="hits.svg")
    assert "| lost by fusion | hard | right.md | 9 | – | 1 | wrong\\|one.md [wrong\\|one.md] |" in report
    assert "| denied | hard | right.md | no_match | 3 | – | – |" in report
    assert "hit@5 of at least 0.5, is **failed**" in report
    assert "found at once" not in report
    assert "![" in report


def test_two_runs_are_paired_by_question() -> None:
    before, after = make_record("mine", RUN[:3]), make_record("mine", [RUN[0], RUN[3], RUN[4]])
    with_one = compare_records(recorded(after), recorded(before))
    assert (with_one.n, with_one.only_here, with_one.only_there) == (1, 2, 2)
    better = [_answered("low everywhere", _judged(1), _judged(1), _judged(1)), RUN[1]]
    moved = compare_records(recorded(make_record("mine", better)), recorded(before))
    assert (moved.better, moved.worse) == (("low ever",), ())
    assert moved.metrics["hit@5"].difference == 0.5
    with pytest.raises(BadSet, match="no question in common"):
        compare_records(recorded(make_record("mine", RUN[3:4])), recorded(before))


def test_a_question_of_the_same_id_with_another_text_is_another_question() -> None:
    before = make_record("mine", RUN[:2])
    before["queries"][0]["query"] = "something else"
    assert compare_records(recorded(make_record("mine", RUN[:2])), recorded(before)).n == 1


def test_the_plot_is_an_svg_with_a_line_and_a_name_for_each_way_of_asking() -> None:
    curves = {"hybrid": hit_curve([1, 1, 3, None]), "<keyword>": hit_curve([2, None, None, None])}
    assert curves["hybrid"][:3] == [0.5, 0.5, 0.75]
    drawn = ElementTree.fromstring(draw("a & b", curves, gate=0.9))  # noqa: S314 - our own text
    names = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a & b" in names
    assert "<keyword>" in names
    assert "@1 0.50  @5 0.75  @10 0.75" in names
    assert "gate 0.9" in names
    lines = [element.get("points", "") for element in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(line.split()) for line in lines] == [10, 10]
    inside = [float(number) for line in lines for point in line.split() for number in point.split(",")]
    assert min(inside) >= 0
    assert max(inside) <= 640


@pytest.mark.parametrize("ranks", [[], [1], [None], [1, 1]])
def test_a_plot_of_little_is_drawn_too(ranks: list[int | None]) -> None:
    ElementTree.fromstring(draw("", {"hybrid": hit_curve(ranks)}))  # noqa: S314 - our own text


class Deep:
    """Answers with one document after the other, as many as asked for; the right one stands at `rank`."""

    def __init__(self, rank: int, **facts: Any) -> None:
        self.rank = rank
        self.facts = facts
        self.asked: list[dict[str, Any]] = []

    def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(arguments)
        places = range(1, arguments["limit"] + 1)
        results = [
            {
                "document_id": str(place),
                "path": "right.md" if place == self.rank else f"{place}.md",
                "citation": f"[{place}]",
                "score": 0.1,
                "matched_by": ["keyword"],
                "high_confidence": False,
            }
            for place in places
        ]
        answer = {
            "outcome": "ok",
            "results": results,
            "index_version": 1,
            "pending_in_scope": 0,
            "warnings": [],
            "next_cursor": "x",
        }
        return answer | self.facts


QUESTION = Question(id="q", text="q", expected=(Expected(path="right.md"),), answers=("because",))


def test_what_is_not_among_the_first_is_looked_for_deeper() -> None:
    near, far = Deep(3), Deep(77)
    assert ask(near, [QUESTION], [HYBRID])[0].judged["hybrid"].rank == 3
    assert ask(far, [QUESTION], [HYBRID])[0].judged["hybrid"].rank == 77
    assert ([one["limit"] for one in near.asked], [one["limit"] for one in far.asked]) == ([30], [30, 100])


def test_the_sets_answer_is_passed_as_hypothetical_answer_where_it_is_asked_for() -> None:
    service = Deep(1)
    [answered] = ask(service, [QUESTION], [HYBRID, HYDE])
    assert [one["hypothetical_answer"] for one in service.asked] == ["", "because"]
    assert set(answered.judged) == {"hybrid", "hyde"}
    [without] = ask(service, [Question(id="q", text="q")], [HYBRID, HYDE])
    assert set(without.judged) == {"hybrid"}


def test_half_an_answer_is_not_measured() -> None:
    warning = {"code": "keyword_only", "message": "Only the keyword leg answered: the embedder is away."}
    with pytest.raises(ServiceUnavailable, match="embedder is away"):
        ask(Deep(1, warnings=[warning]), [QUESTION], [HYBRID])
    with pytest.raises(PermanentError, match="Nothing is indexed in the namespace team"):
        ask(Deep(1, outcome="index_empty"), [QUESTION], [HYBRID], namespace="team")
