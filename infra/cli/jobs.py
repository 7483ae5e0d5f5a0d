"""`docwell jobs`: the queue and its dead letters."""

from __future__ import annotations

import sys
import uuid
from typing import Annotated

import typer

from infra.cli import output
from infra.cli.context import owner_connection
from ingest_worker.catalogue import job_listing
from ingest_worker.catalogue.asking import Conflict, Filters, parse_since
from ingest_worker.catalogue.job_listing import JobRow
from ingest_worker.jobs import control
from shared.documents import JobState
from shared.errors import PermanentError

app = typer.Typer(no_args_is_help=True)

JobsArgument = Annotated[list[uuid.UUID] | None, typer.Argument(help="The ids of jobs.")]


@app.callback()
def _group() -> None:
    """The queue and its dead letters."""


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
    """List jobs, newest first."""
    filters = output.make_filters(states=JobState, namespace=namespace, source=source, state=state, since=since, path=path)
    with owner_connection() as connection, output.usage_errors():
        page = job_listing.list_jobs(connection, filters, limit=limit, cursor=cursor)
    if as_json:
        output.print_json_list("jobs", page.rows, page.next_cursor)
        return
    _print_jobs(page.rows)
    if page.next_cursor:
        print(f"There are more: --cursor {page.next_cursor}", file=sys.stderr)


def _print_jobs(rows: tuple[JobRow, ...] | list[JobRow]) -> None:
    output.print_table(
        ["id", "state", "result", "attempts", "next run", "created", "path", "last error"],
        (
            [
                job.job_id,
                job.state,
                job.result,
                f"{job.attempts} of {job.max_attempts}",
                job.next_run_at,
                job.created_at,
                job.path,
                job.last_error,
            ]
            for job in rows
        ),
        empty="No jobs.",
    )


@app.command("show")
def show(job: Annotated[uuid.UUID, typer.Argument(help="The job's id.")], as_json: output.JsonOption = False) -> None:
    """Show one job with everything that is known of it."""
    with owner_connection() as connection:
        found = job_listing.get_job(connection, job)
    if as_json:
        output.print_json(found)
        return
    output.print_facts((name, getattr(found, name)) for name in JobRow.__dataclass_fields__)


@app.command("retry")
def retry(
    jobs: JobsArgument = None,
    all_dead: Annotated[bool, typer.Option("--all-dead", help="Every dead job.")] = False,
    source: output.SourceOption = None,
    since: output.SinceOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Give dead, waiting or cancelled jobs all their attempts again, now."""
    wake = output.make_wake()
    with owner_connection() as connection:
        if all_dead:
            filters = output.make_filters(states=JobState, state=["dead"], source=source, since=since)
            wanted = [job.job_id for job in job_listing.list_jobs(connection, filters).rows]
        else:
            wanted = _named(jobs)
        for job in wanted:
            job_listing.get_job(connection, job)
        reasons = job_listing.why_not_retry(connection, wanted)
        taken = [job for job in wanted if job not in reasons]
        with connection.transaction():
            control.retry(connection, taken)
        rows = [job_listing.get_job(connection, job) for job in taken]
    wake(len(taken))
    # A dead job that has a successor is history: asked for by name it is refused, among all of them it is left alone.
    _finish(rows, {} if all_dead else reasons, as_json=as_json)


@app.command("cancel")
def cancel(jobs: JobsArgument = None, _yes: output.YesOption = False, as_json: output.JsonOption = False) -> None:
    """Stop live jobs. What is served stays served; a running job writes nothing more. `retry` takes it back."""
    wanted = _named(jobs)
    with owner_connection() as connection:
        for job in wanted:
            job_listing.get_job(connection, job)
        reasons = job_listing.why_not_cancel(connection, wanted)
        taken = [job for job in wanted if job not in reasons]
        with connection.transaction():
            control.cancel(connection, taken)
        rows = [job_listing.get_job(connection, job) for job in taken]
    _finish(rows, reasons, as_json=as_json)


def _named(jobs: list[uuid.UUID] | None) -> list[uuid.UUID]:
    if not jobs:
        raise typer.BadParameter("Name the jobs by their ids. `docwell jobs list` shows them.")
    return list(dict.fromkeys(jobs))


def _finish(rows: list[JobRow], reasons: dict[uuid.UUID, str], *, as_json: bool) -> None:
    if as_json:
        output.print_json_list("jobs", rows)
    elif rows:
        _print_jobs(rows)
    elif not reasons:
        print("No jobs.", file=sys.stderr)
    if reasons:
        raise Conflict("\n".join(reasons.values()), code="job_state")


@app.command("purge")
def purge(
    state: Annotated[list[str] | None, typer.Option(help="Ended jobs of this state: dead, cancelled or succeeded.")] = None,
    older_than: Annotated[str, typer.Option(help="Only those that ended longer ago: 90s, 15m, 2h, 7d.")] = "0s",
    yes: output.YesOption = False,
    as_json: output.JsonOption = False,
) -> None:
    """Remove ended jobs from the record: dead ones, unless --state says otherwise. Documents stay as they are."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    states = [JobState(name) for name in output.make_filters(states=JobState, state=state or ["dead"]).states]
    live = [name.value for name in states if name in {JobState.QUEUED, JobState.RUNNING, JobState.RETRYING}]
    if live:
        raise typer.BadParameter(f"Jobs that are {', '.join(live)} are live: cancel them first.")
    with output.usage_errors():
        age = (now - parse_since(older_than, now=now)).total_seconds()
    if age < 0:
        raise PermanentError("--older-than names a time that is still to come.", code="bad_time")
    with owner_connection() as connection:
        listed = job_listing.list_jobs(connection, Filters(states=tuple(states))).rows
        count = sum(job.finished_at is not None and (now - job.finished_at).total_seconds() > age for job in listed)
        if count:
            output.confirm(f"Remove {count} job{'s' if count > 1 else ''} from the record?", yes=yes)
        removed = control.purge(connection, states=states, older_than_seconds=age)
    if as_json:
        output.print_json({"purged": removed})
    else:
        print(f"{removed} removed.")
