"""Asks the questions of a set, through the code that answers `search_documents`, and judges what comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from query_server.evaluate.metrics import first_right, measure
from query_server.evaluate.sets import Question
from query_server.retrieve.request import Mode
from query_server.service import LONGEST_QUERY
from shared.errors import PermanentError, ServiceUnavailable

DEPTH = 100
"""Passages that are looked at for a question, so how far a right one can be found."""
FIRST = 30
"""Passages that are asked for at first: mostly they settle all metrics, and all hundred take the database twice the time."""
RANKED = 10
"""Items that the metrics look at, but for `mrr`, which ends at the first right one."""
SHOWN = 5
"""Passages that a search answers when nobody says how many: what a person or a model sees."""
_NO_LIMIT = 10_000_000
"""Tokens of an answer. A budget is not what is measured here."""


class Searches(Protocol):
    """What answers: `query_server.service.SearchService`."""

    def search(
        self,
        query: str,
        *,
        limit: int,
        namespace: str,
        mode: Mode,
        hypothetical_answer: str,
        max_tokens: int,
    ) -> dict[str, Any]:
        """`search_documents`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A way to ask. With `hyde` the first answer that a question comes with is passed as `hypothetical_answer`."""

    name: str
    mode: Mode
    hyde: bool = False


HYBRID = System(name="hybrid", mode="hybrid")
KEYWORD = System(name="keyword", mode="keyword")
SEMANTIC = System(name="semantic", mode="semantic")
HYDE = System(name="hyde", mode="hybrid", hyde=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A passage that was answered, and whether it is right."""

    path: str
    citation: str
    section: str | None
    score: float
    matched_by: tuple[str, ...]
    high_confidence: bool
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one question came to. `rank` is that of the first right item, None when it is not among those looked at.

    `metrics` are empty for a question that no document answers. `index_version` is that of the snapshot it was answered from.
    """

    outcome: str
    rank: int | None
    metrics: Mapping[str, float]
    shown: tuple[Shown, ...]
    index_version: int
    pending: int

    @property
    def instead(self) -> Shown | None:
        """What stood first without being right."""
        return self.shown[0] if self.shown and not self.shown[0].right else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question and, by the name of the system, what it came to."""

    question: Question
    judged: Mapping[str, Judged]


def ask(
    service: Searches,
    questions: Sequence[Question],
    systems: Sequence[System],
    *,
    namespace: str = "",
    advance: Callable[[], None] = lambda: None,
) -> list[Answered]:
    """Put each question to each system; `advance` is called after each question.

    A question without answers is not put to a system with `hyde`.

    Raises:
        PermanentError: `index_empty`, nothing is indexed there, so that there is nothing to measure.
        ServiceUnavailable: the embedder is away, so that only the keyword leg would be measured.
    """
    answered = []
    for question in questions:
        judged = {}
        for system in systems:
            if system.hyde and not question.answers:
                continue
            judged[system.name] = _ask_one(service, question, system, namespace)
        answered.append(Answered(question=question, judged=judged))
        advance()
    return answered


def _ask_one(service: Searches, question: Question, system: System, namespace: str) -> Judged:
    for limit in (FIRST, DEPTH):
        answer = service.search(
            question.text,
            limit=limit,
            namespace=namespace,
            mode=system.mode,
            hypothetical_answer=question.answers[0][:LONGEST_QUERY] if system.hyde else "",
            max_tokens=_NO_LIMIT,
        )
        _refuse_half_answers(answer, namespace)
        judged, items = judge(question, answer)
        # A longer page begins with the shorter one: the ranking is the same, so nothing that was judged changes.
        if not answer.get("next_cursor") or (items >= RANKED and (judged.rank is not None or not question.answerable)):
            break
    return judged


def _refuse_half_answers(answer: Mapping[str, Any], namespace: str) -> None:
    if answer["outcome"] == "index_empty":
        where = f"the namespace {namespace}" if namespace else "the index"
        raise PermanentError(f"Nothing is indexed in {where}, so no question can be answered.", code="index_empty")
    for warning in answer["warnings"]:
        if warning["code"] == "keyword_only":
            raise ServiceUnavailable(f"Nothing was measured. {warning['message']}", code="embedder_away")


def judge(question: Question, answer: Mapping[str, Any]) -> tuple[Judged, int]:
    """Judge one answer of `search_documents`; also says how many items it ranks."""
    results: list[dict[str, Any]] = answer["results"]
    gains = rank_gains(question, results)
    grades = [one.grade for one in question.expected]
    judged = Judged(
        outcome=str(answer["outcome"]),
        rank=first_right(gains),
        metrics=measure(gains, grades) if question.answerable else {},
        shown=tuple(_shown(question, result) for result in results[:SHOWN]),
        index_version=int(answer["index_version"]),
        pending=int(answer["pending_in_scope"]),
    )
    return judged, len(gains)


def rank_gains(question: Question, results: Sequence[Mapping[str, Any]]) -> list[float]:
    """The gains of a ranking of passages.

    Documents are ranked: a passage counts for its document, and of a document its first passage. Where a page or section is
    asked for passages are ranked. What is right counts once: a second passage with the same right place gains nothing.
    """
    gains = []
    seen: set[object] = set()
    unmet = list(question.expected)
    for result in results:
        if not question.by_place:
            document = result["document_id"]
            if document in seen:
                continue
            seen.add(document)
        met = next((one for one in unmet if one.matches(result)), None)
        if met is not None:
            unmet.remove(met)
        gains.append(met.grade if met is not None else 0.0)
    return gains


def _shown(question: Question, result: Mapping[str, Any]) -> Shown:
    return Shown(
        path=str(result["path"]),
        citation=str(result["citation"]),
        section=result.get("section"),
        score=float(result["score"]),
        matched_by=tuple(result["matched_by"]),
        high_confidence=bool(result["high_confidence"]),
        right=any(one.matches(result) for one in question.expected),
    )
