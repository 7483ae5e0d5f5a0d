"""`docwell eval`: how well the questions of a set are answered, as figures, a report, and an exit code for a gate."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.context import owner_connection, settings
from shared.config import Settings

if TYPE_CHECKING:
    from query_server.evaluate.run import Answered, System
    from query_server.evaluate.sets import QuestionSet

RESULTS = "eval-results"


def evaluate(
    set_: Annotated[
        Path,
        typer.Argument(metavar="SET", help="A YAML file of queries, or a folder with corpus.jsonl, queries.jsonl, qrels.tsv."),
    ],
    min_hit_rate: Annotated[float | None, typer.Option(min=0, max=1, help="Exit 1 when hit@5 is below this share.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Ask each leg alone too, and test the difference.")] = False,
    hyde: Annotated[
        bool, typer.Option("--hyde", help="Ask once more with the set's first answer to a question as hypothetical answer.")
    ] = False,
    against: Annotated[Path | None, typer.Option(help="The folder of another run to compare with, question by question.")] = None,
    out: Annotated[Path | None, typer.Option(help=f"Where to write; {RESULTS}/NAME-TIME without it.")] = None,
    namespace: Annotated[
        str, typer.Option(help="Ask in this namespace. The corpus of a folder is then taken to be there, and not loaded.")
    ] = "",
    sample: Annotated[int | None, typer.Option(min=1, help="Ask so many of the questions, chosen by chance.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    suffix: Annotated[str, typer.Option(help="What the texts of a folder's corpus are, such as .md or .rs.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Leave a folder's corpus in the index, for --namespace.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON document on stdout.")] = False,
) -> None:
    """Measure how well questions are answered, with the code that answers `search_documents`.

    Writes summary.json, report.md, per-query.json and hits.svg. The corpus of a folder is loaded into a namespace of its own and
    removed afterwards, which needs a worker.
    """
    from query_server.evaluate.record import read_record
    from query_server.evaluate.sets import BadSet

    if suffix and not suffix.startswith("."):
        raise typer.BadParameter("--suffix begins with a dot: .md")
    try:
        questions = _read(set_)
        before = read_record(against) if against is not None else None
    except BadSet as error:
        raise typer.BadParameter(str(error)) from error
    asked = questions if sample is None else questions.sample(sample, seed=seed)
    if min_hit_rate is not None and not any(one.answerable for one in asked.questions):
        raise typer.BadParameter("--min-hit-rate has nothing to look at: no question of the set has an expected path.")
    if hyde and not any(one.answers for one in asked.questions):
        raise typer.BadParameter("--hyde needs `answers` in the questions, and none of the set has any.")

    now = datetime.now(UTC)
    folder = out if out is not None else Path(RESULTS) / f"{_file_name(asked.name)}-{now:%Y%m%dT%H%M%S}"
    _check_writable(folder)
    current = settings()
    facts: dict[str, Any] = {"set": asked.name, "measured": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    if len(asked.questions) < len(questions.questions):
        facts["sample"] = {"of": len(questions.questions), "seed": seed}
    if asked.left_out:
        facts["questions_without_judgement"] = asked.left_out
    if asked.unknown_documents or asked.unknown_questions:
        facts["judgements_left_out"] = {
            "unknown_documents": asked.unknown_documents,
            "unknown_questions": asked.unknown_questions,
        }
        print(
            f"docwell: {asked.unknown_documents} rows of qrels.tsv name documents that corpus.jsonl does not have, and"
            f" {asked.unknown_questions} questions that queries.jsonl does not have: they are left out.",
            file=sys.stderr,
        )
    systems = _systems(compare=compare, hyde=hyde)
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        where = namespace or asked.namespace
        if asked.documents is not None and not namespace:
            loaded = stack.enter_context(_corpus(asked, current, suffix=suffix, keep=keep))
            where = loaded.namespace
            facts |= {"documents": loaded.documents, "chunks": loaded.chunks, "documents_without_text": loaded.failed}
            if keep:
                print(f"The corpus stays in the namespace {where}: ask again with --namespace {where}.", file=sys.stderr)
        facts["namespace"] = where or None
        answered = _ask(asked, current, systems, where)
    summary, record = _figures(answered, systems, facts, asked)
    if min_hit_rate is not None:
        summary["gate"] = {"min_hit_rate": min_hit_rate, "passed": summary["hit@5"] >= min_hit_rate}
    if before is not None:
        from query_server.evaluate.record import compare_records, recorded

        try:
            summary["against"] = {"run": str(against), **asdict(compare_records(recorded(record), before))}
        except BadSet as error:
            raise typer.BadParameter(str(error)) from error
    _write(folder, summary, record)
    _say(summary, folder, as_json=as_json)
    if "gate" in summary and not summary["gate"]["passed"]:
        print(f"hit@5 is {summary['hit@5']:.4f}, below the gate of {min_hit_rate:g}.", file=sys.stderr)
        raise typer.Exit(1)


def _read(path: Path) -> QuestionSet:
    from query_server.evaluate.corpus_set import read_corpus_set
    from query_server.evaluate.live_set import parse_live_set
    from query_server.evaluate.sets import BadSet

    if path.is_dir():
        return read_corpus_set(path)
    import yaml  # type: ignore[import-untyped]

    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadSet(f"{path} cannot be read: {' '.join(str(error).split())}.") from error
    return parse_live_set(value, name=path.stem)


def _check_writable(folder: Path) -> None:
    """Said before the work rather than after it."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"The results cannot be written to {folder}: {nearest} is no folder that can be written to.")


def _file_name(name: str) -> str:
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in name).strip(".-") or "set"


def _systems(*, compare: bool, hyde: bool) -> list[System]:
    from query_server.evaluate.run import HYBRID, HYDE, KEYWORD, SEMANTIC

    return [HYBRID, *([KEYWORD, SEMANTIC] if compare else []), *([HYDE] if hyde else [])]


@contextmanager
def _corpus(asked: QuestionSet, current: Settings, *, suffix: str, keep: bool) -> Iterator[Any]:
    from infra.evaluate.loading import Loader
    from ingest_worker.jobs.celery_app import make_app
    from ingest_worker.jobs.wake import celery_wake

    wake = celery_wake(make_app(current), most=current.worker_concurrency or 4)
    documents = asked.documents or ()
    with (
        _Progress("documents") as say,
        Loader(owner_connection, wake, say=say).loaded(asked.name, documents, suffix=suffix, keep=keep) as loaded,
    ):
        yield loaded


def _ask(asked: QuestionSet, current: Settings, systems: Sequence[System], namespace: str) -> list[Answered]:
    from query_server.assembly import open_service
    from query_server.evaluate.run import ask

    done = 0

    with open_service(current) as service, _Progress("questions") as say:

        def advance() -> None:
            nonlocal done
            done += 1
            say(done, len(asked.questions))

        return ask(service, asked.questions, systems, namespace=namespace, advance=advance)


class _Progress:
    """How far it is, on stderr: a line that is written over on a terminal, nothing elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._written = False

    def __enter__(self) -> Any:
        return self._say

    def _say(self, done: int, whole: int) -> None:
        if sys.stderr.isatty():
            self._written = True
            print(f"\r{done} of {whole} {self._what} ", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._written:
            print(file=sys.stderr)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the work as Ctrl-C does, so that what was loaded is removed."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _figures(
    answered: Sequence[Answered], systems: Sequence[System], facts: dict[str, Any], asked: QuestionSet
) -> tuple[dict[str, Any], dict[str, Any]]:
    from query_server.evaluate.record import make_record
    from query_server.evaluate.run import HYBRID
    from query_server.evaluate.sets import file_stem
    from query_server.evaluate.summary import summarise

    last = answered[-1].judged[HYBRID.name]
    summary = {
        **facts,
        "index_version": last.index_version,
        "pending": max(one.judged[HYBRID.name].pending for one in answered),
        **summarise(answered, systems),
    }
    ids = {file_stem(document.id): document.id for document in asked.documents or ()}
    return summary, make_record(asked.name, answered, ids=ids)


def _write(folder: Path, summary: dict[str, Any], record: dict[str, Any]) -> None:
    from query_server.evaluate.plot import draw, hit_curve
    from query_server.evaluate.record import PER_QUERY
    from query_server.evaluate.report import write_report
    from shared.errors import PermanentError

    answerable = [row for row in record["queries"] if row["answerable"]]
    names = [name for name in ("hybrid", "keyword", "semantic", "hyde") if any(name in row for row in answerable)]
    curves = {name: hit_curve([row[name]["rank"] for row in answerable if name in row]) for name in names}
    gate = summary["gate"]["min_hit_rate"] if "gate" in summary else None
    plot = "hits.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "summary.json", summary)
        _write_json(folder / PER_QUERY, record)
        (folder / plot).write_text(draw(f"{summary['set']}: something right among the first k", curves, gate=gate), "utf-8")
        (folder / "report.md").write_text(write_report(summary, record, plot=plot), encoding="utf-8")
    except OSError as error:
        raise PermanentError(f"The results cannot be written to {folder}: {error.strerror}.", code="unwritable") from error


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _say(summary: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**summary, "out": str(folder)}, ensure_ascii=False))
        return
    from infra.cli.output import print_table
    from query_server.evaluate.metrics import METRICS
    from query_server.evaluate.report import number

    rows = [("hybrid", summary), *summary.get("legs", {}).items()]
    rows += [("hybrid + answer", summary["hyde"])] if "hyde" in summary else []
    print_table(
        ["asked", "n", *METRICS], ([name, one["n"], *(number(one[metric]) for metric in METRICS)] for name, one in rows), empty=""
    )
    for name, one in summary.get("hybrid_against_better_leg", {}).items():
        if name in ("hit@5", "ndcg@10"):
            print(f"hybrid - {one['leg']}, {name}: {_difference(one)}")
    for name, one in summary.get("against", {}).get("metrics", {}).items():
        print(f"this run - {summary['against']['run']}, {name}: {_difference(one)}")
    no_match, sure = summary["no_match"], summary["high_confidence"]
    if summary["unanswerable"] or no_match["count"]:
        print(f"no_match: precision {number(no_match['precision'])}, recall {number(no_match['recall'])}")
    print(f"high_confidence: precision {number(sure['precision'])} of {sure['count']} passages")
    print(f"Written to {folder}")


def _difference(one: dict[str, Any]) -> str:
    return (
        f"{one['difference']:+.4f} (95 % interval {one['low']:+.4f} to {one['high']:+.4f}, p {one['p_value']:.4f},"
        f" {one['better']} better, {one['worse']} worse)"
    )
