"""How `docwell search --explain` prints where an answer comes from."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.cli.output import plain

_WIDTH = 120


def show_explanation(answer: Mapping[str, Any]) -> None:
    """Print the answer's explanation and, below it, those of its passages."""
    console = Console(width=max(shutil.get_terminal_size().columns, _WIDTH), highlight=False)
    for line in _answer_lines(answer["explanation"]):
        console.print(Text(line), soft_wrap=True)
    if answer["explanation"]["terms"]:
        console.print(_terms(answer["explanation"]["terms"]))
    if answer["results"]:
        console.print(_passages(answer["results"]))
    for place, result in enumerate(answer["results"], start=1):
        for line in _details(result["explanation"]):
            console.print(Text(f"{place}. {line}"), soft_wrap=True)


def _answer_lines(found: Mapping[str, Any]) -> Iterable[str]:
    filters = ", ".join(f"{name} {plain(value)}" for name, value in found["filters"].items()) or "none"
    yield f"Mode {found['mode']}, filters: {filters}. Namespaces searched: {', '.join(found['namespaces']) or 'none'}."
    yield f"In scope: {found['documents']} searchable documents, {found['chunks']} chunks. Index {found['index_version']}."
    for name, leg in found["legs"].items():
        best = "" if leg.get("best") is None else f", the best with {leg['best']}"
        yield f"{name.capitalize()} leg: {leg['candidates']} candidates (at most {leg['depth']} of each list){best}."
    yield f"Model: {found.get('model', 'none')}. Ranking: {found['ranked']} chunks, cache {found['cache']}" + (
        ", reranked." if found["reranked"] else "."
    )
    yield _cut_off(found["cut_off"])
    yield "Milliseconds: " + ", ".join(f"{name} {value:.1f}" for name, value in found["milliseconds"].items()) + "."


def _cut_off(cut: Mapping[str, Any]) -> str:
    parts = [f"most exact hits {cut['exact_hits']}", f"best share of the query's weight {cut['best_coverage']}"]
    if "best_similarity" in cut:
        parts.append(f"best similarity {cut['best_similarity']}")
    else:
        parts.append(f"without vectors a share of {cut['needed_coverage']} is needed")
    if "evidence" in cut:
        parts.append(
            f"evidence {cut['evidence']} (similarity and {cut['coverage_weight']} × share; relevant from {cut['relevant_from']},"
            f" certain from {cut['certain_from']})"
        )
    elif "best_similarity" in cut:
        parts.append("no threshold: nobody calibrated this model")
    if cut.get("absent"):
        parts.append(f"nothing holds {' or '.join(cut['absent'])}, so a share of {cut['needed_coverage']} is needed")
    verdict = "something found is about the question" if cut["supported"] else "nothing found is about the question"
    return f"Cut-off: {verdict}; {', '.join(parts)}."


def _terms(terms: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("asked for", "kind", "chunks with it", "idf")
    for term in terms:
        kind = f"{term['kind']}, identifier" if term["identifier"] else term["kind"]
        table.add_row(*map(Text, (plain(term["term"]), kind, str(term["chunks"]), f"{term['idf']:.2f}")))
    return table


def _passages(results: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("#", "passage", "keyword", "semantic", "fused", "exact", "rerank", "terms held (idf × count)")
    for place, result in enumerate(results, start=1):
        found = result["explanation"]
        keyword = f"{found['keyword_rank']} ({found['keyword_score']:.2f})" if "keyword_rank" in found else "-"
        semantic = f"{found['semantic_rank']} ({found['similarity']:.3f})" if "semantic_rank" in found else "-"
        held = ", ".join(f"{term['term']} ({term['idf']:.1f} × {term['count']})" for term in found["terms"])
        cells = (
            str(place),
            plain(result["citation"]),
            keyword,
            semantic,
            f"{plain(found.get('fused_rank'))} ({found['fused_score']:.4f})",
            str(found["exact_hits"]),
            f"{found['rerank_score']:.4f}" if "rerank_score" in found else "-",
            plain(held or None),
        )
        table.add_row(*map(Text, cells))  # a citation's brackets are no markup
    return table


def _details(found: Mapping[str, Any]) -> Iterable[str]:
    if found.get("identifiers"):
        yield f"holds the identifiers {', '.join(map(plain, found['identifiers']))}"
    if found.get("phrases"):
        yield f"holds the phrases {', '.join(map(plain, found['phrases']))}"
    if found.get("holds_all"):
        yield "holds every word of the question"
    if found.get("named"):
        yield "its document is named in the question"
    if found.get("by_name"):
        yield f"its document's name holds {', '.join(map(plain, found['by_name']))}"
    for name, saying in (("merged", "goes on in"), ("collapsed", "is said again in")):
        for part in found.get(name, ()):
            ranks = [f"{leg} {part[f'{leg}_rank']}" for leg in ("keyword", "semantic") if f"{leg}_rank" in part]
            yield f"{saying} {plain(part['citation'])}, chunk {part['chunk_id']} ({', '.join(ranks)})"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
