"""`docwell sources`: where documents come from."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli import output
from infra.cli.context import owner_connection
from ingest_worker.catalogue import overview
from ingest_worker.catalogue.overview import SourceRow

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Where documents come from."""


@app.command("list")
def list_(namespace: output.NamespaceOption = None, as_json: output.JsonOption = False) -> None:
    """List the sources with their documents."""
    with owner_connection() as connection:
        rows = overview.list_sources(connection, namespace=namespace)
    if as_json:
        output.print_json_list("sources", rows)
        return
    output.print_table(
        ["name", "type", "namespace", "documents", "searchable", "newest sweep", "root", "error"],
        ([s.name, s.type, s.namespace, s.documents, s.searchable, s.newest_sweep, s.root, s.sweep_error] for s in rows),
        empty="No sources yet: `docwell up` makes the inbox.",
    )


@app.command("show")
def show(name: Annotated[str, typer.Argument(help="The source's name.")], as_json: output.JsonOption = False) -> None:
    """Show one source with its documents by state."""
    with owner_connection() as connection:
        found = overview.get_source(connection, name)
    if as_json:
        output.print_json(found)
        return
    facts = {field: getattr(found, field) for field in SourceRow.__dataclass_fields__ if field != "by_state"}
    output.print_facts([*facts.items(), *sorted(found.by_state.items())])
