"""The figures of a run: means over questions, rates of `no_match` and `high_confidence`, kinds of failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from query_server.evaluate.metrics import METRICS, mean
from query_server.evaluate.run import HYBRID, HYDE, KEYWORD, SEMANTIC, SHOWN, Answered, Judged, System
from query_server.evaluate.significance import Paired, compare

LEGS = (KEYWORD, SEMANTIC)

NO_MATCH = "answered as no_match"
NOT_FOUND = "not found at all"
BOTH_LOW = "low in every leg"
LOST = "in the first five of a leg, not of the fusion"
LOW = "below the first five"
FAILURES = (NO_MATCH, NOT_FOUND, BOTH_LOW, LOST, LOW)


def summarise(answered: Sequence[Answered], systems: Sequence[System]) -> dict[str, Any]:
    """The figures in JSON's types. Metrics of the hybrid search stand at the top, those of other systems below theirs."""
    names = [system.name for system in systems]
    answerable = [one for one in answered if one.question.answerable]
    summary: dict[str, Any] = {
        "questions": len(answered),
        "answerable": len(answerable),
        "unanswerable": len(answered) - len(answerable),
        **_figures(answered, HYBRID),
    }
    if any(leg.name in names for leg in LEGS):
        summary["legs"] = {leg.name: _figures(answered, leg) for leg in LEGS if leg.name in names}
        summary["hybrid_against_better_leg"] = _against_better_leg(answerable, summary["legs"])
    if HYDE.name in names:
        asked = [one for one in answered if HYDE.name in one.judged]
        summary["hyde"] = {
            "questions": len(asked),
            **_figures(asked, HYDE),
            "without": mean(_metrics(asked, HYBRID)),
            "against_without": _all_compared(asked, HYDE, HYBRID),
        }
    categories = sorted({one.question.category for one in answered})
    if categories != [""]:
        summary["categories"] = {
            category or "(none)": _figures([one for one in answered if one.question.category == category], HYBRID)
            for category in categories
        }
    summary["failures"] = _count(kind_of_failure(one) for one in answerable)
    return summary


def kind_of_failure(answered: Answered) -> str | None:
    """Why the hybrid search has nothing right among the first five; None when it has. With legs only where they were asked."""
    hybrid = answered.judged[HYBRID.name]
    if not answered.question.answerable or hybrid.metrics["hit@5"]:
        return None
    if hybrid.outcome == "no_match":
        return NO_MATCH
    legs = [answered.judged[leg.name] for leg in LEGS if leg.name in answered.judged]
    if any(leg.metrics["hit@5"] for leg in legs):
        return LOST
    if hybrid.rank is None:
        return NOT_FOUND
    return BOTH_LOW if legs else LOW


def worse_or_better(
    before: Mapping[str, float], after: Mapping[str, float], *, tolerance: float = 1e-9
) -> tuple[list[str], list[str]]:
    """The ids of the questions, known to both, whose score fell and rose, those that moved most first."""
    moved = {one: after[one] - before[one] for one in before if one in after}
    worse = sorted((one for one in moved if moved[one] < -tolerance), key=lambda one: (moved[one], one))
    better = sorted((one for one in moved if moved[one] > tolerance), key=lambda one: (-moved[one], one))
    return worse, better


def _figures(answered: Sequence[Answered], system: System) -> dict[str, Any]:
    judged = [(one, one.judged[system.name]) for one in answered if system.name in one.judged]
    means = mean(_metrics(answered, system)) or dict.fromkeys(METRICS)
    answerable = sum(one.question.answerable for one, _ in judged)
    return {
        "asked": len(judged),
        "n": answerable,
        **means,
        "no_match": _no_match(judged),
        "high_confidence": _high_confidence(judged),
    }


def _metrics(answered: Iterable[Answered], system: System) -> list[Mapping[str, float]]:
    return [one.judged[system.name].metrics for one in answered if one.question.answerable and system.name in one.judged]


def _no_match(judged: Sequence[tuple[Answered, Judged]]) -> dict[str, Any]:
    """Of the outcome `no_match`: precision is the share of such answers that are right, recall the share of the unanswerable
    questions that get one, `wrongly` how many answerable ones do."""
    said = [one.question.answerable for one, answer in judged if answer.outcome == "no_match"]
    unanswerable = sum(not one.question.answerable for one, _ in judged)
    rightly = said.count(False)
    return {
        "count": len(said),
        "precision": _share(rightly, len(said)),
        "recall": _share(rightly, unanswerable),
        "wrongly": said.count(True),
    }


def _high_confidence(judged: Sequence[tuple[Answered, Judged]]) -> dict[str, Any]:
    """Of the passages marked `high_confidence` among the first five: precision is the share that is right, recall the share
    of the right ones that is marked, `on_unanswerable` how many stand under questions that no document answers."""
    shown = [(one, passage) for one, answer in judged for passage in answer.shown]
    marked = [(one, passage) for one, passage in shown if passage.high_confidence]
    right = sum(passage.right for _, passage in marked)
    return {
        "count": len(marked),
        "of": len(shown),
        "depth": SHOWN,
        "precision": _share(right, len(marked)),
        "recall": _share(right, sum(passage.right for _, passage in shown)),
        "on_unanswerable": sum(not one.question.answerable for one, _ in marked),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _against_better_leg(answerable: Sequence[Answered], legs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """For each metric the leg that is better at it, and the fusion beside it."""
    compared = {}
    for name in METRICS:
        scored = {leg: figures[name] for leg, figures in legs.items() if figures[name] is not None}
        if scored:
            # Of equals the keyword leg, as in the fusion.
            better = max(scored, key=lambda leg: scored[leg])
            against = next(leg for leg in LEGS if leg.name == better)
            compared[name] = {"leg": better, **as_json(_compared(answerable, HYBRID, against, name))}
    return compared


def _all_compared(answered: Sequence[Answered], first: System, second: System) -> dict[str, Any]:
    return {name: as_json(_compared(answered, first, second, name)) for name in METRICS}


def _compared(answered: Sequence[Answered], first: System, second: System, metric: str) -> Paired | None:
    pairs = [
        (one.judged[first.name].metrics[metric], one.judged[second.name].metrics[metric])
        for one in answered
        if one.question.answerable and first.name in one.judged
    ]
    return compare([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def as_json(compared: Paired | None) -> dict[str, Any]:
    """A comparison in JSON's types, empty where nothing could be compared."""
    return {} if compared is None else {**asdict(compared), "significant": compared.significant}


def _count(kinds: Iterable[str | None]) -> dict[str, int]:
    listed = [kind for kind in kinds if kind is not None]
    return {kind: listed.count(kind) for kind in FAILURES if kind in listed}
