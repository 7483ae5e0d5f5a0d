"""`docwell usage`: which documents are used, which never are, and what is not found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from infra.cli import output
from infra.cli.context import owner_connection, settings
from ingest_worker.catalogue import usage as catalogue
from ingest_worker.catalogue.asking import parse_since
from ingest_worker.catalogue.usage import Asked, Totals, Unanswered, UnusedDocument, UsedDocument


def usage(
    since: output.SinceOption = None,
    namespace: output.NamespaceOption = None,
    source: output.SourceOption = None,
    limit: output.LimitOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Show which documents answers hold, which they never hold, and which searches find nothing (needs DOCWELL_USAGE_LOG)."""
    current = settings()
    now = datetime.now(UTC)
    with output.usage_errors():
        begin = now - timedelta(days=current.usage_days) if since is None else parse_since(since, now=now)
    with owner_connection() as connection:
        asked = Asked(since=begin, namespace=namespace, source=source, limit=limit)
        totals = catalogue.read_totals(connection, asked)
        documents = catalogue.used_documents(connection, asked)
        unanswered = catalogue.unanswered(connection, asked)
        # Before the first event nobody noted what was found.
        first = totals.first_at
        period = None if first is None else Asked(since=max(begin, first), namespace=namespace, source=source, limit=limit)
        unused = () if period is None else catalogue.unused_documents(connection, period)
    if as_json:
        output.print_json(
            {
                "since": begin,
                "usage_log": current.usage_log,
                "totals": totals,
                "documents": documents,
                "never_found": unused,
                "without_match": unanswered,
            }
        )
        return
    _show(asked, totals, documents, unused, unanswered, usage_log=current.usage_log)


def _show(
    asked: Asked,
    totals: Totals,
    documents: Sequence[UsedDocument],
    unused: Sequence[UnusedDocument],
    unanswered: Sequence[Unanswered],
    *,
    usage_log: str,
) -> None:
    if totals.first_at is None or totals.searches + totals.reads == 0:
        hint = " Nothing is logged: set DOCWELL_USAGE_LOG=ids or queries, and start again." if usage_log == "off" else ""
        print(f"No call of an MCP client{_kept_to(asked)} was logged since {output.plain(asked.since)}.{hint}")
        if totals.first_at is None:
            return
    print(
        f"Since {output.plain(max(asked.since, totals.first_at))}{_kept_to(asked)}: {totals.searches} searches"
        f" ({totals.answered} answered,"
        f" {totals.without_match} without a match, {totals.empty} where nothing is indexed, {totals.failed} failed) and"
        f" {totals.reads} reads."
    )
    print("\nUsed most")
    output.print_table(
        ["document", "returned", "read", "last used", "source", "namespace", "path"],
        ([one.document_id, one.returned, one.read, one.last_used, one.source, one.namespace, one.path] for one in documents),
        empty="No document.",
    )
    print("\nIndexed all that time and never found")
    output.print_table(
        ["document", "since", "source", "namespace", "path"],
        ([one.document_id, one.created_at, one.source, one.namespace, one.path] for one in unused),
        empty="No document.",
    )
    print("\nSearches without a match")
    output.print_table(
        ["searches", "last asked", "query"],
        ([one.searches, one.last_asked, one.query or "(texts are not logged)"] for one in unanswered),
        empty="None.",
    )


def _kept_to(asked: Asked) -> str:
    places = [f"{word} {name}" for word, name in (("namespace", asked.namespace), ("source", asked.source)) if name is not None]
    return f" in {' and '.join(places)}" if places else ""
