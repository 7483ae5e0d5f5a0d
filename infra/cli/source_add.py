"""`docwell sources add` and what `--dry-run` shows: a source is tried before it is configured."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import Connection
from pydantic import TypeAdapter, ValidationError

from infra.cli import output
from shared.config import DEFAULT_CONFIG, PREFIX, ConnectionSettings, FolderSettings, Settings, SourceSettings, load_settings
from shared.errors import ConfigurationError, PermanentError
from shared.source_settings import BUILT_IN, OtherSettings, PushSettings, plain_keys, secret_keys

_TABLE: TypeAdapter[SourceSettings] = TypeAdapter(SourceSettings)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="With --dry-run: list about so many things at most.")]


def add(
    name: Annotated[str, typer.Argument(help="How answers and commands call it.")],
    kind: Annotated[str, typer.Option("--type", help="folder, confluence, sharepoint, push, or what another package offers.")],
    root: Annotated[Path | None, typer.Option(help="The folder, for the type folder.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Where its documents belong; `default` without it.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag of all of its documents; may be repeated.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="Who may read it: user:NAME or group:NAME; may be repeated.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the table, such as base_url=https://… or api_token_file=PATH; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and write nothing.")] = False,
    limit: LimitOption = 1000,
    as_json: output.JsonOption = False,
) -> None:
    """Try a source, and write it into docwell.toml. Secrets are given as files: `--set api_token_file=PATH`."""
    general, _ = load_settings()
    if name in {source.name for source in general.sources}:
        raise ConfigurationError(f"A source {name!r} is configured already. Give this one another name.", code="source_exists")
    table = _table(name, kind, root=root, namespace=namespace, tags=tag, readers=reader, pairs=set_ or [])
    chosen = _validated(table)
    # Nothing can be listed of what is pushed.
    found = None if isinstance(chosen, PushSettings) else asdict(try_source(chosen, general, most=limit if dry_run else 1))
    path = config_path()
    if not dry_run:
        write_table(path, table)
    if as_json:
        output.print_json({"source": name, "type": kind, "written": None if dry_run else str(path), "preview": found})
    elif found is None:
        print(f"The table of what is pushed {'fits' if dry_run else f'stands in {path}'}.")
        print("Docwell, or its workers, have to start again to heed it.", file=sys.stderr)
    elif dry_run:
        print_preview(name, found)
    else:
        print(f"Source {name} can be read, and stands in {path}.")
        print("Restart Docwell, or its watcher, to take it in. `docwell sources show` then tells how far it is.", file=sys.stderr)


def config_path() -> Path:
    """The configuration that commands in this folder read."""
    return Path.cwd() / (os.environ.get(PREFIX + "CONFIG") or DEFAULT_CONFIG)


def _table(
    name: str,
    kind: str,
    *,
    root: Path | None,
    namespace: str | None,
    tags: Sequence[str] | None,
    readers: Sequence[str] | None,
    pairs: Sequence[str],
) -> dict[str, Any]:
    table: dict[str, Any] = {"name": name, "type": kind}
    if root is not None:
        table["root"] = str(root.expanduser().resolve())
    if namespace is not None:
        table["namespace"] = namespace
    if tags:
        table["tags"] = list(tags)
    if readers:
        table["readers"] = list(readers)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--set {pair!r}: write KEY=VALUE.")
        if key in secret_keys(kind):
            raise ConfigurationError(
                f"{key} is a secret: it would stay in the shell's history. Write it into a file, and give --set {key}_file=PATH."
            )
        table[key] = str(Path(value).expanduser().resolve()) if key.endswith("_file") else _typed(kind, key, value)
    return table


def _typed(kind: str, key: str, value: str) -> Any:
    """A value as TOML would have it: a number or a truth value where the key holds one, all else a text.

    A space may be called `2026` or `INF`. What the keys of another maker's type hold is not known: there the looks decide.
    """
    if key not in plain_keys(kind) and (kind in BUILT_IN or key in OtherSettings.model_fields):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if _NUMBER.fullmatch(value) is None:
        return value
    return float(value) if "." in value else int(value)


def _validated(table: Mapping[str, Any]) -> Any:
    try:
        return _TABLE.validate_python(dict(table))
    except ValidationError as error:
        said = "; ".join(
            ".".join(str(part) for part in item["loc"][1:]) + (": " if item["loc"][1:] else "") + item["msg"]
            for item in error.errors(include_input=False, include_url=False)
        )
        raise ConfigurationError(f"Source {table['name']} does not fit. {said}.") from None


def try_source(chosen: Any, general: Settings, *, most: int, connection: Connection[Any] | None = None) -> Any:
    """List something of a source, compared with what `connection` knows of it.

    Raises:
        PermanentError, TransientError: it cannot be asked; the message says what to do.
    """
    from ingest_worker.sources.pace import Pace, make_client
    from ingest_worker.sources.preview import preview
    from ingest_worker.sources.registry import open_source

    limit = chosen.max_bytes or general.max_bytes
    now = datetime.now(UTC)
    if isinstance(chosen, FolderSettings):
        from ingest_worker.sources.folder import FolderSource

        return preview(FolderSource(chosen, general), max_bytes=limit, most=most, now=now)
    with make_client(Pace().limiter(chosen), threading.Event()) as client:
        opened = open_source(chosen, client=client, clock=lambda: datetime.now(UTC))
        with closing(opened):
            return preview(opened, max_bytes=limit, most=most, now=now, **_comparison(chosen, connection))


def _comparison(chosen: ConnectionSettings, connection: Connection[Any] | None) -> dict[str, Any]:
    """What `preview` compares with: nothing for a source that is not followed yet."""
    from ingest_worker.catalogue import remote_items
    from ingest_worker.catalogue.sources import get_source
    from ingest_worker.sources.store import Shelf

    row = None if connection is None else get_source(connection, chosen.name)
    if connection is None or row is None:
        return {}
    held, source_id = connection, row.source_id
    return {
        "facts": Shelf(source=row, listing=0, permissions=chosen.permissions).facts,
        "known": lambda keys: remote_items.known(held, source_id, keys),
        "known_total": remote_items.count(held, source_id)["known"],
    }


def preview_configured(name: str, connection: Connection[Any], *, most: int, as_json: bool) -> None:
    """What the configured source of this name would give now, compared with what is known of it."""
    general, _ = load_settings()
    chosen = next((source for source in general.sources if source.name == name), None)
    if chosen is None and name == "inbox":
        chosen = FolderSettings(name="inbox", root=general.inbox)
    if isinstance(chosen, PushSettings):
        raise PermanentError("What is pushed comes by itself: there is nothing to ask.", code="not_configured")
    if chosen is None:
        raise PermanentError(f"Source {name} does not stand in {config_path()}, so it cannot be asked.", code="not_configured")
    found = asdict(try_source(chosen, general, most=most, connection=connection))
    if as_json:
        output.print_json({"source": name, "preview": found})
    else:
        print_preview(name, found)


def print_preview(name: str, found: Mapping[str, Any]) -> None:
    """For people."""
    endings = ", ".join(f"{count} {ending}" for ending, count in found["by_ending"].items())
    facts = [
        ("source", name),
        ("listed", f"{found['items']}" + ("" if found["whole"] else " (there are more; raise --limit)")),
        ("the source says it has", found["total"]),
        ("bytes, where told", found["size"]),
        ("by ending", endings),
        *((field.replace("_", " "), found[field]) for field in ("too_large", "restricted")),
        *((field, found[field]) for field in ("new", "changed", "facts", "moved", "unchanged", "gone")),
        ("could not be told", found["failed"] or None),
        ("the first", ", ".join(found["examples"])),
        *(("failed", failure) for failure in found["failures"]),
    ]
    output.print_facts([(label, value) for label, value in facts if value not in (None, "")])


def write_table(path: Path, table: Mapping[str, Any]) -> None:
    """Add a `[[sources]]` table to a configuration; its comments and its order stay.

    Raises:
        ConfigurationError: the file is no TOML, or cannot be written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
        tables = document.get("sources")
        if tables is None:
            tables = tomlkit.aot()
            document.append("sources", tables)
        entry: Any = (
            tomlkit.table() if hasattr(tables, "body") or isinstance(tables, tomlkit.items.AoT) else tomlkit.inline_table()
        )
        for key, value in table.items():
            entry.add(key, value)
        tables.append(entry)
        written = path.with_name(path.name + ".new")
        written.write_text(tomlkit.dumps(document), encoding="utf-8")
        if path.exists():
            written.chmod(path.stat().st_mode & 0o777)
        written.replace(path)
    except (OSError, TOMLKitError) as error:
        raise ConfigurationError(f"The source could not be written into {path}: {error}.") from error
