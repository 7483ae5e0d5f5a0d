"""How commands print: one JSON document, a table on a terminal, lines with tabs elsewhere. And how they ask."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from ingest_worker.catalogue.asking import BadQuestion, Filters, known_states, parse_since
from ingest_worker.catalogue.json_form import as_json, utc_text
from shared.errors import ConfigurationError, PermanentError
from shared.text import visible

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. What can be undone never asks.")]
NamespaceOption = Annotated[str | None, typer.Option(help="Only this namespace.")]
SourceOption = Annotated[str | None, typer.Option(help="Only this source.")]
StateOption = Annotated[list[str] | None, typer.Option(help="Only this state; may be repeated.")]
SinceOption = Annotated[
    str | None, typer.Option(help="Only what happened since: 2026-11-29, 2026-11-29T10:00:00Z, or how long ago: 15m, 2h, 7d.")
]
PathOption = Annotated[str | None, typer.Option(help="Only this path, what is below this folder, or what matches this glob.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many rows; all without it.")]
CursorOption = Annotated[str | None, typer.Option(help="Go on where a list with --limit ended: its `next_cursor`.")]

_WRONG_USAGE = {"bad_argument", "bad_cursor"}


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns a question that cannot be understood into wrong usage (exit code 2)."""
    try:
        yield
    except PermanentError as error:
        if isinstance(error, BadQuestion) or error.code in _WRONG_USAGE:
            raise typer.BadParameter(str(error)) from error
        raise


def make_filters(
    *,
    states: type[StrEnum] | None = None,
    namespace: str | None = None,
    source: str | None = None,
    state: Sequence[str] | None = None,
    since: str | None = None,
    path: str | None = None,
) -> Filters:
    """The filters that the options of a list mean."""
    with usage_errors():
        return Filters(
            namespace=namespace,
            source=source,
            states=known_states(state or (), states) if states is not None else (),
            since=None if since is None else parse_since(since, now=datetime.now(UTC)),
            path=path,
        )


def print_json(value: Any) -> None:
    """One JSON document and nothing else."""
    print(json.dumps(as_json(value), ensure_ascii=False))


def print_json_list(noun: str, rows: Iterable[Any], next_cursor: str | None = None, **more: Any) -> None:
    """`{"<noun>": [...], "next_cursor": ...}`, written row by row."""
    out = sys.stdout
    out.write(f'{{"{noun}": [')
    for number, row in enumerate(rows):
        out.write(("" if number == 0 else ", ") + json.dumps(as_json(row), ensure_ascii=False))
    tail = json.dumps({"next_cursor": next_cursor, **as_json(more)}, ensure_ascii=False)
    out.write("], " + tail[1:] + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A table on a terminal; elsewhere a heading and a line for each row, with tabs between the cells.

    `empty` is said, on stderr, when there are no rows.
    """
    lines = [[plain(cell) for cell in row] for row in rows]
    if not lines:
        print(empty, file=sys.stderr)
        return
    if sys.stdout.isatty():
        _draw(columns, lines)
        return
    for line in ([name.upper() for name in columns], *lines):
        print("\t".join(line))


def _draw(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        # An id that is cut, or broken over lines, cannot be pasted into the next command.
        table.add_column(name, overflow="fold", no_wrap=name in {"id", "document", "job", "state"})
    for line in lines:
        table.add_row(*map(Text, line))
    Console(width=max(shutil.get_terminal_size().columns, 100)).print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """`name: value` lines, without those that are not known."""
    known = [(name, plain(value)) for name, value in facts if value not in (None, [], {}, ())]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        print(f"{name + ':':<{width + 2}}{value}")


def plain(value: Any) -> str:
    """A value on one line: nothing in a name or a message can move the cursor, turn other text round, or break a table."""
    if value is None or value in ([], {}, ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return utc_text(value.replace(microsecond=0))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    return visible(str(value))


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is taken away; goes on only after a yes.

    Raises:
        typer.BadParameter: nobody is there to be asked, and `--yes` was not given.
        typer.Abort: the answer was no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Nobody is here to be asked: add --yes to do it.")
    typer.confirm(question, abort=True, err=True)


def make_wake() -> Callable[[int], None]:
    """Wakes workers through the broker; without one the scheduler's next tick does."""
    from infra.cli.context import settings

    current = settings()
    try:
        from ingest_worker.jobs.celery_app import make_app
        from ingest_worker.jobs.wake import celery_wake

        return celery_wake(make_app(current), most=current.worker_concurrency or 4)
    except ConfigurationError as error:
        reason = str(error)
    return lambda _due: print(f"No worker was woken: {reason} The scheduler does it.", file=sys.stderr)
