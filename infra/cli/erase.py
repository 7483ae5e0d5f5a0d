"""`docwell erase`: a document goes for good, with a receipt."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg import Connection

from infra.cli import output
from infra.cli.context import owner_connection, settings
from ingest_worker import erasure
from ingest_worker.catalogue import erasing, erasures
from ingest_worker.catalogue.naming import resolve
from ingest_worker.erasure import Preview, Receipt
from shared.config import Settings
from shared.database import first_line


def erase(
    document: Annotated[str | None, typer.Argument(help="The document's id, path or URL, or source:namespace:path.")] = None,
    lift: Annotated[uuid.UUID | None, typer.Option(help="Let in again what this erasure keeps out.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the erasures.")] = False,
    yes: output.YesOption = False,
    as_json: output.JsonOption = False,
) -> None:
    """Remove a document with all its versions, and keep out what stands at its path, and its bytes wherever they are.

    Prints a receipt of what was removed, what is kept out, and where traces may remain. No file is touched.
    """
    if sum((document is not None, lift is not None, list_)) != 1:
        raise typer.BadParameter("Name one document, or use --lift or --list.")
    if list_:
        _list(as_json=as_json)
    elif lift is not None:
        _lift(lift, as_json=as_json)
    elif document is not None:
        _erase(document, yes=yes, as_json=as_json)


def _erase(name: str, *, yes: bool, as_json: bool) -> None:
    current = settings()
    with owner_connection() as connection:
        document_id = resolve(connection, name, directory=Path.cwd())
        if not yes:
            output.confirm(_question(erasure.preview(connection, document_id, max_bytes=current.max_bytes)), yes=False)
        receipt = erasure.erase(connection, document_id, max_bytes=current.max_bytes, max_attempts=current.job_attempts)
        problem = _vacuum(connection)
    if receipt.queued:
        output.make_wake()(receipt.queued)
    outside = list(_outside(receipt, current, problem))
    if as_json:
        output.print_json({**_as_rows(receipt), "vacuumed": problem is None, "outside": outside})
    else:
        _print(receipt, outside)


def _question(seen: Preview) -> str:
    question = f"Erase {output.plain(seen.document.path)!r} with all its versions, and keep its path and its bytes out?"
    if seen.others:
        listed = "".join(f"\n  {one.source}:{one.namespace}:{output.plain(one.path)}" for one in seen.others)
        question += f" These have the same bytes, now or in a version that is kept, and lose them too:{listed}\nErase?"
    return question


def _vacuum(connection: Connection[Any]) -> str | None:
    """The erasure is done by now, so that a failure is told on the receipt."""
    print("Erased. Clearing dead rows out of the tables and indexes …", file=sys.stderr)
    try:
        erasing.vacuum(connection)
    except psycopg.Error as error:
        return first_line(error)
    return None


def _as_rows(receipt: Receipt) -> dict[str, Any]:
    return {name: getattr(receipt, name) for name in Receipt.__dataclass_fields__ if name != "queued"}


def _outside(receipt: Receipt, current: Settings, problem: str | None) -> Iterator[dict[str, str]]:
    """Where traces may remain, and until when."""
    if receipt.file_remains is not False and receipt.document.source != "push":
        lies = "lies in its place" if receipt.file_remains else "may lie in its place"
        yield _trace("file", f"The file {lies} still: Docwell only reads files. Delete it there.")
    if problem is None:
        detail = "Freed space in the database's files holds traces until it is written over; VACUUM FULL does that at once."
        yield _trace("database_files", detail)
    else:
        detail = f"Dead rows hold the text until the database is vacuumed, which failed: {problem}. Run VACUUM on it."
        yield _trace("dead_rows", detail)
    yield _trace("write_ahead_log", "The write-ahead log until it is recycled; its archive and replicas where there are any.")
    yield _trace("backups", "Backups that were made before. After one is brought back, erase again.")
    yield _trace("logs", "Logs, also PostgreSQL's, may name the path or quote an error.")
    yield _trace(
        "memory", "Processes that run may keep words, or the text that they read last, in memory until they are started again."
    )
    yield _trace("answers", "Answers that clients were given already.")
    if current.embedding_provider != "local":
        yield _trace("embedding_provider", f"What {current.embedding_base_url or 'the embedding provider'} was sent to embed.")
    if "on" in {current.context_prefixes, current.vision_captions}:
        service = current.anthropic_base_url or "Anthropic's service"
        yield _trace("enrichment_provider", f"What {service} was shown to write contexts and captions.")


def _trace(what: str, detail: str) -> dict[str, str]:
    return {"what": what, "detail": detail}


def _print(receipt: Receipt, outside: list[dict[str, str]]) -> None:
    document, removed, kept = receipt.document, receipt.removed, receipt.kept
    print(f"Erased: {document.source}:{document.namespace}:{output.plain(document.path)}")
    output.print_facts([("erasure", str(receipt.erasure_id)), ("at", receipt.erased_at), ("document", str(document.document_id))])
    print("\nRemoved")
    output.print_facts(
        (f"  {name.replace('_', ' ')}", str(getattr(removed, name))) for name in type(removed).__dataclass_fields__
    )
    for other in receipt.others:
        what = other.what.replace("_", " ")
        print(f"  {what}: {other.source}:{other.namespace}:{output.plain(other.path)}, which had the same bytes")
    print("\nKept out from now on")
    print(f"  what stands at {document.source}:{document.namespace}:{output.plain(document.path)}")
    for digest in receipt.blocked.sha256:
        print(f"  bytes with sha256 {digest.hex()}")
    print(f"  `docwell erase --lift {receipt.erasure_id}` lets them in again.")
    if kept.chunks:
        print(f"\nKept: {kept.chunks} passages that other documents hold too")
        for place in kept.documents:
            print(f"  {place.source}:{place.namespace}:{output.plain(place.path)}")
    print("\nNot reached by this")
    for trace in outside:
        print(f"  {trace['detail']}")


def _lift(erasure_id: uuid.UUID, *, as_json: bool) -> None:
    wake = output.make_wake()
    with owner_connection() as connection:
        queued = erasure.lift(connection, erasure_id, max_attempts=settings().job_attempts)
    wake(queued)
    if as_json:
        output.print_json({"erasure_id": erasure_id, "queued": queued})
    else:
        print(f"Lifted. {queued} documents are read again; others come in when they are swept, pushed or ingested.")


def _list(*, as_json: bool) -> None:
    with owner_connection() as connection:
        rows = erasures.list_erasures(connection)
    if as_json:
        output.print_json_list("erasures", rows)
        return
    output.print_table(
        ["erasure", "erased", "lifted", "paths", "contents"],
        ([row.erasure_id, row.erased_at, row.lifted_at, row.places, row.contents] for row in rows),
        empty="No erasures.",
    )
