"""How long after something was killed the next document is found."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

from query_server.assembly import open_service
from query_server.service import SearchService
from shared.errors import DocwellError
from tests.bench.figures import spread
from tests.bench.instance import wait_for
from tests.faults.plan import Blow, BlowStep
from tests.faults.stage import Stage, open_stage

RUNS = 3
BLOWS = (
    Blow.CHILD,
    Blow.PARSER,
    Blow.WORKER,
    Blow.WATCH,
    Blow.SCHEDULER,
    Blow.API,
    Blow.MCP,
    Blow.REDIS,
    Blow.REDIS_FLUSHED,
    Blow.BACKEND,
    Blow.POSTGRES,
    Blow.EVERYTHING,
)
# As a user has them, rather than as a campaign does.
_DEFAULTS = {
    "DOCWELL_WATCH_SETTLE_SECONDS": "1.0",
    "DOCWELL_WATCH_RESCAN_SECONDS": "300",
    "DOCWELL_DELETE_GRACE_SECONDS": "2",
    "DOCWELL_JOB_LEASE_SECONDS": "60",
}
_PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 3.0
"""Between two kills. All kinds in turn, so that no service is killed so often that its supervisor waits longer each time."""


def recovery() -> list[dict[str, Any]]:
    """From the kill to the moment when a search finds a file that was renamed into the inbox right after it.

    The settle time of 1 s is in all figures; the first row is without any kill.
    """
    seconds: dict[str, list[float]] = {}
    with open_stage(**_DEFAULTS) as stage, open_service(stage.settings) as service:
        _drop(stage, service, "warm-up")
        for run in range(RUNS):
            for blow in (None, *BLOWS):
                name = "nothing killed" if blow is None else blow.value
                began = time.perf_counter()
                if blow is not None and not stage.strike(BlowStep(after=0.0, blow=blow, draw=run / RUNS, lasting=0.0)):
                    continue
                _drop(stage, service, f"r{run}n{len(seconds)}k{time.monotonic_ns()}")
                seconds.setdefault(name, []).append(time.perf_counter() - began)
                print(f"  run {run + 1}: {name} {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
                time.sleep(_PAUSE_SECONDS)
    return [{"after": name, **spread(values)} for name, values in seconds.items()]


def _drop(stage: Stage, service: SearchService, name: str) -> None:
    marker = f"marker-{name}-xyzzy"
    draft = stage.made.folder / f"{name}.md"
    draft.write_text(f"# {name}\n\n{marker} stands on this page, which says nothing else.\n")
    draft.rename(stage.made.inbox / draft.name)
    wait_for(lambda: _found(service, marker), seconds=_PATIENCE_SECONDS, what=f"{name} in the index", every=0.02)


def _found(service: SearchService, marker: str) -> bool:
    with suppress(DocwellError):
        return any(marker in result["text"] for result in service.search(marker, mode="keyword")["results"])
    return False
