"""The long-running commands: everything at once (`up`), and each process alone."""

from __future__ import annotations

import random
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from infra.cli.context import settings as attached_settings
from infra.local.runtime import leave_sign, ready_path
from infra.privilege import settings_for
from shared.config import Settings, load_settings
from shared.telemetry import configure_logging
from shared.tracing import configure_tracing

TRACED = ("api", "mcp")
"""What begins spans in this process; a worker's begin in its children, after the fork."""


def up(
    inbox: Annotated[Path | None, typer.Option(help="The folder to drop documents into.")] = None,
    home: Annotated[Path | None, typer.Option(help="Where the data lives.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the logs of all processes.")] = False,
) -> None:
    """Start everything and stay in the foreground; Ctrl-C stops all of it."""
    from infra.local.up import run_up

    settings, _ = load_settings(inbox=inbox, home=home)
    configure_logging(settings, service="up")
    raise typer.Exit(run_up(settings, verbose=verbose))


def watch() -> None:
    """Watch the folders of all sources and ask for what changes."""
    from ingest_worker.intake.watching import watch_sources
    from ingest_worker.jobs.celery_app import make_app
    from ingest_worker.jobs.wake import celery_wake
    from shared.database import open_pool

    settings = _begin("watch")
    wake = celery_wake(make_app(settings), most=settings.worker_concurrency or 4)
    with open_pool(_database(settings), name="docwell-watch", size=8 + len(settings.sources)) as pool:
        watch_sources(settings, pool, wake, _stop_event(), on_begun=partial(leave_sign, settings.home, "watch"))


def worker() -> None:
    """Run jobs: read, parse, chunk, embed, publish."""
    from ingest_worker.jobs.worker import run_worker

    settings = _begin("worker")
    ready = ready_path(settings.home, "worker")
    raise typer.Exit(run_worker(settings, ready_file=ready if ready.parent.is_dir() else None))


def scheduler() -> None:
    """Apply what webhooks brought, wake what is due, take back the jobs of workers that are gone, renew subscriptions, and look
    after contexts that are ordered in batches.
    """
    from ingest_worker.enrich.batch_keeper import keeping_batches
    from ingest_worker.intake.applying import apply_deliveries
    from ingest_worker.jobs.celery_app import make_app
    from ingest_worker.jobs.scheduler import run_scheduler
    from ingest_worker.jobs.wake import celery_wake
    from ingest_worker.sources.renewing import renewing
    from shared.database import open_pool

    settings = _begin("scheduler")
    wake = celery_wake(make_app(settings), most=settings.worker_concurrency or 4)
    stop = _stop_event()
    applier = threading.Thread(
        target=apply_deliveries,
        args=(_database(settings), wake, stop),
        kwargs={"max_attempts": settings.job_attempts},
        name="deliveries",
        daemon=True,
    )
    applier.start()
    with (
        open_pool(_database(settings), name="docwell-scheduler", size=4) as pool,
        renewing(settings, pool, stop),
        keeping_batches(settings, _database(settings), stop),
    ):
        begun = partial(leave_sign, settings.home, "scheduler")
        run_scheduler(settings, pool, wake, stop, rng=random.Random(), on_begun=begun)  # noqa: S311 - jitter, no secret
    applier.join(10)


def api() -> None:
    """Serve the ingest API over HTTP."""
    from ingest_worker.api.serve import run_api

    run_api(_begin("api"))


def embedder() -> None:
    """Serve the local embedding model to workers and query servers."""
    from shared.embedding.service import serve

    settings, _ = load_settings()
    configure_logging(settings, service="embedder")
    serve(settings_for("embedder", settings))


def mcp(
    transport: Annotated[Literal["stdio", "http"], typer.Option(help="How clients connect.")] = "stdio",
) -> None:
    """Serve cited passages over MCP, read only."""
    from query_server.server import run_http, run_stdio

    if transport == "http":
        run_http(_begin("mcp"))
        return
    settings, _ = load_settings()
    configure_logging(settings, service="mcp")
    configure_tracing("mcp")
    run_stdio(lambda: settings_for("mcp", attached_settings()))


def _begin(service: str) -> Settings:
    settings = settings_for(service, attached_settings())
    configure_logging(settings, service=service)
    if service in TRACED:
        configure_tracing(service)
    return settings


def _database(settings: Settings) -> str:
    if settings.database_url is None:
        raise typer.BadParameter("DOCWELL_DATABASE_URL is not set.")
    return settings.database_url.get_secret_value()


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
