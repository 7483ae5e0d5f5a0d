"""Jobs that were claimed together: done together where that is cheaper, and apart where one of them fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.intake.fetching import fetch_pending
from ingest_worker.jobs.lane import LONG_SECONDS, Lane, full
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.pipeline import Tools, begin, count_lacking, enrich, keep, parse, serve
from ingest_worker.reading import JobReport, Reading, Ready, Unchanged, read_document
from shared.database import is_away
from shared.errors import Outage

MOST_BYTES = 8 * 1024 * 1024
"""Bytes of files that are held in memory before they are parsed; a larger file is read alone."""

LARGE_BYTES = 256 * 1024
"""A larger file may take minutes to parse and to embed: those that were claimed with it are done before."""

ALONE_SECONDS = 5.0
"""One that takes longer than this to embed is embedded alone."""

_TARGET_SECONDS = 1.0
_MOST_CHUNKS = 512
_TELLING_CHUNKS = 16

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
        self.per_second = 32.0
        """Passages that are embedded and published in a second, where there are enough of them to tell."""

    def serve(self, ready: Sequence[Ready], tools: Tools) -> list[JobReport]:
        """`pipeline.serve`, timed."""
        began = self._clock()
        reports = serve(ready, tools)
        whole = self._clock() - began
        embedded = sum(one.embedded for one in reports)
        if embedded >= _TELLING_CHUNKS and whole > 0:
            self.per_second = (self.per_second + embedded / whole) / 2
        # Of a document that is larger than what goes together, its part.
        passages = sum(len(one.version.chunks) for one in ready)
        seconds = whole * min(1.0, self.most_chunks / max(1, passages))
        if seconds > 2 * _TARGET_SECONDS:
            self.most_chunks = max(1, self.most_chunks // 2)
        elif seconds < _TARGET_SECONDS / 2:
            self.most_chunks = min(_MOST_CHUNKS, self.most_chunks * 2)
        return reports


def run_jobs(
    claimed: Sequence[ClaimedJob],
    tools: Tools,
    pace: Pace,
    *,
    enough: Callable[[], bool],
    take: Callable[[ClaimedJob], bool] = lambda _job: True,
    lane: Lane | None = None,
) -> Iterator[Ended]:
    """Do these jobs; yields each when it has ended. When `enough()` says so, those that are not done are left alone.

    `take` is asked before one is begun: False, it went back to the queue meanwhile. What takes minutes goes through the `lane`.

    Raises:
        psycopg.OperationalError, PoolTimeout: PostgreSQL is away; what has not been yielded is not done.
    """
    yield from _Batch(tools=tools, pace=pace, enough=enough, take=take, lane=lane).run(claimed)


@dataclass(frozen=True, kw_only=True)
class _Batch:
    tools: Tools
    pace: Pace
    enough: Callable[[], bool]
    take: Callable[[ClaimedJob], bool]
    lane: Lane | None

    def run(self, claimed: Sequence[ClaimedJob]) -> Iterator[Ended]:
        tools = self.tools
        stopped = fetch_pending(claimed, tools.pool, tools.settings)
        # Fetching alone may have taken long enough. What could not be fetched ends all the same: given back, it would be fetched
        # again and again, and never end.
        waiting = sorted(claimed, key=lambda job: job.document_id not in stopped)
        while waiting and (waiting[0].document_id in stopped or not self.enough()):
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
            for one, outcome in _each([one for one in unchanged if self.take(one.job)], lambda some: keep(some, tools)):
                yield Ended(job=one.job, outcome=outcome)
            yield from self._serve([one for one in ready if self.take(one.job)])
            yield from self._run_read(readings)

    def _run_read(self, readings: Sequence[Reading]) -> Iterator[Ended]:
        begun: list[tuple[Reading, int]] = []
        for reading, version_id in _each(readings, lambda some: begin(some, self.tools)):
            if isinstance(version_id, int):
                begun.append((reading, version_id))
            else:
                yield Ended(job=reading.job, outcome=version_id)
        large = [one for one in begun if one[0].size > LARGE_BYTES]
        # Of the large ones the first is done even when time is up: it would be put behind those that come meanwhile for ever.
        for reading, _ in large[:1]:
            self.take(reading.job)
        yield from self._run_begun([one for one in begun if one[0].size <= LARGE_BYTES])
        for place, one in enumerate(large):
            if place and self.enough():
                return
            yield from self._run_begun([one])

    def _run_begun(self, begun: Sequence[tuple[Reading, int]]) -> Iterator[Ended]:
        ready: list[Ready] = []
        for reading, version_id in begun:
            if not self.take(reading.job):
                continue
            if self._is_long(reading):
                yield from self._serve(ready)
                ready = []
                yield from self._run_long(reading, version_id)
                continue
            parsed = _one(partial(parse, reading, version_id, self.tools))
            if not isinstance(parsed, Ready):
                yield Ended(job=reading.job, outcome=parsed)
                continue
            seconds = self._seconds(parsed)
            if seconds > ALONE_SECONDS:  # those that are parsed do not wait for it
                yield from self._serve(ready)
                ready = []
            if seconds > LONG_SECONDS and self.lane is not None:
                self.lane.note(reading.job.document_id, reading.begins.content.sha256)
                yield from self._run_long(reading, version_id, parsed)
                continue
            ready.append(parsed)
            is_much = sum(one.size for one in ready) >= MOST_BYTES
            if is_much or sum(len(one.version.chunks) for one in ready) >= self.pace.most_chunks:
                yield from self._serve(ready)
                ready = []
                if self.enough():
                    return
        yield from self._serve(ready)

    def _is_long(self, reading: Reading) -> bool:
        return self.lane is not None and self.lane.is_long(reading.job.document_id, reading.begins.content.sha256)

    def _seconds(self, parsed: Ready) -> float:
        """About how long its passages take to embed; 0.0 where that is not worth a look."""
        if len(parsed.version.chunks) <= ALONE_SECONDS * self.pace.per_second:
            return 0.0
        lacking = _one(partial(count_lacking, parsed, self.tools))
        return 0.0 if isinstance(lacking, Exception) else lacking / self.pace.per_second  # embedding meets it again, and says it

    def _run_long(self, reading: Reading, version_id: int, parsed: Ready | None = None) -> Iterator[Ended]:
        """One that takes minutes, unless others that do leave no room for it."""
        if self.lane is None:
            raise AssertionError("No document is long without a lane.")
        with self.lane.place() as is_free:
            if is_free:
                ready = parsed if parsed is not None else _one(partial(parse, reading, version_id, self.tools))
                if isinstance(ready, Ready):
                    yield from self._serve([ready])
                else:
                    yield Ended(job=reading.job, outcome=ready)
            else:
                yield Ended(job=reading.job, outcome=full(reading.begins.document.path))

    def _serve(self, ready: Sequence[Ready]) -> Iterator[Ended]:
        # Before the clock of the pace: what a paid model takes says nothing of the embedder's speed.
        enriched: list[Ready] = []
        for one, outcome in _each(ready, lambda some: enrich(some, self.tools)):
            if isinstance(outcome, Ready):
                enriched.append(outcome)
            else:
                yield Ended(job=one.job, outcome=outcome)
        for one, served in _each(enriched, lambda some: self.pace.serve(some, self.tools)):
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
