"""Hit rates of a retrieval set: a folder with `corpus.jsonl`, `queries.jsonl` and `qrels.tsv`, written out as Markdown files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.instance import ROOT, running

SETS = Path(os.environ.get("EVAL_SETS", ROOT.parent / "shared" / "eval"))
NAME = "claude-docs"
DEPTH = 10


def hit_rates(modes: tuple[str, ...] = ("hybrid", "semantic", "keyword")) -> list[dict[str, Any]]:
    """`hit@k`: the share of questions with a right document among the first k passages' documents, through the search code."""
    folder = SETS / NAME
    if not folder.is_dir():
        return [{"set": f"{NAME} is not there (EVAL_SETS), left out"}]
    right: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text().splitlines()[1:]:
        query, document, _ = line.split("\t")
        right.setdefault(query, set()).add(file_name(document))
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    with running() as made:
        files = made.folder / "files"
        files.mkdir()
        documents = write_out(folder, files)
        summary = made.run("ingest", str(files))["summary"]
        rows = []
        for mode in modes:
            ranks = [_rank(made.run("search", one["text"], "--limit", "50", "--mode", mode), right[one["id"]]) for one in queries]
            rows.append(
                {
                    "set": NAME,
                    "mode": mode,
                    "documents": documents,
                    "chunks": summary["chunks"],
                    "questions": len(queries),
                    "hit@1": _share(ranks, 1),
                    "hit@5": _share(ranks, 5),
                    "hit@10": _share(ranks, 10),
                    "mrr": sum(1 / rank for rank in ranks if rank) / len(ranks),
                }
            )
    return rows


def file_name(document_id: str) -> str:
    """A file name for a document of a set."""
    return hashlib.sha256(document_id.encode()).hexdigest()[:16] + ".md"


def write_out(folder: Path, target: Path) -> int:
    """The set's corpus as Markdown files; returns how many."""
    count = 0
    for line in (folder / "corpus.jsonl").read_text().splitlines():
        one = json.loads(line)
        text: str = one["text"]
        title: str = one["title"]
        if text.startswith(title):
            text = text[len(title) :].lstrip("\n")
        (target / file_name(one["id"])).write_text(f"# {title}\n\n{text}")
        count += 1
    return count


def _rank(answer: Mapping[str, Any], right: set[str]) -> int | None:
    seen: list[str] = []
    for result in answer["results"]:
        name = Path(result["path"]).name
        if name not in seen:
            seen.append(name)
    return next((rank for rank, name in enumerate(seen, start=1) if name in right), None)


def _share(ranks: list[int | None], depth: int) -> float:
    return sum(rank is not None and rank <= depth for rank in ranks) / len(ranks)
