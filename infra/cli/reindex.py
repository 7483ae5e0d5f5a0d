"""`docwell reindex`: another embedding model, while everything runs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

import typer
from psycopg import Connection

from infra.cli import output
from infra.cli.context import owner_connection, settings
from ingest_worker.reindexing import control
from ingest_worker.reindexing.control import Reindex
from shared.embedding.endpoint import Endpoint, endpoint_of

app = typer.Typer(no_args_is_help=False, help="Change the embedding model while everything runs, and go back.")

_LOOK_SECONDS = 2.0


@app.callback(invoke_without_command=True)
def begin(
    context: typer.Context,
    model: Annotated[str | None, typer.Option(help="The new model, as its server calls it.")] = None,
    provider: Annotated[
        Literal["local", "openai"] | None, typer.Option(help="Where it runs; that of the settings without it.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Its server, up to and with /v1; that of the settings without it.")] = None,
    api_version: Annotated[str | None, typer.Option(help="Azure's api-version.")] = None,
    dimension: Annotated[
        int | None, typer.Option(min=1, max=4000, help="Numbers in a vector, where the model has a choice.")
    ] = None,
    query_prefix: Annotated[str, typer.Option(help="What is put before a question.")] = "",
    passage_prefix: Annotated[str, typer.Option(help="What is put before a passage.")] = "",
    model_path: Annotated[
        str | None, typer.Option(help="With --provider local: a folder with model.onnx and tokenizer.json.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="The server has another model under the same name by now.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only say what it would take.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is filled; Ctrl-C stops only the waiting.")] = False,
    as_json: output.JsonOption = False,
) -> None:
    """Fill a second index with another model in the background. Searches use the old one until `docwell reindex switch`."""
    if context.invoked_subcommand is not None:
        return
    current = settings()
    if model is None and provider != "local":
        raise typer.BadParameter("Name the model: docwell reindex --model text-embedding-3-large")
    own = endpoint_of(current)
    endpoint = Endpoint(
        provider=provider or own.provider,
        model=model,
        base_url=base_url or (own.base_url if (provider or own.provider) == own.provider else None),
        api_version=api_version or (own.api_version if base_url is None else None),
        dimension=dimension,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        model_path=model_path,
        again=datetime.now(UTC).strftime("%Y-%m-%d %H:%M") if again else "",
    )
    if endpoint.provider == "local":
        if model is not None and model_path is None:
            raise typer.BadParameter(
                f"A local model is named by its folder: --provider local --model-path /path/to/model. For {model} of a server add"
                " --provider openai --base-url URL, up to and with /v1."
            )
        endpoint = Endpoint(provider="local", model_path=model_path)
    with owner_connection() as connection:
        if estimate:
            found = control.estimate(connection, endpoint, current)
            if as_json:
                output.print_json(found)
            else:
                kept = f" {found.kept_here} of them stay here, by their sources." if found.kept_here else ""
                print(f"{found.passages} passages, about {found.tokens:,} tokens of {found.model}{_price(found.money)}.{kept}")
            return
        begun: Reindex | None = control.start(connection, endpoint, current)
        if wait:
            begun = _wait(connection)
    _print(begun, as_json=as_json)


@app.command()
def status(
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it is filled.")] = False, as_json: output.JsonOption = False
) -> None:
    """Show the open reindex: how far it is, and what is still to be paid."""
    with owner_connection() as connection:
        found = _wait(connection) if wait else control.status(connection, settings())
    _print(found, as_json=as_json)


@app.command()
def pause() -> None:
    """Stop asking the second model; what is filled stays."""
    with owner_connection() as connection:
        control.pause(connection, paused=True)
    print("Paused. `docwell reindex resume` goes on.")


@app.command()
def resume() -> None:
    """Go on filling."""
    with owner_connection() as connection:
        control.pause(connection, paused=False)
    print("It goes on when workers have no job to do.")


AcceptMissingOption = Annotated[
    bool,
    typer.Option("--accept-missing", help="Passages that the model has refused are found by their words alone from then on."),
]


@app.command()
def retry() -> None:
    """Ask models again for the passages that they have refused."""
    with owner_connection() as connection:
        count = control.retry(connection)
    print(f"{count} passages are asked for again when workers have no job to do.")


@app.command()
def switch(accept_missing: AcceptMissingOption = False) -> None:
    """Let searches use the new model, in one step for all servers. Refused while passages lack vectors."""
    with owner_connection() as connection:
        model = control.switch(connection, accept_missing=accept_missing)
    print(
        f"Searches use {model} now. The former model is kept up: `docwell reindex back` returns to it, `docwell reindex drop`"
        " removes it. `docwell doctor` says which settings to change."
    )


@app.command()
def back(accept_missing: AcceptMissingOption = False) -> None:
    """Return to the model that searches used before."""
    with owner_connection() as connection:
        model = control.switch(connection, back=True, accept_missing=accept_missing)
    print(f"Searches use {model} again.")


@app.command()
def drop(yes: output.YesOption = False) -> None:
    """End the reindex: remove the vectors that searches do not use."""
    with owner_connection() as connection:
        found = control.status(connection, settings())
        if found is not None:
            said = "There is no way back to it then." if found.state == "kept" else "They were paid for, maybe."
            output.confirm(f"Remove the vectors of {found.model} ({found.filled} passages)? {said}", yes=yes)
        model = control.drop(connection)
    print(f"The vectors of {model} go within minutes.")


@app.command()
def adopt() -> None:
    """Take over the name by which the settings call the model of the index: same vectors, another name."""
    with owner_connection() as connection:
        model = control.adopt(connection, settings())
    print(f"The model of the index is called {model} now. Nothing was embedded again.")


def _wait(connection: Connection[tuple[object, ...]]) -> Reindex | None:
    current = settings()
    while True:
        found = control.status(connection, current)
        if found is None or found.state == "paused" or not found.lacking:
            return found
        time.sleep(_LOOK_SECONDS)


def _print(found: Reindex | None, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"reindex": found})
        return
    if found is None:
        print("No reindex is open.")
        return
    output.print_facts(
        [
            ("state", found.state),
            ("searches use", found.active),
            ("beside it", f"{found.model} ({found.provider}, {found.dimension} dimensions)"),
            ("filled", f"{found.filled} of {found.passages} passages"),
            ("to go", f"about {found.tokens:,} tokens{_price(found.money)}" if found.lacking else None),
            ("kept here", f"{found.kept_here} passages, whose sources have enrich = false" if found.kept_here else None),
            ("refused", f"{found.refused} passages, of {', '.join(found.refused_documents)}" if found.refused else None),
            ("problem", found.problem),
            ("since", found.since),
            ("next", _NEXT[found.state]),
        ]
    )


_NEXT = {
    "filling": "it goes on by itself, when workers have no job to do; `docwell reindex pause` stops it",
    "paused": "`docwell reindex resume` goes on",
    "ready": "`docwell reindex switch` lets searches use it",
    "kept": "`docwell reindex back` returns to it, `docwell reindex drop` removes it",
}


def _price(money: Decimal | None) -> str:
    if money is None:
        return ", at a price that is not set (see [prices] in docwell.toml)"
    return f", {money:.2f} by the prices that are set" if money else ""
