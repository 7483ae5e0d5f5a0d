"""The doctor's look at sources over the network: each is asked whether it can be followed, and how far it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import Connection

from infra.findings import Finding, failed, fine, skipped, warning
from ingest_worker.catalogue.remote_measures import RemoteMeasure, read_remote_measures
from ingest_worker.sources.pace import OPENS_AFTER, Pace, make_client
from ingest_worker.sources.protocol import Checks
from ingest_worker.sources.registry import open_source
from shared.config import ConnectionSettings, Settings
from shared.database import first_line
from shared.errors import DocwellError, ServiceUnavailable

_LATE = 3
"""A source is behind when so many times the time between two looks have passed since the last one."""

_SHORTEST_LATE = timedelta(minutes=10)
_EXPIRES_SOON = timedelta(days=1)


def look_at_remotes(settings: Settings, connection: Connection[Any]) -> Iterator[Finding]:
    """One finding of what each source answers now, and one of how it has been followed; nothing where there is none."""
    chosen = [source for source in settings.sources if isinstance(source, ConnectionSettings)]
    try:
        known = {one.name: one for one in read_remote_measures(connection)} if chosen else {}
    except psycopg.Error as error:  # another schema, of which another check tells
        yield skipped("sources over the network", f"How far they are followed cannot be read: {first_line(error)}.")
        return
    now = datetime.now(UTC)
    for source in chosen:
        found = known.get(source.name)
        if found is not None and found.rests and found.failures == 0:
            # It asked for a pause, of the doctor too.
            yield warning(f"source {source.name}", f"It asked to be left alone: {found.reason}", "Nothing: it is asked again.")
        else:
            yield _ask(source)
        if found is None:
            cure = "Start `docwell up`, or `docwell watch`, with this configuration."
            yield warning(f"following {source.name}", "Nobody has followed it yet.", cure)
        elif not found.paused:
            yield judge(source, found, now)


def _ask(source: ConnectionSettings) -> Finding:
    name = f"source {source.name}"
    try:
        with make_client(Pace().limiter(source), threading.Event()) as client:
            opened = open_source(source, client=client, clock=lambda: datetime.now(UTC))
            with closing(opened):
                if isinstance(opened, Checks):
                    opened.check()
                else:
                    next(iter(opened.everything()), None)
    except ServiceUnavailable as error:
        return failed(name, str(error), "Check its address, the network, and whether it runs.")
    except DocwellError as error:
        return failed(
            name, str(error), "The sentence names the cure; restart Docwell, or the watcher, after a change of settings."
        )
    except Exception as error:  # noqa: BLE001 - whatever a connector raises is the finding
        return failed(name, f"Its connector failed: {type(error).__name__}: {first_line(error)}.", "Tell the connector's maker.")
    return fine(name, "It answers, and takes our credentials.")


def judge(source: ConnectionSettings, found: RemoteMeasure, now: datetime) -> Finding:
    """How a source has been followed. Pure."""
    name = f"following {found.name}"
    troubles = list(_troubles(source, found, now))
    if troubles:
        cures = dict.fromkeys(cure for _, cure in troubles)
        return warning(name, " ".join(said for said, _ in troubles), " ".join(cures))
    return fine(name, f"Followed to an end {_ago(found.behind)}.")


def _troubles(source: ConnectionSettings, found: RemoteMeasure, now: datetime) -> Iterator[tuple[str, str]]:
    show = f"`docwell sources show {found.name}` tells more."
    late = max(_LATE * timedelta(seconds=source.sync_seconds), _SHORTEST_LATE)
    if found.synced is None:
        yield "It was never followed to an end: its first listing goes on, or fails.", show
    elif found.behind > late.total_seconds():
        yield f"It was last followed to an end {_ago(found.behind)}.", show
    if found.failures >= OPENS_AFTER:
        yield (
            f"It failed {found.failures} times in a row and is left alone in between: {found.reason or 'no reason is known'}",
            show,
        )
    if found.subscription_expires is not None and found.subscription_expires < (now + _EXPIRES_SOON).timestamp():
        ends = datetime.fromtimestamp(found.subscription_expires, UTC)
        yield f"Its subscription ends {ends:%Y-%m-%d %H:%M} UTC and was not renewed.", "Start the scheduler, or see its log."


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
