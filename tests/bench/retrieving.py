"""Hit rates of a retrieval set: a folder with `corpus.jsonl`, `queries.jsonl` and `qrels.tsv`, written out as Markdown files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local.runtime import attach
from query_server.service import SearchService, open_service
from shared.config import load_settings
from tests.bench.instance import ROOT, running

SETS = Path(os.environ.get("EVAL_SETS", ROOT.parent / "shared" / "eval"))
NAME = "claude-docs"
DEPTH = 10


def hit_rates(modes: tuple[str, ...] = ("hybrid", "semantic", "keyword")) -> list[dict[str, Any]]:
    """`hit@k`: the share of questions with a right document among the documents of the first passages, k of them.

    Asked through the code behind `docwell search`.
    """
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
        settings, _ = load_settings(made.environment)
        with open_service(attach(settings)) as service:
            return [_figures(service, queries, right, mode, documents, summary["chunks"]) for mode in modes]


def _figures(
    service: SearchService, queries: list[dict[str, Any]], right: dict[str, set[str]], mode: str, documents: int, chunks: int
) -> dict[str, Any]:
    ranks = [_rank(service.search(one["text"], limit=50, mode=mode, max_tokens=100_000), right[one["id"]]) for one in queries]
    return {
        "set": NAME,
        "mode": mode,
        "documents": documents,
        "chunks": chunks,
        "questions": len(queries),
        "hit@1": _share(ranks, 1),
        "hit@5": _share(ranks, 5),
        "hit@10": _share(ranks, 10),
        "mrr": sum(1 / rank for rank in ranks if rank) / len(ranks),
    }


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
