"""`docwell tokens`: who may ask from elsewhere, and what they may see."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from infra.cli import output
from infra.cli.context import owner_connection
from ingest_worker.catalogue import credentials
from shared.config import NAME_PATTERN

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The token's name, as lists and logs show it.")]
_AGE = re.compile(r"(\d+)([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@app.callback()
def _group() -> None:
    """Bearer tokens of both servers."""


@app.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        Literal["search", "ingest", "admin"],
        typer.Option(help="search: the MCP server. ingest: the API. admin: both, and documents whatever their readers."),
    ] = "search",
    namespace: Annotated[list[str] | None, typer.Option(help="Only this namespace; may be repeated. All without it.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Sees what `group:NAME` may read; may be repeated.")] = None,
    user: Annotated[list[str] | None, typer.Option(help="Sees what `user:NAME` may read; may be repeated.")] = None,
    expires: Annotated[str | None, typer.Option(help="When it ends: 12h, 90d, 4w, or 2027-01-31. Never without it.")] = None,
    as_json: output.JsonOption = False,
) -> None:
    """Make a token and show it, once: only its hash is kept."""
    for given in [name, *(namespace or [])]:
        if re.fullmatch(NAME_PATTERN, given) is None:
            raise typer.BadParameter(f"{given!r} is no name: small letters, digits, `.`, `_` and `-`, up to 63 of them.")
    names = [f"group:{one}" for one in group or ()] + [f"user:{one}" for one in user or ()]
    with owner_connection() as connection:
        token = credentials.create_token(
            connection,
            name,
            scope=scope,
            namespaces=namespace or None,
            names=None if scope == "admin" and not names else names,
            expires_at=None if expires is None else _moment(expires, datetime.now(UTC)),
        )
    if as_json:
        output.print_json({"name": name, "scope": scope, "token": token})
        return
    print(token)
    print("It is shown this once. Send it as `Authorization: Bearer …`.", file=sys.stderr)


@app.command("list")
def list_(as_json: output.JsonOption = False) -> None:
    """List the tokens; their secrets are not known here."""
    with owner_connection() as connection:
        rows = credentials.list_tokens(connection)
    if as_json:
        output.print_json_list("tokens", rows, None)
        return
    output.print_table(
        ["name", "scope", "namespaces", "sees as", "state", "expires", "created"],
        (
            [
                row.name,
                row.scope,
                "all" if row.namespaces is None else ", ".join(row.namespaces),
                "everybody" if row.names is None else ", ".join(row.names),
                row.state,
                row.expires_at,
                row.created_at,
            ]
            for row in rows
        ),
        empty="No tokens. `docwell tokens create NAME` makes one.",
    )


@app.command("revoke")
def revoke(name: NameArgument, yes: output.YesOption = False) -> None:
    """Let a token hold no longer, within seconds, at every server."""
    output.confirm(f"Revoke the token {name!r}? Whoever uses it is shut out.", yes=yes)
    with owner_connection() as connection:
        credentials.revoke_token(connection, name)
    print(f"The token {name!r} holds no longer.", file=sys.stderr)


def _moment(text: str, now: datetime) -> datetime:
    aged = _AGE.fullmatch(text.strip())
    if aged is not None:
        return now + int(aged[1]) * _UNITS[aged[2]]
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time. Write 12h, 90d, 4w, 2027-01-31 or 2027-01-31T10:00:00Z.") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if moment <= now:
        raise typer.BadParameter(f"{text!r} lies in the past.")
    return moment
