"""`docwell status`: one screen of state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.cli import costs, output
from infra.cli.context import owner_connection, settings
from infra.cli.costs import tokens_of
from infra.doctor import look_at_disk
from infra.local.runtime import ServiceState, service_states
from ingest_worker.catalogue import batches, json_form, without_vector
from ingest_worker.catalogue.batches import Waiting
from ingest_worker.catalogue.overview import Status, read_status
from ingest_worker.catalogue.remote_measures import RemoteMeasure, read_remote_measures
from ingest_worker.catalogue.without_vector import GapCount
from ingest_worker.reindexing import control
from ingest_worker.reindexing.control import Reindex
from ingest_worker.reprocessing import count_older
from ingest_worker.sources.pace import OPENS_AFTER


def status(as_json: output.JsonOption = False) -> None:
    """Show documents, jobs, sources and the index on one screen."""
    current = settings()
    with owner_connection() as connection:
        found = read_status(connection)
        older = count_older(connection, current)
        reindex = control.status(connection, current)
        remotes = read_remote_measures(connection)
        gaps = without_vector.count_active(connection)
        waiting = batches.waiting(connection)
    services = service_states(current.home)
    if as_json:
        more = {"older_documents": older, "reindex": reindex, "without_vector": gaps, "remote_sources": remotes}
        output.print_json({**json_form.as_json(found), **more, "context_batches": waiting, "services": services})
    else:
        _print(found, older, reindex, gaps, waiting, services, disk_line(current.home))
        _print_remotes(remotes)


def _print(
    found: Status,
    older: int,
    reindex: Reindex | None,
    gaps: Sequence[GapCount],
    waiting: Waiting,
    services: Sequence[ServiceState],
    disk: str | None,
) -> None:
    model = found.embedding
    output.print_facts(
        [
            ("services", services_line(services)),
            ("disk", disk),
            (
                "documents",
                f"{found.documents.total} ({found.documents.searchable} searchable): {_counts(found.documents.by_state)}",
            ),
            ("chunks", found.chunks),
            ("jobs", _counts(found.jobs.by_state)),
            ("due now", _due(found)),
            ("webhook", _deliveries(found)),
            ("model", "none yet" if model is None else f"{model.model} ({model.provider}, {model.dimension} dimensions)"),
            ("reindex", _reindex(reindex)),
            ("without vectors", costs.gaps_line(gaps)),
            ("contexts", _contexts(waiting)),
            ("older documents", f"{older} of an older parser or prompt: `docwell reprocess --plan`" if older else None),
            ("database", f"{found.database_bytes / 1024**2:,.1f} MiB, schema {found.schema_version}"),
        ]
    )
    if found.namespaces:
        print()
        output.print_table(
            ["namespace", "documents", "chunks", "index version"],
            ([one.name, one.documents, one.chunks, one.index_version] for one in found.namespaces),
            empty="",
        )
    if found.sources:
        print()
        output.print_table(
            ["source", "type", "documents", "searchable", "newest sweep", "notice"],
            ([s.name, s.type, s.documents, s.searchable, s.newest_sweep, s.sweep_error or s.watch_notice] for s in found.sources),
            empty="",
        )
    if found.costs:
        print()
        output.print_table(
            ["day", "source", "kind", "model", "calls", "tokens", "money"],
            (
                [
                    c.day,
                    c.source,
                    c.kind,
                    c.model,
                    c.calls,
                    tokens_of(c),
                    f"{c.money:.4f}" + (" + unpriced" if c.unpriced_calls else ""),
                ]
                for c in found.costs
            ),
            empty="",
        )


def _print_remotes(remotes: Sequence[RemoteMeasure]) -> None:
    """How far sources over the network are followed; `docwell doctor` also asks them."""
    if not remotes:
        return
    print()
    output.print_table(
        ["followed", "newest sync", "seconds ago", "failures", "breaker", "failed things", "events", "dead events", "told until"],
        (
            [
                one.name,
                _moment(one.synced),
                None if one.synced is None else f"{one.behind:.0f}",
                one.failures,
                "open" if one.failures >= OPENS_AFTER else "closed",
                one.failed,
                one.events_waiting,
                one.events_dead,
                "error" if one.subscription_error is not None else _moment(one.subscription_expires),
            ]
            for one in remotes
        ),
        empty="",
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _contexts(waiting: Waiting) -> str | None:
    """What is still to come in batches; None when nothing is."""
    said = []
    if waiting.passages or waiting.batches:
        since = "" if waiting.since is None else f", the oldest since {waiting.since:%Y-%m-%d %H:%M} UTC"
        money = f", {waiting.money:.4f} money reserved" if waiting.money else ""
        said.append(f"{waiting.passages} passages in {waiting.batches} batches{since}{money}")
    if waiting.documents:
        said.append(f"{waiting.documents} documents to be ordered")
    if waiting.problem is not None:
        said.append(waiting.problem)
    return "; ".join(said) or None


def services_line(found: Sequence[ServiceState]) -> str | None:
    """Those of `docwell up` that do not run, with what they said at their end and where they say more."""
    lame = [one for one in found if one.state != "running"]
    if not lame:
        return f"{len(found)} running" if found else None
    return "; ".join(f"{one.name} is {one.state} ({one.last_exit or 'no end yet'}), see {one.log}" for one in lame)


def disk_line(home: Path) -> str | None:
    """Free space where `home` is, and what to do, when there is little; None else."""
    found = look_at_disk("disk", home)
    return None if found.cure is None else f"{found.finding} {found.cure}"


def _reindex(found: Reindex | None) -> str | None:
    if found is None:
        return None
    return f"{found.model} is {found.state}, {found.filled} of {found.passages} passages: `docwell reindex status`"


def _counts(by_state: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in by_state.items() if count) or "none"


def _deliveries(found: Status) -> str | None:
    counts = found.deliveries
    told = {"waiting": counts.waiting, "refused": counts.refused, "failed": counts.failed}
    if not any(told.values()):
        return None
    return f"deliveries of thirty days: {_counts(told)} (GET /v1/deliveries tells why)"


def _due(found: Status) -> str:
    age = found.jobs.oldest_due_seconds
    return str(found.jobs.due) if age is None else f"{found.jobs.due}, the oldest for {age:.0f} s"
