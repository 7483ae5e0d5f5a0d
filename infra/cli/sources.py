"""`docwell sources`: where documents come from, and what is asked of their watcher."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from psycopg import Connection

from infra.cli import output
from infra.cli.context import owner_connection, settings
from infra.cli.source_add import LimitOption, add, preview_configured
from ingest_worker.catalogue import held, left_out, overview, remote_items, remotes, source_state
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.overview import SourceRow
from ingest_worker.catalogue.sources import INBOX, MANUAL, PUSH, Source, get_source
from ingest_worker.sources.report import remote_report
from shared.config import ConnectionSettings
from shared.errors import PermanentError, ServiceUnavailable

app = typer.Typer(no_args_is_help=True)
app.command("add")(add)

_POLL_SECONDS = 0.2
_SAY_EVERY_SECONDS = 5.0

NameArgument = Annotated[str, typer.Argument(help="The source's name.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Ask the source what there is, and say what would be done.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the sweep has ended; exit 1 when it is not complete.")]
TimeoutOption = Annotated[float, typer.Option(min=0.1, help="With --wait: give up after so many seconds.")]


@app.callback()
def _group() -> None:
    """Where documents come from."""


@app.command("list")
def list_(namespace: output.NamespaceOption = None, as_json: output.JsonOption = False) -> None:
    """List the sources: how they are watched, when they were looked through, what they hold and leave out."""
    with owner_connection() as connection:
        rows = overview.list_sources(connection, namespace=namespace)
        addresses = _addresses(connection)
    if as_json:
        output.print_json_list("sources", ({**asdict(row), "address": addresses.get(row.name)} for row in rows))
        return
    output.print_table(
        ["name", "type", "namespace", "mode", "documents", "searchable", "newest sweep", "held", "left out", "where", "notice"],
        (
            [
                s.name,
                s.type,
                s.namespace,
                _mode(s),
                s.documents,
                s.searchable,
                s.newest_sweep,
                s.held_deletes,
                s.left_out,
                s.root or addresses.get(s.name),
                s.sweep_error or s.watch_notice,
            ]
            for s in rows
        ),
        empty="No sources yet: `docwell up` makes the inbox.",
    )


def _addresses(connection: Connection[Any]) -> dict[str, str]:
    """By name, where sources over the network are: as the settings here say it, else whom the watcher asks."""
    configured = [source for source in settings().sources if isinstance(source, ConnectionSettings)]
    return remotes.limiters(connection) | {source.name: source.address for source in configured}


def _mode(row: SourceRow) -> str | None:
    if row.removed_at is not None:
        return "removed"
    if row.paused:
        return "paused"
    if row.type in {MANUAL, PUSH}:
        return None
    return (row.watch_mode or "folder is away") if row.watched else "not watched"


@app.command("show")
def show(
    name: NameArgument,
    leaves_out: Annotated[bool, typer.Option("--left-out", help="List what is not taken, and the rule or reason.")] = False,
    holds: Annotated[bool, typer.Option("--held", help="List the documents whose deletion waits for approval.")] = False,
    fails: Annotated[bool, typer.Option("--failed", help="List what could not be taken from a source over the network.")] = False,
    dry_run: DryRunOption = False,
    limit: LimitOption = 1000,
    as_json: output.JsonOption = False,
) -> None:
    """Show one source: its documents by state, what its newest sweep found and left out, how far a remote one is followed."""
    if leaves_out + holds + fails + dry_run > 1:
        raise typer.BadParameter("Ask for one of --left-out, --held, --failed and --dry-run.")
    with owner_connection() as connection:
        if dry_run:
            # It may stand in docwell.toml only, until the watcher starts anew.
            preview_configured(name, connection, most=limit, as_json=as_json)
            return
        found = overview.get_source(connection, name)
        source_id = _source(connection, name).source_id
        if leaves_out:
            _show_left_out(connection, source_id, found, as_json=as_json)
        elif holds:
            _show_held(connection, source_id, found, as_json=as_json)
        elif fails:
            _show_failed(connection, source_id, found, as_json=as_json)
        else:
            _show_source(connection, found, as_json=as_json)


def _show_source(connection: Connection[Any], found: SourceRow, *, as_json: bool) -> None:
    report = remote_report(connection, _source(connection, found.name).source_id, datetime.now(UTC))
    address = _addresses(connection).get(found.name)
    if as_json:
        output.print_json({**asdict(found), "address": address} | ({} if report is None else {"remote": report}))
        return
    _print_source(found, address)
    if report is not None:
        output.print_facts([(field.replace("_", " "), value) for field, value in asdict(report).items()])


def _print_source(found: SourceRow, address: str | None) -> None:
    facts = {
        field: getattr(found, field) for field in SourceRow.__dataclass_fields__ if field not in {"by_state", "sweep_counts"}
    }
    output.print_facts(
        [
            *facts.items(),
            ("address", address),
            ("newest sweep's counts", _counts(found.sweep_counts)),
            ("documents by state", _counts(found.by_state)),
        ]
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items()))


def _show_left_out(connection: Connection[Any], source_id: int, found: SourceRow, *, as_json: bool) -> None:
    rows = left_out.list_left_out(connection, source_id).rows
    if as_json:
        output.print_json_list("left_out", rows, source=found)
        return
    output.print_table(
        ["cause", "path", "rule", "found"],
        ([row.cause, row.path, row.rule, row.found_at] for row in rows),
        empty="Nothing was left out by the newest sweep.",
    )
    if found.left_out > len(rows):
        print(f"{found.left_out} entries were left out, {len(rows)} of them are remembered.", file=sys.stderr)


def _show_failed(connection: Connection[Any], source_id: int, found: SourceRow, *, as_json: bool) -> None:
    rows = remote_items.failures(connection, source_id)
    if as_json:
        output.print_json_list("failed", rows, source=found)
        return
    output.print_table(
        ["key", "path", "code", "attempts", "tried again", "reason"],
        ([row.key, row.path, row.code, row.attempts, row.retry_at or "when it changes", row.error] for row in rows),
        empty="Nothing failed.",
    )


def _show_held(connection: Connection[Any], source_id: int, found: SourceRow, *, as_json: bool) -> None:
    with closing(held.stream_held(connection, source_id)) as rows:
        if as_json:
            output.print_json_list("held", rows, source=found)
            return
        output.print_table(
            ["id", "state", "path", "held since"],
            ([row.document_id, row.state, row.path, row.held_at] for row in rows),
            empty="No deletions are held.",
        )


@app.command("sync")
def sync(
    name: NameArgument,
    wait: WaitOption = False,
    timeout: TimeoutOption = 3600.0,
    dry_run: DryRunOption = False,
    limit: LimitOption = 1_000_000,
    as_json: output.JsonOption = False,
) -> None:
    """Ask for a sweep now: the whole source is looked through for what came, changed or went."""
    with owner_connection() as connection:
        if dry_run:
            preview_configured(name, connection, most=limit, as_json=as_json)
            return
        found = overview.get_source(connection, name)
        _must_be_swept(found)
        if found.paused:
            raise Conflict(f"Source {name} is paused. Let it go on with `docwell sources resume {name}`.", code="paused")
        request = source_state.request_sweep(connection, name)
        _finish(connection, name, request if wait else None, timeout, as_json=as_json)


@app.command("pause")
def pause(name: NameArgument, as_json: output.JsonOption = False) -> None:
    """Take nothing more from a source. What is in the index stays there, and what is queued is still done."""
    with owner_connection() as connection:
        _must_be_swept(overview.get_source(connection, name))
        if not source_state.set_paused(connection, name, paused=True):
            raise Conflict(f"Source {name} is paused already.", code="paused")
        _finish(connection, name, None, 0.0, as_json=as_json)


@app.command("resume")
def resume(name: NameArgument, as_json: output.JsonOption = False) -> None:
    """Let a paused source go on, with a sweep that finds what happened meanwhile."""
    with owner_connection() as connection:
        _must_be_swept(overview.get_source(connection, name))
        if not source_state.set_paused(connection, name, paused=False):
            raise Conflict(f"Source {name} is not paused.", code="not_paused")
        _finish(connection, name, None, 0.0, as_json=as_json)


@app.command("approve-deletes")
def approve_deletes(
    name: NameArgument,
    yes: output.YesOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = 3600.0,
    as_json: output.JsonOption = False,
) -> None:
    """Let go the deletions that are held, with a sweep at once. What is missing after that is judged anew."""
    with owner_connection() as connection:
        _must_be_swept(overview.get_source(connection, name))
        count, as_of = held.count_held(connection, _source(connection, name).source_id)
        if count == 0:
            raise Conflict(f"No deletions of source {name} are held.", code="nothing_held")
        output.confirm(
            f"Delete {count} documents of source {name} from the index, whose files are gone?"
            f" (`docwell sources show {name} --held` lists them.)",
            yes=yes,
        )
        request = source_state.approve_deletes(connection, name, as_of=as_of)
        if request is None:
            raise Conflict(f"No deletions of source {name} are held any more: its files are back.", code="nothing_held")
        _finish(connection, name, request if wait else None, timeout, as_json=as_json)


@app.command("remove")
def remove(name: NameArgument, yes: output.YesOption = False, as_json: output.JsonOption = False) -> None:
    """Take a source and all its documents out of the index. Files in folders stay where they are."""
    from ingest_worker.catalogue.removal import remove_source

    with owner_connection() as connection:
        found = overview.get_source(connection, name)
        count = found.documents - found.by_state.get("excluded", 0)
        returns = _how_it_returns(found)
        output.confirm(f"Take source {name} with its {count} documents out of the index? {returns}", yes=yes)
        removed, said_at = 0, time.monotonic()
        for removed in remove_source(connection, _source(connection, name)):
            if time.monotonic() - said_at >= _SAY_EVERY_SECONDS:
                said_at = time.monotonic()
                print(f"{removed} of {count} documents are out.", file=sys.stderr)
        after = overview.get_source(connection, name)
    if as_json:
        output.print_json({"source": after, "removed_documents": removed, "returns": returns})
        return
    print(f"Source {name} is out of the index, with {removed} documents.")
    if found.by_state.get("excluded"):
        print(f"{found.by_state['excluded']} excluded documents stay excluded, should it come back.", file=sys.stderr)
    print(returns, file=sys.stderr)


def _how_it_returns(found: SourceRow) -> str:
    if found.type == MANUAL:
        return "The next `docwell ingest` makes it anew."
    if found.type == PUSH:
        return "The next push makes it anew."
    if found.name == INBOX and found.name not in {source.name for source in settings().sources}:
        return "The inbox comes back when the watcher starts next: empty its folder to keep the files out."
    return "While it stands in docwell.toml it comes back when Docwell, or its watcher, starts next: take it out there too."


def _source(connection: Connection[Any], name: str) -> Source:
    found = get_source(connection, name)
    if found is None:
        raise PermanentError(f"The source {name!r} went away meanwhile.", code="unknown_source")
    return found


def _must_be_swept(found: SourceRow) -> None:
    """Refuses sources that nobody looks through."""
    if found.type == MANUAL:
        said = "holds what `docwell ingest` was given: there is nothing to look through. Run `docwell ingest PATH` again."
    elif found.type == PUSH:
        said = "holds what others push over HTTP: there is nothing to look through. Its senders push again."
    elif found.removed_at is not None:
        said = "was taken out. Configure it in docwell.toml and start Docwell, or its watcher, again."
    else:
        return
    raise Conflict(f"Source {found.name} {said}", code="not_swept")


def _finish(connection: Connection[Any], name: str, request: datetime | None, timeout: float, *, as_json: bool) -> None:
    """Show the source; with a `request`, when the sweep that answers it has ended."""
    after = overview.get_source(connection, name)
    if request is not None:
        after = _await_sweep(connection, after, timeout)
    elif after.sweep_requested is not None and not after.watched:
        print(f"{_nobody_watches(name)} Until then the request waits.", file=sys.stderr)
    _show_source(connection, after, as_json=as_json)
    if request is not None and after.sweep_error is not None:
        raise PermanentError(after.sweep_error, code="sweep_incomplete")


def _await_sweep(connection: Connection[Any], found: SourceRow, timeout: float) -> SourceRow:
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        wishes = source_state.read_wishes(connection, found.name)
        if wishes is None or wishes.request is None:
            return overview.get_source(connection, found.name)
        if not wishes.watched:
            raise ServiceUnavailable(_nobody_watches(found.name), code="not_watched")
        time.sleep(_POLL_SECONDS)
    raise PermanentError(
        f"The sweep of source {found.name} did not end within {timeout:g} s. It goes on: `docwell sources show {found.name}`.",
        code="timeout",
    )


def _nobody_watches(name: str) -> str:
    return (
        f"No watcher looks after source {name}. Start it with `docwell up` (or `docwell watch`), with the source in docwell.toml."
    )
