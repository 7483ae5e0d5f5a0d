"""The gate: a small corpus of our own, taken in and asked as the product does it, held against figures of before.

`python -m tests.evaluation.gate` measures anew and writes the baseline; do that when a change of them is meant, and say why.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ingest_worker.batch import Pace, run_jobs
from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import Tools
from query_server.evaluate.live_set import parse_live_set
from query_server.evaluate.record import make_record
from query_server.evaluate.run import HYBRID, KEYWORD, SEMANTIC, Answered, ask
from query_server.evaluate.sets import QuestionSet
from query_server.evaluate.summary import summarise, worse_or_better
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from tests.asking import serving
from tests.conftest import Database

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
BASELINE = HERE / "baseline.json"
SYSTEMS = (HYBRID, KEYWORD, SEMANTIC)

TOLERANCES = {"hit@5": 0.015, "mrr": 0.02, "ndcg@10": 0.02}
"""How far the mean of a metric may fall. One question of 68 that is lost altogether costs 0.0147: one may be, two may not."""

NO_MATCH_TOLERANCE = 1
"""How many more questions than before may be answered as `no_match` though a document has the answer, or the reverse."""


def questions() -> QuestionSet:
    """The questions, from the form in which `docwell eval` takes them."""
    return parse_live_set(yaml.safe_load((HERE / "questions.yaml").read_text(encoding="utf-8")), name="lighthouse")


def measure(database: Database, folder: Path) -> list[Answered]:
    """Take the corpus in from `folder`, which is made, and ask all questions."""
    shutil.copytree(CORPUS, folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    embedder = LocalEmbedder(bundled_model_dir())
    with (
        open_pool(database.url, name="test") as pool,
        connect(database.url, autocommit=True) as connection,
        ParserCage(CageLimits()) as cage,
    ):
        with connection.transaction():
            source = ensure_source(connection, "inbox", kind="folder", namespace="default", root=folder)
            number = ensure_namespace(connection, "default")
            request_ingest(connection, source, number, [Observed(name=name) for name in names])
        tools = Tools(settings=Settings(watch_settle_seconds=0), pool=pool, cage=cage, embedder=lambda: embedder)
        while claimed := jobs.claim(connection, worker="test", lease_seconds=60, limit=16):
            for ended in run_jobs(claimed, tools, Pace(), enough=lambda: False):
                assert not isinstance(ended.outcome, Exception), ended.outcome
                assert ended.outcome.result == "indexed", ended.outcome
    with serving(database, embedder=lambda: embedder) as service:
        return ask(service, questions().questions, SYSTEMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is held against the baseline: means, scores by question, and the questions that were answered wrongly."""

    means: Mapping[str, float]
    scores: Mapping[str, float]
    texts: Mapping[str, str]
    no_match: Sequence[str]

    @classmethod
    def of(cls, answered: Sequence[Answered]) -> Figures:
        """The figures of a run; `scores` are ndcg@10 of the hybrid search."""
        summary = summarise(answered, SYSTEMS)
        return cls(
            means={name: summary[name] for name in TOLERANCES},
            scores={one.question.text: one.judged["hybrid"].metrics["ndcg@10"] for one in answered if one.question.answerable},
            texts={one.question.text: _where(one) for one in answered},
            no_match=[one.question.text for one in answered if _wrong_outcome(one)],
        )


def _wrong_outcome(one: Answered) -> bool:
    """An answer that is there was denied, or something was answered where nothing is right."""
    return (one.judged["hybrid"].outcome == "no_match") == one.question.answerable


def _where(one: Answered) -> str:
    ranks = ", ".join(f"{name} {judged.rank or '–'}" for name, judged in one.judged.items())
    instead = one.judged["hybrid"].instead
    return f"{one.question.category}; rank: {ranks}" + (f"; first instead: {instead.citation}" if instead else "")


def complaints(before: Mapping[str, Any], now: Figures) -> list[str]:
    """What is worse than the baseline beyond the tolerances, and the questions that made it so; empty when nothing is."""
    said = [
        f"{name} fell from {before['means'][name]:.4f} to {now.means[name]:.4f}; {tolerance} is tolerated."
        for name, tolerance in TOLERANCES.items()
        if now.means[name] < before["means"][name] - tolerance
    ]
    fresh = sorted(set(now.no_match) - set(before["no_match"]))
    if len(now.no_match) > len(before["no_match"]) + NO_MATCH_TOLERANCE:
        said.append(f"{len(now.no_match)} questions have a wrong outcome, {len(before['no_match'])} had: {'; '.join(fresh)}")
    if said:
        worse, _ = worse_or_better(before["scores"], now.scores)
        said += [
            f"  {question!r}: {before['scores'][question]:.3f} to {now.scores[question]:.3f} ({now.texts[question]})"
            for question in worse
        ]
    return said


def baseline() -> dict[str, Any]:
    """The figures of before."""
    loaded: dict[str, Any] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return loaded


def write_baseline(figures: Figures) -> None:
    """Make these the figures of before."""
    kept = {
        "means": {name: round(value, 4) for name, value in figures.means.items()},
        "no_match": list(figures.no_match),
        "scores": {question: round(score, 4) for question, score in figures.scores.items()},
    }
    BASELINE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, say what there is to see, and write the baseline."""
    from infra.local.postgres import EmbeddedPostgres
    from infra.migrate import migrate
    from tests.conftest import FAST, passable_folder

    with passable_folder() as folder:
        server = EmbeddedPostgres(folder / "home", settings=FAST)
        server.start()
        try:
            migrate(server.url_owner, server.url_reader)
            database = Database(name="docwell", url=server.url_owner, reader_url=server.url_reader)
            answered = measure(database, folder / "corpus")
        finally:
            server.stop()
    figures = Figures.of(answered)
    for row in make_record("lighthouse", answered)["queries"]:
        if row["failure"] or row["query"] in figures.no_match:
            print(f"{row['query']}: {figures.texts[row['query']]}")
    write_baseline(figures)
    print(json.dumps(figures.means))
    return 0


if __name__ == "__main__":
    sys.exit(main())
