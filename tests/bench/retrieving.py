"""How well questions are answered: every retrieval set through `docwell eval`, on an instance of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bench.instance import ROOT, Instance, running

SETS = Path(os.environ.get("EVAL_SETS", ROOT.parent / "shared" / "eval"))
"""A folder of sets, or one set."""

RESULTS = ROOT / "bench-results" / "retrieval"
METRICS = ("ndcg@10", "hit@5", "hit@10", "mrr")
LARGE, SAMPLE, SEED = 1000, 300, 0
"""Of a set with more questions than the first a sample is asked, of the second's size, chosen by chance with the third."""

SUFFIXES = {"cookbook-code-chunks": ".rs", "cookbook-code-files": ".rs"}
"""What the texts of a set are, where their rows do not say."""


def hit_rates() -> list[dict[str, Any]]:
    """All metrics of each set: each leg, both, and both with the set's answer as hypothetical answer where it has answers."""
    sets = [SETS] if (SETS / "corpus.jsonl").is_file() else sorted(path.parent for path in SETS.glob("*/corpus.jsonl"))
    if not sets:
        return [{"set": f"there are none in {SETS} (EVAL_SETS)"}]
    rows: list[dict[str, Any]] = []
    with running() as made:
        for folder in sets:
            rows += _rows(_measure(made, folder))
    return rows


def _measure(made: Instance, folder: Path) -> dict[str, Any]:
    """One set, loaded, asked and removed again."""
    options = ["--compare", "--out", str(RESULTS / folder.name)]
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    if any(question.get("answers") for question in questions):
        options.append("--hyde")
    if len(questions) > LARGE:
        options += ["--sample", str(SAMPLE), "--seed", str(SEED)]
    if folder.name in SUFFIXES:
        options += ["--suffix", SUFFIXES[folder.name]]
    summary: dict[str, Any] = made.run("eval", str(folder), *options)
    return summary


def _rows(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    of = summary["sample"]["of"] if "sample" in summary else summary["questions"]
    asked = [(name, summary["legs"][name]) for name in ("keyword", "semantic")] + [("hybrid", summary)]
    if "hyde" in summary:
        asked.append(("hybrid + answer", summary["hyde"]))
    for name, figures in asked:
        yield {
            "set": summary["set"],
            "documents": summary["documents"],
            "chunks": summary["chunks"],
            "questions": figures["n"],
            "of": of,
            "asked": name,
            **{metric: f"{figures[metric]:.3f}" for metric in METRICS},
            "against": _against(summary, name),
        }


def _against(summary: Mapping[str, Any], asked: str) -> str | None:
    """The hybrid search against the better leg, or with the answer against without, by ndcg@10."""
    if asked == "hybrid":
        one = summary["hybrid_against_better_leg"]["ndcg@10"]
        other = one["leg"]
    elif asked == "hybrid + answer":
        one, other = summary["hyde"]["against_without"]["ndcg@10"], "hybrid"
    else:
        return None
    return f"{other} {one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}] p {one['p_value']:.4f}"
