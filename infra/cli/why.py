"""`docwell why`: why a document is, or is not, found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from infra.cli import output
from infra.cli.context import owner_connection, settings

if TYPE_CHECKING:
    from infra.why.stage import Answer

_MARKS = {"ok": ("ok", "green"), "stopped": ("stopped here", "red"), "unknown": ("unknown", "yellow")}


def why(
    document: Annotated[str, typer.Argument(help="Its id, path, file name or URL, or a file on disk.")],
    query: Annotated[str, typer.Option(help="The question that should find it.")] = "",
    as_: Annotated[str, typer.Option("--as", help="Through whose eyes: user:NAME, group:NAME or everyone.")] = "",
    namespace: Annotated[str, typer.Option(help="As of a search: only this namespace.")] = "",
    path: Annotated[str, typer.Option(help="As of a search: only paths that match this glob.")] = "",
    source: Annotated[str, typer.Option(help="As of a search: only this source.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="As of a search: only documents with this tag.")] = None,
    mode: Annotated[Literal["hybrid", "semantic", "keyword"], typer.Option(help="As of a search: which legs look.")] = "hybrid",
    limit: Annotated[int, typer.Option(min=1, max=50, help="As of a search: the most passages.")] = 5,
    max_tokens: Annotated[int, typer.Option(min=50, max=100_000, help="As of a search: what the passages may take.")] = 4000,
    as_json: output.JsonOption = False,
) -> None:
    """Say why a document is, or is not, found: each stage from ignore rule to rank, with evidence and cure."""
    from infra.why.asked import principal_of
    from infra.why.examine import Question, examine
    from query_server.assembly import open_service
    from query_server.retrieve.filters import make_filters

    with output.usage_errors():
        principal_of(as_)
        filters = make_filters(namespace=namespace, path=path, source=source, tags=tag or [])
    question = Question(
        name=document,
        query=query.strip(),
        principal=as_,
        filters=filters,
        limit=limit,
        mode=mode,
        max_tokens=max_tokens,
    )
    current = settings()
    with output.usage_errors(), owner_connection() as connection, open_service(current) as service:
        answer = examine(connection, service, current, question, directory=Path.cwd())
    if as_json:
        output.print_json(answer)
    else:
        _show(answer)


def _show(answer: Answer) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, soft_wrap=True)
    if answer.document_id is not None:
        where = f"{answer.source}:{answer.namespace}:{answer.path}"
        console.print(Text(output.plain(f"{where} ({answer.state}, id {answer.document_id})"), style="bold"))
    else:
        console.print(Text(output.plain(answer.path or answer.document), style="bold"))
    for stage in answer.stages:
        mark, colour = _MARKS[stage.verdict.value]
        first, *rest = stage.evidence or ("",)
        console.print(Text(f"{mark:<13}", style=colour) + Text(f"{stage.stage}: {output.plain(first)}"))
        for line in rest:
            console.print(Text(" " * 13 + output.plain(line)))
        if stage.cure is not None:
            console.print(Text(" " * 13 + f"cure: {output.plain(stage.cure)}"))
    console.print(Text(_verdict(answer)))


def _verdict(answer: Answer) -> str:
    if answer.found:
        return "Nothing stops it: it is found."
    if answer.stopped_at is None:
        return "No stage stops it, but not every one could be judged."
    return f"It stops at: {answer.stopped_at}."
