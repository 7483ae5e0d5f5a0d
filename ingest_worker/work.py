"""What a worker process has done: counted and timed here, added up in PostgreSQL, and told to whoever traces."""

from __future__ import annotations

import bisect
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ingest_worker.jobs.table import ClaimedJob
from shared.tracing import Stage

STAGES = ("read", "parse", "chunk", "embed", "publish")
"""What a job goes through. Jobs that were claimed together are embedded and published together."""

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the stages' histogram, in seconds; the last bucket has none."""

STAGE_SECONDS = "job_stage_seconds"
JOBS_FINISHED = "jobs_finished"
EMBEDDING_REQUESTS = "embedding_requests"
EMBEDDING_TEXTS = "embedding_texts"
EMBEDDING_TOKENS = "embedding_tokens"
PARSER_STOPS = "parser_stops"


class Work:
    """The books of one process. Use it from one thread, like the parser's cage."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._totals: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        self._stages: defaultdict[uuid.UUID, list[Stage]] = defaultdict(list)

    def count(self, name: str, label: str = "", detail: str = "", *, by: float = 1.0) -> None:
        """Add to a number."""
        self._totals[name, label, detail] += by

    @contextmanager
    def stage(self, name: str, jobs: Sequence[ClaimedJob]) -> Iterator[None]:
        """Time a stage that these jobs go through together, well or not."""
        began = self.clock()
        try:
            yield
        finally:
            self.passed(Stage(name=name, began=began, ended=self.clock()), jobs)

    def passed(self, stage: Stage, jobs: Sequence[ClaimedJob]) -> None:
        """These jobs went through a stage together: once for the totals, and for each of them in its trace."""
        place = bisect.bisect_left(BUCKETS, stage.seconds)
        self.count(STAGE_SECONDS, stage.name, f"{BUCKETS[place]:g}" if place < len(BUCKETS) else "+Inf")
        self.count(STAGE_SECONDS, stage.name, "sum", by=stage.seconds)
        for job in jobs:
            self._stages[job.job_id].append(stage)

    def stages(self, job: ClaimedJob) -> list[Stage]:
        """What a job that ended went through, to be told once."""
        return self._stages.pop(job.job_id, [])

    def take(self) -> dict[tuple[str, str, str], float]:
        """What was counted since it was taken last. Stages of jobs that were given back are forgotten."""
        taken = dict(self._totals)
        self._totals.clear()
        self._stages.clear()
        return taken

    def put_back(self, taken: dict[tuple[str, str, str], float]) -> None:
        """What could not be kept is taken again next time."""
        for key, value in taken.items():
            self._totals[key] += value
