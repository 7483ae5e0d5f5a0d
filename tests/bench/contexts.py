"""What contexts are worth: sets of questions asked with and without, contexts coming from a deterministic stand-in on loopback.

The stand-in knows no language. It says the document's title or file, the heading path or enclosing symbol, and the document's
first sentence: less than a model would, and the same in every run. The way is the real one: requests, ledger, embedding, terms.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.anthropic_stand_in import KEY, StandIn, anthropic_stand_in
from tests.anthropic_wire import Received, Reply, says
from tests.bench.instance import Instance, running
from tests.bench.retrieving import SETS, SUFFIXES

NAMES = ("cookbook-code-files", "claude-docs")
DEPTHS = (5, 10, 20)
RESULTS = Path(__file__).resolve().parents[2] / "bench-results" / "contexts"
DOCUMENTS = int(os.environ.get("BENCH_DOCUMENTS", "0"))
"""So many documents of a set, and the questions that they answer; 0: all."""

_SUMMARY_CHARS = 240


def say_where(received: Received) -> Reply:
    """The context for a request: title, file, heading path or symbol, and the document's first sentence of some length."""
    shown, asked = (block["text"] for block in received.last_content)
    file = re.search(r"^File: (.*)$", shown, re.MULTILINE)
    title = re.search(r"^Title: (.*)$", shown, re.MULTILINE)
    where = re.search(r"^It stands under: (.*)$", asked, re.MULTILINE)
    parts = [
        f"From {title[1] if title else (file[1] if file else 'a document')}.",
        f"It stands under {where[1]}." if where else "",
        summary(shown.partition("<document>")[2] or shown.partition("<part_of_the_document>")[2]),
    ]
    return says(" ".join(part for part in parts if part))


def summary(document: str) -> str:
    """What a document says first that is a sentence: no heading, no import, comment marks taken off."""
    for line in document.splitlines():
        said = re.sub(r"^[\s/*!#>\-]+", "", line).strip()
        if len(said.split()) >= 6 and not re.match(r"(use|import|from|pub|fn|mod|let)\b", said):
            return said[:_SUMMARY_CHARS]
    return ""


def with_and_without() -> list[dict[str, Any]]:
    """Hit rates of each set in the hybrid search, without and with contexts, and what the contexts took."""
    rows: list[dict[str, Any]] = []
    for name in NAMES:
        folder = SETS / name
        if not (folder / "corpus.jsonl").is_file():
            rows.append({"set": name, "contexts": f"not there: {folder} (EVAL_SETS)"})
            continue
        rows += _rows(name, folder)
    return rows


def _rows(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    with anthropic_stand_in(otherwise=say_where) as model, running() as made:
        chosen = _some(folder, made.folder / "set" / name) if DOCUMENTS else folder
        without = _ask(made, chosen, RESULTS / name / "without")
        assert not model.requests
    yield {"set": name, "contexts": "without", **without}
    with anthropic_stand_in(otherwise=say_where) as model:
        settings = {
            "DOCWELL_CONTEXT_PREFIXES": "on",
            "DOCWELL_ANTHROPIC_API_KEY": KEY,
            "DOCWELL_ANTHROPIC_BASE_URL": model.url,
        }
        with running(settings) as made:
            chosen = _some(folder, made.folder / "set" / name) if DOCUMENTS else folder
            found = _ask(made, chosen, RESULTS / name / "with")
        yield {"set": name, "contexts": "with", **found, **_took(model)}


def _ask(made: Instance, folder: Path, out: Path) -> dict[str, Any]:
    options = ["--out", str(out)]
    if folder.name in SUFFIXES:
        options += ["--suffix", SUFFIXES[folder.name]]
    told = made.run("eval", str(folder), *options)
    record = json.loads((out / "per-query.json").read_text(encoding="utf-8"))
    ranks = [question["hybrid"]["rank"] for question in record["queries"]]
    hits = {f"hit@{depth}": f"{sum(rank is not None and rank <= depth for rank in ranks) / len(ranks):.3f}" for depth in DEPTHS}
    return {
        "documents": told["documents"],
        "chunks": told["chunks"],
        "questions": len(ranks),
        **hits,
        "mrr": f"{told['mrr']:.3f}",
    }


def _took(model: StandIn) -> dict[str, Any]:
    read, written, plain = (
        model.total(name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    )
    return {"calls": len(model.requests), "read from the cache": f"{read / max(1, read + written + plain):.1%}"}


def _some(folder: Path, into: Path) -> Path:
    """The first documents of a set with the questions that they answer."""
    into.mkdir(parents=True, exist_ok=True)
    corpus = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:DOCUMENTS]
    known = {str(json.loads(line).get("id", json.loads(line).get("_id"))) for line in corpus}
    head, *judged = (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in judged if line.split("\t")[-2] in known]
    asked = {line.split("\t")[0] for line in kept}
    questions = [
        line
        for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        if str(json.loads(line).get("id", json.loads(line).get("_id"))) in asked
    ]
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", questions), ("qrels.tsv", [head, *kept])):
        (into / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return into
