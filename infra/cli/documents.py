"""`docwell documents`: the corpus, looked at and tidied up."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from psycopg import Connection

from infra.cli import costs, output
from infra.cli.context import owner_connection, settings
from ingest_worker import rollback
from ingest_worker.catalogue import captions, contexts, exclusion, ledger, listing, without_vector
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.listing import ChunkRow, DocumentRow
from ingest_worker.catalogue.naming import resolve
from ingest_worker.catalogue.twins import duplicate_of
from ingest_worker.enrich import again
from ingest_worker.enrich.caption_again import ask_captions
from shared.documents import DocumentState
from shared.text import visible

app = typer.Typer(no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The document's id, path or URL, or source:namespace:path.")]
NamesArgument = Annotated[list[str], typer.Argument(help="Ids, paths or URLs, or source:namespace:path.")]


@app.callback()
def _group() -> None:
    """The corpus."""


@app.command("list")
def list_(
    namespace: output.NamespaceOption = None,
    source: output.SourceOption = None,
    state: output.StateOption = None,
    since: output.SinceOption = None,
    path: output.PathOption = None,
    limit: output.LimitOption = None,
    cursor: output.CursorOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """List documents in order of their paths."""
    filters = output.make_filters(states=DocumentState, namespace=namespace, source=source, state=state, since=since, path=path)
    with owner_connection() as connection, output.usage_errors():
        page = listing.list_documents(connection, filters, limit=limit, cursor=cursor)
    if as_json:
        output.print_json_list("documents", page.rows, page.next_cursor)
        return
    output.print_table(
        ["id", "state", "version", "chunks", "source", "namespace", "path", "reason"],
        ([d.document_id, d.state, _version(d), d.chunk_count, d.source, d.namespace, d.path, d.reason] for d in page.rows),
        empty="No documents.",
    )
    if page.next_cursor:
        print(f"There are more: --cursor {page.next_cursor}", file=sys.stderr)


def _version(document: DocumentRow) -> str | None:
    """`4`, or `3 of 4` when an older version is served than the one that was read last."""
    if document.served_version is None or document.served_version == document.latest_version:
        return None if document.latest_version is None else str(document.latest_version)
    return f"{document.served_version} of {document.latest_version}"


@app.command("show")
def show(
    document: NameArgument,
    version: Annotated[int | None, typer.Option(min=1, help="This version's chunks instead of the served one's.")] = None,
    chunks: Annotated[bool, typer.Option("--chunks/--no-chunks", help="Print its chunks.")] = True,
    as_json: output.JsonOption = False,
) -> None:
    """Show a document with its chunks: page, slide, sheet, section, rows and lines of each, as far as known."""
    with owner_connection() as connection:
        found = listing.get_document(connection, _resolve(connection, document))
        rows = listing.stream_chunks(connection, found.document_id, version=version) if chunks else iter(())
        known = {
            **listing.facts(found),
            "duplicate_of": duplicate_of(connection, found.document_id),
            "contexts": contexts.standing(connection, found.document_id),
            "captions": captions.standing(connection, found.document_id),
            "without_vector": without_vector.count_active(connection, found.document_id),
            "costs": ledger.totals_of(connection, found.document_id),
        }
        if as_json:
            output.print_json_list("chunks", rows, document=known)
            return
        _print_document(known)
        for row in rows:
            _print_chunk(row)


def _print_document(known: dict[str, Any]) -> None:
    twin = known["duplicate_of"]
    told = {
        "duplicate_of": twin and f"{twin.source}:{twin.namespace}:{twin.path}",
        "contexts": known["contexts"] and costs.enrichment_line(known["contexts"]),
        "captions": known["captions"] and costs.captioning_line(known["captions"]),
        "without_vector": costs.gaps_line(known["without_vector"]),
        "costs": "; ".join(map(costs.total_line, known["costs"])) or None,
    }
    output.print_facts({**known, **told}.items())


def _print_chunk(row: ChunkRow) -> None:
    place = [
        row.attachment and f"attachment {row.attachment}",
        _span("page", row.page_start, row.page_end),
        row.page_label and f"printed {row.page_label}",
        _span("slide", row.slide, None),
        row.sheet and f"sheet {row.sheet}",
        _span("row", row.row_start, row.row_end),
        _span("line", row.line_start, row.line_end),
        row.section,
        row.symbol,
    ]
    print(f"\n[{row.ordinal + 1}] {', '.join(output.plain(part) for part in [row.kind, *place] if part)}")
    print("\n".join("    " + visible(line, lines=True) for line in row.text.splitlines()))


def _span(noun: str, start: int | None, end: int | None) -> str | None:
    if start is None:
        return None
    return f"{noun} {start}" if end in (None, start) else f"{noun}s {start}-{end}"


@app.command("history")
def history(document: NameArgument, as_json: output.JsonOption = False) -> None:
    """List the versions of a document that are kept, newest first."""
    with owner_connection() as connection:
        document_id = _resolve(connection, document)
        rows = listing.list_versions(connection, document_id)
    if as_json:
        output.print_json_list("versions", rows, document_id=document_id)
        return
    output.print_table(
        ["version", "served", "state", "chunks", "size", "sha256", "published", "reason"],
        ([v.number, v.served, v.state, v.chunk_count, v.size, v.sha256, v.published_at, v.reason] for v in rows),
        empty="No versions are kept.",
    )


@app.command("rollback")
def roll_back(
    document: NameArgument,
    version: Annotated[
        int | None, typer.Argument(min=1, help="The version to serve; without it the one before that which is served.")
    ] = None,
    to: Annotated[int | None, typer.Option("--to", "--version", min=1, help="The same as the argument.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is served.")] = True,
    _yes: output.YesOption = False,
    as_json: output.JsonOption = False,
) -> None:
    """Serve an old version again. It stays until the bytes change, or until another one is asked for."""
    if version is not None and to is not None and version != to:
        raise typer.BadParameter("Two different versions were named.")
    wake = output.make_wake()
    with owner_connection() as connection:
        document_id = _resolve(connection, document)
        asked = rollback.request_rollback(
            connection, document_id, version if version is not None else to, max_attempts=settings().job_attempts
        )
        wake(1)
        if wait and not as_json:
            print(f"Version {asked.version} is asked for (job {asked.job_id}) …", file=sys.stderr)
        served = rollback.wait_until_served(connection, asked) if wait else None
        found = listing.get_document(connection, document_id)
    if as_json:
        result = {"document": found, "job_id": asked.job_id, "version": asked.version, "before": asked.before, "served": served}
        output.print_json(result)
    elif served:
        print(f"{output.plain(found.path)}: version {asked.version} is served, instead of {asked.before or 'none'}.")
    elif served is None:
        print(f"{output.plain(found.path)}: version {asked.version} is asked for. `docwell jobs show {asked.job_id}` tells more.")
    if served is False:
        raise Conflict(f"Version {asked.version} of {found.path} is not served. {found.reason or ''}".rstrip(), code="not_served")


@app.command("delete")
def delete(documents: NamesArgument, yes: output.YesOption = False, as_json: output.JsonOption = False) -> None:
    """Take documents out of the index. A file that is still in its folder comes back with the next sweep: see `exclude`."""
    wake = output.make_wake()
    with owner_connection() as connection:
        found = _resolve_all(connection, documents)
        output.confirm(f"Delete {_called(found)} from the index?", yes=yes)
        jobs = [
            {
                "document_id": one.document_id,
                "path": one.path,
                "job_id": exclusion.request_deletion(connection, one.document_id, max_attempts=settings().job_attempts),
            }
            for one in found
        ]
    wake(len(jobs))
    for one in found:
        if one.source not in {"push", "manual"}:
            print(f"{one.path}: a file that stays in its folder comes back; `exclude` keeps it out.", file=sys.stderr)
    if as_json:
        output.print_json({"jobs": jobs})
    else:
        output.print_table(["job", "path"], ([job["job_id"], job["path"]] for job in jobs), empty="Nothing to delete.")


@app.command("exclude")
def exclude(documents: NamesArgument, yes: output.YesOption = False, as_json: output.JsonOption = False) -> None:
    """Take documents out of the index at once and for good, older versions too. No sweep brings them back, `include` does."""
    with owner_connection() as connection:
        found = _resolve_all(connection, documents)
        output.confirm(f"Exclude {_called(found)}, and drop the older versions?", yes=yes)
        done = [(one, exclusion.exclude(connection, one.document_id)) for one in found]
        after = [listing.get_document(connection, one.document_id) for one in found]
    if as_json:
        output.print_json({"documents": after})
        return
    for one, changed in done:
        print(f"{output.plain(one.path)}: {'excluded' if changed else 'was excluded already'}")


@app.command("include")
def include(documents: NamesArgument, as_json: output.JsonOption = False) -> None:
    """Let excluded documents come back; each is read again at once."""
    wake = output.make_wake()
    with owner_connection() as connection:
        found = _resolve_all(connection, documents)
        attempts = settings().job_attempts
        jobs = [
            {
                "document_id": one.document_id,
                "path": one.path,
                "job_id": exclusion.include(connection, one.document_id, max_attempts=attempts),
            }
            for one in found
        ]
    wake(len(jobs))
    if as_json:
        output.print_json({"jobs": jobs})
    else:
        output.print_table(["job", "path"], ([job["job_id"], job["path"]] for job in jobs), empty="Nothing to include.")


@app.command("enrich")
def enrich(documents: NamesArgument, as_json: output.JsonOption = False) -> None:
    """Ask for contexts of passages and captions of pictures that are missing, though the bytes are unchanged."""
    current = settings()
    if current.context_prefixes == "off" and current.vision_captions == "off":
        raise Conflict(
            "Contexts and captions are off: set DOCWELL_CONTEXT_PREFIXES=on or DOCWELL_VISION_CAPTIONS=on first, for the workers"
            " too.",
            code="contexts_off",
        )
    wake = output.make_wake()
    queued: dict[uuid.UUID, uuid.UUID] = {}
    with owner_connection() as connection:
        found = _resolve_all(connection, documents)
        ids = [one.document_id for one in found]
        if current.vision_captions == "on":
            queued |= ask_captions(connection, ids, max_attempts=current.job_attempts)
        if current.context_prefixes == "on":
            queued |= again.ask(connection, ids, max_attempts=current.job_attempts, afresh=True)
    wake(len(queued))
    jobs = [{"document_id": one.document_id, "path": one.path, "job_id": queued.get(one.document_id)} for one in found]
    if as_json:
        output.print_json({"jobs": jobs})
    else:
        rows = ([job["job_id"] or "not as it stands now", job["path"]] for job in jobs)
        output.print_table(["job", "path"], rows, empty="Nothing to ask for.")


def _resolve(connection: Connection[Any], name: str) -> uuid.UUID:
    return resolve(connection, name, directory=Path.cwd())


def _resolve_all(connection: Connection[Any], names: list[str]) -> list[DocumentRow]:
    """The documents of these names; all are found before anything is done to one."""
    ids = dict.fromkeys(_resolve(connection, name) for name in names)
    return [listing.get_document(connection, document_id) for document_id in ids]


def _called(found: list[DocumentRow]) -> str:
    if len(found) == 1:
        return f"{output.plain(found[0].path)!r}"
    return f"{len(found)} documents"
