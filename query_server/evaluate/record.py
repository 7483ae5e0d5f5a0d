"""What is kept of each question (`per-query.json`), and two runs beside each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from query_server.evaluate.metrics import METRICS
from query_server.evaluate.run import HYBRID, Answered, Judged, Shown
from query_server.evaluate.sets import BadSet, Expected
from query_server.evaluate.significance import Paired, compare
from query_server.evaluate.summary import kind_of_failure, worse_or_better

PER_QUERY = "per-query.json"


def make_record(name: str, answered: Sequence[Answered], *, ids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`{set, queries: [...]}`; a query has one entry for each system that it was put to, by name.

    `ids` are those of a set's own documents, by the stem of the file they are taken in as: a passage is told by its id then.
    """
    return {"set": name, "queries": [_query(one, ids or {}) for one in answered]}


def _query(answered: Answered, ids: Mapping[str, str]) -> dict[str, Any]:
    question = answered.question
    row: dict[str, Any] = {
        "id": question.id,
        "query": question.text,
        "category": question.category,
        "reason": question.reason,
        "answerable": question.answerable,
        "expected": [_expected(one) for one in question.expected],
        "failure": kind_of_failure(answered),
        "instead": None,
    }
    instead = answered.judged[HYBRID.name].instead
    if instead is not None:
        row["instead"] = {"document": _document(instead, ids), "citation": instead.citation, "section": instead.section}
    return row | {name: _judged(judged, ids) for name, judged in answered.judged.items()}


def _document(shown: Shown, ids: Mapping[str, str]) -> str:
    return ids.get(PurePosixPath(shown.path).stem, shown.path)


def _expected(expected: Expected) -> dict[str, Any]:
    row = {"path": expected.path, "grade": expected.grade, "page": expected.page, "section": expected.section}
    return {name: value for name, value in row.items() if value is not None}


def _judged(judged: Judged, ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "outcome": judged.outcome,
        "rank": judged.rank,
        "metrics": dict(judged.metrics),
        "top": [{"document": _document(shown, ids), **asdict(shown)} for shown in judged.shown],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The hybrid search's scores in a record, by question id, and the questions' texts."""

    name: str
    metrics: Mapping[str, Mapping[str, float]]
    queries: Mapping[str, str]


def read_record(folder: Path) -> Recorded:
    """What another run left in its folder.

    Raises:
        BadSet: there is no `per-query.json`, or it is something else.
    """
    path = folder / PER_QUERY
    try:
        return recorded(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadSet(
            f"{path} is no record of an evaluation: {error}. Name the folder that an earlier `docwell eval` wrote."
        ) from error


def recorded(record: Mapping[str, Any]) -> Recorded:
    """The scores in a record, of questions that have an answer."""
    rows = [row for row in record["queries"] if row["answerable"]]
    return Recorded(
        name=str(record["set"]),
        metrics={row["id"]: row[HYBRID.name]["metrics"] for row in rows},
        queries={row["id"]: row["query"] for row in rows},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """This run compared with another one: of each metric the paired test, and the questions that moved by `ndcg@10`.

    `n` questions are in both, with the same text; `only_here` and `only_there` are not.
    """

    n: int
    only_here: int
    only_there: int
    metrics: Mapping[str, Paired]
    worse: tuple[str, ...]
    better: tuple[str, ...]


def compare_records(here: Recorded, there: Recorded) -> Against:
    """Pair two runs by the ids of their questions.

    Raises:
        BadSet: they have no question in common.
    """
    common = [one for one in here.metrics if there.queries.get(one) == here.queries[one]]
    if not common:
        raise BadSet(f"The runs of {here.name} and of {there.name} have no question in common.")
    metrics = {}
    for name in METRICS:
        paired = compare([here.metrics[one][name] for one in common], [there.metrics[one][name] for one in common])
        if paired is not None:
            metrics[name] = paired
    worse, better = worse_or_better(
        {one: there.metrics[one]["ndcg@10"] for one in common}, {one: here.metrics[one]["ndcg@10"] for one in common}
    )
    return Against(
        n=len(common),
        only_here=len(here.metrics) - len(common),
        only_there=len(there.metrics) - len(common),
        metrics=metrics,
        worse=tuple(worse),
        better=tuple(better),
    )
