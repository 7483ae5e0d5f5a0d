"""`report.md`: a run for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from query_server.evaluate.metrics import METRICS
from query_server.evaluate.summary import FAILURES

_MOST_ROWS = 100
_MOST_CHARACTERS = 90
_SYSTEMS = ("hybrid", "keyword", "semantic", "hyde")


def write_report(summary: Mapping[str, Any], record: Mapping[str, Any], *, plot: str) -> str:
    """The report as Markdown; `plot` is the name of the picture beside it."""
    return "\n".join(_lines(summary, record, plot)) + "\n"


def _lines(summary: Mapping[str, Any], record: Mapping[str, Any], plot: str) -> Iterator[str]:
    yield f"# Evaluation of {_plain(summary['set'])}"
    yield ""
    yield from _facts(summary)
    yield ""
    yield from _table(["asked", "n", *METRICS], _system_rows(summary))
    yield ""
    yield f"![Share of questions with something right among the first k]({plot})"
    yield ""
    yield from _comparisons(summary)
    if "categories" in summary:
        yield "## By category"
        yield ""
        rows = (
            [*_row(name, one), f"{one['no_match']['count']} of {one['asked']}"] for name, one in summary["categories"].items()
        )
        yield from _table(["category", "n", *METRICS, "no_match"], rows)
        yield ""
    yield from _rates(summary)
    yield from _failures(summary, record)
    if "against" in summary:
        yield from _against(summary["against"], record)


def _facts(summary: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{summary['answerable']} questions with an answer in the documents, {summary['unanswerable']} without one."
        f" Measured at {summary['measured']}, index version {summary['index_version']}."
    )
    if summary.get("sample"):
        yield f"A sample by chance of {summary['sample']['of']} questions, seed {summary['sample']['seed']}."
    if summary.get("documents"):
        yield f"{summary['documents']} documents of the set's own corpus."
    if summary.get("pending"):
        yield f"**{summary['pending']} documents in this scope waited to be indexed: what they hold was not found.**"
    gate = summary.get("gate")
    if gate:
        said = "passed" if gate["passed"] else "**failed**"
        yield f"The gate, hit@5 of at least {gate['min_hit_rate']:g}, is {said}."


def _system_rows(summary: Mapping[str, Any]) -> Iterator[list[str]]:
    yield _row("hybrid", summary)
    yield from _figure_rows(summary.get("legs", {}))
    if "hyde" in summary:
        yield _row("hybrid + hypothetical answer", summary["hyde"])


def _figure_rows(figures: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    for name, one in figures.items():
        yield _row(name, one)


def _row(name: str, figures: Mapping[str, Any]) -> list[str]:
    return [name, str(figures["n"]), *(number(figures[metric]) for metric in METRICS)]


def _comparisons(summary: Mapping[str, Any]) -> Iterator[str]:
    legs = summary.get("hybrid_against_better_leg")
    if legs:
        yield "## Hybrid against the better leg"
        yield ""
        yield from _table(
            ["metric", "better leg", *_PAIRED_COLUMNS], ([name, one["leg"], *_paired(one)] for name, one in legs.items())
        )
        yield ""
    if "hyde" in summary:
        yield "## With a hypothetical answer against without"
        yield ""
        yield "The answer is the one that the set gives, so this is what the best possible guess would bring."
        yield ""
        rows = summary["hyde"]["against_without"].items()
        yield from _table(["metric", *_PAIRED_COLUMNS], ([name, *_paired(one)] for name, one in rows if one))
        yield ""


_PAIRED_COLUMNS = ("difference", "95 % interval", "p", "better", "worse")


def _paired(one: Mapping[str, Any]) -> list[str]:
    mark = " *" if one["p_value"] < 0.05 else ""
    return [
        f"{one['difference']:+.4f}{mark}",
        f"{one['low']:+.4f} … {one['high']:+.4f}",
        f"{one['p_value']:.4f}",
        str(one["better"]),
        str(one["worse"]),
    ]


def _rates(summary: Mapping[str, Any]) -> Iterator[str]:
    no_match, sure = summary["no_match"], summary["high_confidence"]
    yield "## What answers say of themselves"
    yield ""
    yield (
        f"- `no_match` was answered {no_match['count']} times: precision {number(no_match['precision'])}, recall"
        f" {number(no_match['recall'])}; {no_match['wrongly']} times though a document has the answer."
    )
    yield (
        f"- `high_confidence` stood at {sure['count']} of {sure['of']} passages among the first {sure['depth']}: precision"
        f" {number(sure['precision'])}, recall {number(sure['recall'])}; {sure['on_unanswerable']} times under a question that no"
        " document answers."
    )
    yield ""


def _failures(summary: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    failed = [row for row in record["queries"] if row["failure"] is not None]
    yield "## Nothing right among the first five"
    yield ""
    if not failed:
        yield "None."
        yield ""
        return
    yield ", ".join(f"{count} {kind}" for kind, count in summary["failures"].items()) + "."
    yield ""
    asked = [name for name in _SYSTEMS if name in failed[0]]
    ordered = sorted(failed, key=lambda row: FAILURES.index(row["failure"]))
    yield from _table(
        ["question", "category", "expected", *(f"rank, {name}" for name in asked), "first instead"],
        (
            [
                _plain(row["query"]),
                row["category"],
                _plain(", ".join(_place(one) for one in row["expected"])),
                *(_rank(row.get(name)) for name in asked),
                _plain(f"{row['instead']['document']} {row['instead']['citation']}" if row["instead"] else "–"),
            ]
            for row in ordered[:_MOST_ROWS]
        ),
    )
    if len(ordered) > _MOST_ROWS:
        yield ""
        yield f"{len(ordered) - _MOST_ROWS} more stand in per-query.json."
    yield ""


def _place(expected: Mapping[str, Any]) -> str:
    page = f", page {expected['page']}" if "page" in expected else ""
    return f"{expected['path']}{page}" + (f", {expected['section']}" if "section" in expected else "")


def _rank(judged: Mapping[str, Any] | None) -> str:
    if judged is None:
        return ""
    return "no_match" if judged["outcome"] == "no_match" else str(judged["rank"] or "–")


def _against(against: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    texts = {row["id"]: row["query"] for row in record["queries"]}
    yield f"## Against {_plain(against['run'])}"
    yield ""
    yield f"{against['n']} questions are in both runs, {against['only_here']} in this one alone, {against['only_there']} in that."
    yield ""
    yield from _table(["metric", *_PAIRED_COLUMNS], ([name, *_paired(one)] for name, one in against["metrics"].items()))
    for what in ("worse", "better"):
        if against[what]:
            yield ""
            yield f"{what.capitalize()} by ndcg@10, most first:"
            yield ""
            yield from (f"- {_plain(texts[one])} (`{one}`)" for one in against[what][:_MOST_ROWS])
    yield ""


def number(value: float | None) -> str:
    """Three decimals; a dash for what is not known."""
    return "–" if value is None else f"{value:.3f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _plain(text: str) -> str:
    """On one line, in one cell, not too long."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= _MOST_CHARACTERS else flat[: _MOST_CHARACTERS - 1] + "…"
