"""Jobs that were claimed together: done together where that is cheaper, and apart where one of them fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.pipeline import Tools, begin, enrich, keep, parse, serve
from ingest_worker.reading import JobReport, Reading, Ready, Unchanged, read_document
from shared.database import is_away
from shared.errors import Outage

MOST_BYTES = 8 * 1024 * 1024
"""Bytes of files that are held in memory before they are parsed; a larger file is read alone."""

LARGE_BYTES = 256 * 1024
"""A larger file may take minutes to parse and to embed: those that were claimed with it are done before."""

_TARGET_SECONDS = 1.0
_MOST_CHUNKS = 512

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A job, and its report or what stopped it."""

    job: ClaimedJob
    outcome: JobReport | Exception


class Pace:
    """How many passages are embedded and published at once: as many as take about a second, whatever the embedder's speed."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.most_chunks = 32

    def serve(self, ready: Sequence[Ready], tools: Tools) -> list[JobReport]:
        """`pipeline.serve`, timed."""
        began = self._clock()
        reports = serve(ready, tools)
        seconds = self._clock() - began
        if seconds > 2 * _TARGET_SECONDS:
            self.most_chunks = max(1, self.most_chunks // 2)
        elif seconds < _TARGET_SECONDS / 2:
            self.most_chunks = min(_MOST_CHUNKS, self.most_chunks * 2)
        return reports


def run_jobs(claimed: Sequence[ClaimedJob], tools: Tools, pace: Pace, *, enough: Callable[[], bool]) -> Iterator[Ended]:
    """Do these jobs; yields each when it has ended. When `enough()` says so, those that are not done are left alone.

    Raises:
        psycopg.OperationalError, PoolTimeout: PostgreSQL is away; what has not been yielded is not done.
    """
    stopped = fetch_pending(claimed, tools.pool, tools.settings)
    # Fetching alone may have taken long enough. What could not be fetched ends all the same: given back, it would be fetched
    # again and again, and never end.
    waiting = sorted(claimed, key=lambda job: job.document_id not in stopped)
    while waiting and (waiting[0].document_id in stopped or not enough()):
        readings: list[Reading] = []
        unchanged: list[Unchanged] = []
        ready: list[Ready] = []
        size = 0
        with tools.pool.connection() as connection:
            documents = catalogue.for_jobs(connection, [job.document_id for job in waiting])
            while waiting and size < MOST_BYTES:
                job = waiting.pop(0)
                with tools.work.stage("read", [job]):
                    read = _one(partial(read_document, connection, job, documents, tools.settings, stopped=stopped))
                if isinstance(read, Reading):
                    readings.append(read)
                    size += read.begins.content.size
                elif isinstance(read, Unchanged):
                    unchanged.append(replace(read, content=replace(read.content, data=b"")))
                elif isinstance(read, Ready):
                    ready.append(read)
                    size += read.size
                else:
                    yield Ended(job=job, outcome=read)
        for one, outcome in _each(unchanged, lambda some: keep(some, tools)):
            yield Ended(job=one.job, outcome=outcome)
        yield from _serve(ready, tools, pace)
        yield from _run_read(readings, tools, pace, enough)


def _run_read(readings: Sequence[Reading], tools: Tools, pace: Pace, enough: Callable[[], bool]) -> Iterator[Ended]:
    begun: list[tuple[Reading, int]] = []
    for reading, version_id in _each(readings, lambda some: begin(some, tools)):
        if isinstance(version_id, int):
            begun.append((reading, version_id))
        else:
            yield Ended(job=reading.job, outcome=version_id)
    small = [one for one in begun if one[0].size <= LARGE_BYTES]
    yield from _run_begun(small, tools, pace, enough)
    # Of the large ones the first is done even when time is up: it would be put behind those that come meanwhile for ever.
    for place, one in enumerate(one for one in begun if one[0].size > LARGE_BYTES):
        if place and enough():
            return
        yield from _run_begun([one], tools, pace, enough)


def _run_begun(begun: Sequence[tuple[Reading, int]], tools: Tools, pace: Pace, enough: Callable[[], bool]) -> Iterator[Ended]:
    ready: list[Ready] = []
    for reading, version_id in begun:
        parsed = _one(partial(parse, reading, version_id, tools))
        if isinstance(parsed, Ready):
            ready.append(parsed)
        else:
            yield Ended(job=reading.job, outcome=parsed)
        is_much = sum(one.size for one in ready) >= MOST_BYTES
        if is_much or sum(len(one.version.chunks) for one in ready) >= pace.most_chunks:
            yield from _serve(ready, tools, pace)
            ready = []
            if enough():
                return
    yield from _serve(ready, tools, pace)


def _serve(ready: Sequence[Ready], tools: Tools, pace: Pace) -> Iterator[Ended]:
    # Before the clock of the pace: what a paid model takes says nothing of the embedder's speed.
    enriched: list[Ready] = []
    for one, outcome in _each(ready, lambda some: enrich(some, tools)):
        if isinstance(outcome, Ready):
            enriched.append(outcome)
        else:
            yield Ended(job=one.job, outcome=outcome)
    for one, served in _each(enriched, lambda some: pace.serve(some, tools)):
        yield Ended(job=one.job, outcome=served)


def _each(items: Sequence[Item], do: Callable[[Sequence[Item]], list[Result]]) -> Iterator[tuple[Item, Result | Exception]]:
    """Do all at once; when that fails, one by one, so that only the culprit fails. An outage stops all of them alike."""
    if not items:
        return
    results = _one(partial(do, items))
    if not isinstance(results, Exception):
        yield from zip(items, results, strict=True)
    elif len(items) == 1 or isinstance(results, Outage):
        yield from ((item, results) for item in items)
    else:
        for item in items:
            yield from _each([item], do)


def _one(do: Callable[[], Result]) -> Result | Exception:
    """What was done, or what stopped it; the loss of PostgreSQL is raised, since it stops everything."""
    try:
        return do()
    except Exception as error:
        if is_away(error):
            raise
        return error
