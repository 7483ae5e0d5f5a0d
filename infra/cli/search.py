"""`docwell search`: the very code behind the MCP tool."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from infra.cli import output
from infra.cli.context import settings
from shared.text import visible


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    limit: Annotated[int, typer.Option(min=1, max=50, help="The most passages.")] = 5,
    namespace: Annotated[str, typer.Option(help="Only this namespace.")] = "",
    path: Annotated[str, typer.Option(help="Only paths that match this glob.")] = "",
    source: Annotated[str, typer.Option(help="Only this source.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only documents with this tag; may be repeated.")] = None,
    modified_after: Annotated[
        str,
        typer.Option(help="Only documents that their source changed at or after this time: 2026-11-29, 2026-11-29T10:00:00Z."),
    ] = "",
    modified_before: Annotated[str, typer.Option(help="Only documents that their source changed before this time.")] = "",
    kind: Annotated[
        list[str] | None, typer.Option(help="Only passages of this kind: text, table, code or caption; may be repeated.")
    ] = None,
    mode: Annotated[Literal["hybrid", "semantic", "keyword"], typer.Option(help="Which legs look.")] = "hybrid",
    hypothetical_answer: Annotated[
        str, typer.Option(help="A passage as a document would put the answer; it is looked for by meaning beside the query.")
    ] = "",
    max_tokens: Annotated[int, typer.Option(min=50, max=100_000, help="The most tokens that the passages may take.")] = 4000,
    cursor: Annotated[str, typer.Option(help="Go on where an answer ended: its `next_cursor`, all else unchanged.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Show where the answer and each passage's rank come from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What the MCP tool answers, as one JSON document.")] = False,
) -> None:
    """Find passages, each with its place in the file."""
    from query_server.assembly import open_service
    from query_server.retrieve.filters import make_filters

    kinds = kind or []
    if not query.strip():
        raise typer.BadParameter("The query is empty: give a question, or the words to look for.")
    with output.usage_errors():
        # Before anything has to run for it.
        make_filters(path=path, modified_after=modified_after, modified_before=modified_before, kinds=kinds)
    with output.usage_errors(), open_service(settings()) as service:
        answer: dict[str, Any] = service.search(
            query,
            limit=limit,
            namespace=namespace,
            path=path,
            source=source,
            tags=tag or [],
            modified_after=modified_after,
            modified_before=modified_before,
            kinds=kinds,
            mode=mode,
            hypothetical_answer=hypothetical_answer,
            max_tokens=max_tokens,
            cursor=cursor,
            explain=explain,
        )
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    _show(answer)


def _show(answer: dict[str, Any]) -> None:
    plain = output.plain
    if answer.get("message"):
        print(visible(answer["message"], lines=True))
    for rank, result in enumerate(answer["results"], start=1):
        legs = "+".join(result["matched_by"])
        print(f"{rank}. {plain(result['citation'])}  {plain(result['path'])}  ({legs}, {result['score']:.4f})")
        if result.get("section"):
            print(f"   {plain(result['section'])}")
        if result.get("also_in"):
            copies = (plain(f"{copy['citation']} {copy['path']}") for copy in result["also_in"])
            print(f"   also in {', '.join(copies)}")
        for line in result["text"].strip().splitlines():
            print(f"   {visible(line, lines=True)}")
        print()
    if answer.get("next_cursor"):
        print(f"There are more: --cursor {answer['next_cursor']}")
    for warning in answer.get("warnings", []):
        print(f"warning: {plain(warning['message'])}")
    if "explanation" in answer:
        from infra.cli.explanation import show_explanation

        show_explanation(answer)
