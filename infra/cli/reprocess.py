"""`docwell reprocess`: documents that an older parser has read are read again."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli import output
from infra.cli.context import owner_connection, settings
from ingest_worker import reprocessing
from ingest_worker.reprocessing import Plan


def reprocess(
    namespace: output.NamespaceOption = None,
    source: output.SourceOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say which, and what it would take.")] = False,
    yes: output.YesOption = False,
    as_json: output.JsonOption = False,
) -> None:
    """Read documents again that an older parser, chunker or prompt has read. An upgrade alone never does."""
    current = settings()
    with owner_connection() as connection:
        found = reprocessing.make_plan(connection, current, namespace=namespace, source=source)
        if plan or not found.documents:
            if as_json:
                output.print_json(found)
            else:
                _print(found)
            return
        if not as_json:
            _print(found)
        output.confirm(f"Read {found.documents} documents again?", yes=yes)
        queued = reprocessing.request(connection, current, namespace=namespace, source=source)
    output.make_wake()(queued)
    if as_json:
        output.print_json({"queued": queued})
    else:
        print(f"{queued} documents are queued, behind what comes meanwhile. What they were found by is served until then.")


def _print(found: Plan) -> None:
    if not found.documents:
        print("Every document was read by the parser, chunker and prompt of this installation.")
        return
    output.print_table(
        ["source", "namespace", "older parser", "older prompt", "chunks", "tokens"],
        ([one.source, one.namespace, one.parsed, one.prompted, one.chunks, one.tokens] for one in found.older),
        empty="",
    )
    money = "at a price that is not set" if found.embedding_money is None else f"{found.embedding_money:.2f} by the prices set"
    calls = f", and {found.context_calls} calls for contexts" if found.context_calls else ""
    calls += f", and {found.caption_calls} calls for captions" if found.caption_calls else ""
    print(
        f"At most, if every passage changed: {found.tokens:,} tokens to embed with {found.embedding_model} ({money}){calls}."
        " Passages that stay the same cost nothing."
    )
