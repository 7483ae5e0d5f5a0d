"""`docwell ingest`: take files in by hand, and show how they come along."""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.context import owner_connection, settings
from shared.config import NAME_PATTERN, Settings
from shared.text import visible

if TYPE_CHECKING:
    from psycopg import Connection

    from ingest_worker.catalogue.left_out import Why
    from ingest_worker.intake.manual import Ended

RESULTS = ("indexed", "unchanged", "partial", "needs_ocr", "skipped", "failed")
_POLL_SECONDS = 0.1


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files, or folders with all that is below them.")],
    namespace: Annotated[str, typer.Option(help="The namespace to take them into.")] = "default",
    tag: Annotated[list[str] | None, typer.Option(help="A tag for each of them; may be repeated.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until each is finished.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and why.")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Only say what it would cost: chunks, tokens and money, from a dry parse.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Take files or folders into the source `manual`; no sweep ever deletes those."""
    from ingest_worker.catalogue import twins
    from ingest_worker.intake.manual import find_files
    from ingest_worker.intake.names import name_rules

    if re.fullmatch(NAME_PATTERN, namespace) is None:
        raise typer.BadParameter(f"{namespace!r} is no namespace: small letters, digits, '.', '_' and '-', at most 63.")
    if any("," in one or not one.strip() for one in tag or []):
        raise typer.BadParameter("A tag is not empty and holds no comma; repeat --tag for several.")
    current = settings()
    began = time.monotonic()
    left_out: dict[str, Why] = {}
    files = list(find_files(paths, names=name_rules(current), left_out=left_out))
    with owner_connection() as connection:
        if estimate:
            _say_estimate(connection, files, current, namespace=namespace, as_json=as_json)
            return
        if dry_run:
            _say_intentions(connection, files, left_out, current, namespace=namespace, as_json=as_json)
            return
        if left_out:
            print(f"{len(left_out)} entries below the folders are not taken; --dry-run says which and why.", file=sys.stderr)
        jobs = _request(connection, files, current, namespace=namespace, tags=tag or [])
        if not wait:
            _say_queued(jobs, as_json=as_json)
            return
        ended = _follow(connection, jobs, quiet=as_json)
        originals = twins.originals(connection, [one.job_id for one in ended])
    _summarise(ended, originals, files=len(files), seconds=time.monotonic() - began, as_json=as_json)
    if any(_result(one) == "failed" for one in ended):
        raise typer.Exit(1)


def _request(
    connection: Connection[Any], files: Sequence[Path], current: Settings, *, namespace: str, tags: Sequence[str]
) -> dict[str, uuid.UUID]:
    from ingest_worker.intake.manual import BATCH, request_files
    from ingest_worker.jobs.celery_app import make_app
    from ingest_worker.jobs.wake import celery_wake

    wake = celery_wake(make_app(current), most=current.worker_concurrency or 4)
    jobs: dict[str, uuid.UUID] = {}
    for start in range(0, len(files), BATCH):
        asked = request_files(
            connection, files[start : start + BATCH], namespace=namespace, tags=tags, max_attempts=current.job_attempts
        )
        wake(len(asked))
        jobs |= asked
    return jobs


def _follow(connection: Connection[Any], jobs: dict[str, uuid.UUID], *, quiet: bool) -> list[Ended]:
    ended: list[Ended] = []
    with Meter(len(jobs), quiet=quiet) as advance:
        for one in _finished(connection, list(jobs.values())):
            ended.append(one)
            advance(one)
    return ended


def _finished(connection: Connection[Any], waiting: list[uuid.UUID]) -> Iterator[Ended]:
    from ingest_worker.intake.manual import BATCH, ended_jobs

    while waiting:
        done: set[uuid.UUID] = set()
        for one in ended_jobs(connection, waiting[:BATCH]):
            done.add(one.job_id)
            yield one
        waiting = [job for job in waiting if job not in done]
        if not done:
            time.sleep(_POLL_SECONDS)


class Meter:
    """A progress bar on a terminal, plain lines elsewhere; both on stderr."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._bar: Any = None

    def __enter__(self) -> Any:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self._advance

    def _advance(self, one: Ended) -> None:
        self._done += 1
        line = f"{_result(one)}: {one.path}" + (f" ({one.reason})" if one.reason and _result(one) not in ("indexed",) else "")
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=visible(Path(one.path).name))
            if _result(one) not in ("indexed", "unchanged"):
                self._bar.console.print(visible(line), markup=False, highlight=False)
        elif not self._quiet:
            print(f"[{self._done}/{self._total}] {visible(line)}", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _result(one: Ended) -> str:
    return one.result or ("failed" if one.state == "dead" else one.state)


def _summarise(ended: Sequence[Ended], originals: Mapping[uuid.UUID, str], *, files: int, seconds: float, as_json: bool) -> None:
    counts = Counter(_result(one) for one in ended)
    fresh = [one for one in ended if one.embedded is not None]
    summary: dict[str, Any] = {name: counts.pop(name, 0) for name in RESULTS}
    summary |= dict(counts)
    if files > len(ended):
        summary["excluded"] = files - len(ended)
    if originals:
        summary["duplicates"] = len(originals)
    summary["chunks"] = sum(one.chunks or 0 for one in fresh)
    summary["embedded"] = sum(one.embedded or 0 for one in fresh)
    summary["reused"] = summary["chunks"] - summary["embedded"]
    summary["seconds"] = round(seconds, 2)
    if as_json:
        documents = [
            {
                "path": one.path,
                "job_id": str(one.job_id),
                "result": _result(one),
                "reason": one.reason,
                "duplicate_of": originals.get(one.job_id),
            }
            for one in ended
        ]
        print(json.dumps({"summary": summary, "documents": documents}, ensure_ascii=False))
        return
    for one in ended:
        if one.job_id in originals:
            twin = visible(originals[one.job_id])
            print(f"{visible(one.path)} has the same bytes as {twin}; both are searched.", file=sys.stderr)
    print(", ".join(f"{value} {name}" for name, value in summary.items()))


def _say_queued(jobs: dict[str, uuid.UUID], *, as_json: bool) -> None:
    if as_json:
        rows = [{"path": path, "job_id": str(job)} for path, job in jobs.items()]
        print(json.dumps({"jobs": rows}, ensure_ascii=False))
    else:
        print(f"{len(jobs)} queued. `docwell jobs list` shows how they come along.")


def _say_intentions(
    connection: Connection[Any],
    files: Sequence[Path],
    left_out: Mapping[str, Why],
    current: Settings,
    *,
    namespace: str,
    as_json: bool,
) -> None:
    from ingest_worker.intake.manual import Intention, intend

    intentions = [
        *(intend(connection, file, namespace=namespace, max_bytes=current.max_bytes) for file in files),
        *(Intention(path=path, action="left_out", reason=why.rule) for path, why in left_out.items()),
    ]
    if as_json:
        rows = [{"path": one.path, "action": one.action, "reason": one.reason} for one in intentions]
        print(json.dumps({"documents": rows}, ensure_ascii=False))
        return
    for one in intentions:
        print(f"{one.action}: {visible(one.path)} ({visible(one.reason)})")


def _say_estimate(
    connection: Connection[Any], files: Sequence[Path], current: Settings, *, namespace: str, as_json: bool
) -> None:
    from infra.cli.costs import estimate_files, print_estimate

    found = estimate_files(connection, files, current, namespace=namespace)
    if as_json:
        print(json.dumps({"estimate": found}, ensure_ascii=False))
    else:
        print_estimate(found)
