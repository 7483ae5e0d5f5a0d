"""`docwell config show`, `migrate` and `mcp-config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import SecretStr

from infra.cli.context import settings as attached_settings
from infra.local.banner import docwell_program, stdio_command
from shared.config import Settings, load_settings

app = typer.Typer(no_args_is_help=True, help="The settings in force.")


@app.callback()
def _group() -> None:
    """The settings in force."""


@app.command("show")
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Show where each setting comes from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Print every setting; secrets are masked."""
    settings, origins = load_settings()
    rows = {
        name: {"value": _plain(getattr(settings, name)), "origin": origins.get(name, "default")} for name in Settings.model_fields
    }
    if as_json:
        print(json.dumps({"settings": rows}, ensure_ascii=False))
        return
    for name, row in rows.items():
        line = f"{name} = {json.dumps(row['value'], ensure_ascii=False)}"
        print(f"{line}  # {row['origin']}" if origin else line)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "model_dump"):
        return {name: _plain(one) for name, one in value.model_dump().items()}
    return value


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Only say what is pending; exit 1 when something is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Bring the database's schema up to date."""
    from infra import migrate as migrations

    settings = attached_settings()
    if settings.database_url is None:
        raise typer.BadParameter("DOCWELL_DATABASE_URL is not set.")
    url = settings.database_url.get_secret_value()
    reader = settings.query_database_url
    reader_url = None if reader is None else reader.get_secret_value()
    names = migrations.pending(url) if check else migrations.migrate(url, reader_url)
    if as_json:
        print(json.dumps({"pending" if check else "applied": names}))
    else:
        word = "Pending" if check else "Applied"
        print(f"{word}: {', '.join(names)}" if names else "The schema is up to date.")
    if check and names:
        raise typer.Exit(1)


def mcp_config(
    client: Annotated[Literal["claude-code", "claude-desktop"], typer.Option(help="Whose configuration.")] = "claude-code",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Print what connects an MCP client to this installation."""
    settings, _ = load_settings()
    if client == "claude-code" and not as_json:
        print(stdio_command(settings))
        return
    server = {
        "command": docwell_program(),
        "args": ["mcp", "--transport", "stdio"],
        "env": {"DOCWELL_HOME": str(settings.home)},
    }
    print(json.dumps({"mcpServers": {"docwell": server}}, indent=None if as_json else 2, ensure_ascii=False))
