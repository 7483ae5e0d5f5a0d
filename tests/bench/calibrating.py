"""What tells an answer from the nearest passage: questions put to their own set and to sets of another subject or language.

A question that is put to another set counts as one that cannot be answered. Which answers are right is known from the sets'
judgements; a neighbour that nobody judged counts as wrong.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infra.local.runtime import attach
from query_server.assembly import open_service
from query_server.evaluate.corpus_set import read_corpus_set
from query_server.evaluate.sets import Question, QuestionSet, file_stem
from query_server.service import SearchService
from shared.config import load_settings
from tests.bench.instance import running
from tests.bench.retrieving import SETS, SUFFIXES

NAMES = tuple(os.environ.get("CALIBRATION_SETS", "claude-docs,cookbook-code-files,xquad-de,xquad-en,xquad-zh").split(","))
QUESTIONS, SEED = 60, 7
THRESHOLDS = (0.83, 0.84, 0.85, 0.86, 0.87, 0.88, 0.89)
SHOWN = 5


def evidence() -> list[dict[str, Any]]:
    """Loads the sets, each into a namespace of its own name, and asks."""
    with running() as made:
        for name in NAMES:
            folder = made.folder / name
            folder.mkdir()
            for document in read_corpus_set(SETS / name).documents or ():
                suffix = SUFFIXES.get(name, ".md")
                text = document.text if suffix != ".md" else f"# {document.title}\n\n{document.text}"
                (folder / f"{file_stem(document.id)}{suffix}").write_text(text)
            made.run("ingest", str(folder), "--namespace", name)
        settings, _ = load_settings(made.environment)
        with open_service(attach(settings)) as service:
            return judge(service, SETS, NAMES)


def judge(service: SearchService, sets: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """For each threshold: answerable questions that keep their answer, others that are found out; and the passages that are
    called certain, with the share of them that is right, by set."""
    found = {name: _asked(read_corpus_set(sets / name)) for name in names}
    own = [_evidence(service, one.text, name) for name in names for one in found[name]]
    foreign = [
        _evidence(service, one.text, other) for name in names for other in names if not _alike(name, other) for one in found[name]
    ]
    rows: list[dict[str, Any]] = [
        {
            "evidence from": threshold,
            "own set, answered": sum(one >= threshold for one in own) / len(own),
            "another set, found out": sum(one < threshold for one in foreign) / len(foreign),
            "questions": f"{len(own)} and {len(foreign)}",
        }
        for threshold in THRESHOLDS
    ]
    return rows + [_certain(service, name, found[name]) for name in names]


def _asked(found: QuestionSet) -> Sequence[Question]:
    questions = [question for question in found.questions if question.answerable]
    return random.Random(SEED).sample(questions, min(QUESTIONS, len(questions)))


def _alike(one: str, other: str) -> bool:
    """Sets about the same things, in whatever language, answer each other's questions."""
    return one == other or one.split("-")[0] == other.split("-")[0]


def _evidence(service: SearchService, query: str, namespace: str) -> float:
    cut = service.search(query, namespace=namespace, explain=True)["explanation"]["cut_off"]
    return 1.0 if cut["exact_hits"] else float(cut["evidence"])


def _certain(service: SearchService, name: str, questions: Sequence[Question]) -> dict[str, Any]:
    passages = [passage for question in questions for passage in _judged(service, name, question)]
    certain = [right for right, is_certain in passages if is_certain]
    right = sum(right for right, _ in passages)
    return {
        "set": name,
        "called certain": len(certain),
        "of them right": sum(certain) / len(certain) if certain else None,
        "of the right ones among the first five": sum(certain) / right if right else None,
    }


def _judged(service: SearchService, name: str, question: Question) -> Iterator[tuple[bool, bool]]:
    """Of each passage among the first: whether it is right, and whether it is called certain."""
    stems = {stem for expected in question.expected for stem in expected.stems}
    answer = service.search(question.text, namespace=name, limit=SHOWN, max_tokens=100_000)
    for passage in answer["results"]:
        yield Path(passage["path"]).stem in stems, bool(passage["high_confidence"])
