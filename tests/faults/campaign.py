"""The campaign: documents come, change, move and go under load while things are killed, and readers check every answer.

`make faults ARGS="--seed 7 --minutes 20"`; without a seed a new one is drawn and printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from query_server.assembly import open_service  # noqa: E402
from shared.database import connect  # noqa: E402
from shared.errors import DocwellError  # noqa: E402
from tests.bench.figures import table  # noqa: E402
from tests.faults.asking import ThroughCode, ThroughMCP  # noqa: E402
from tests.faults.ledger import Ledger  # noqa: E402
from tests.faults.plan import Blow, Deed, blows, deeds  # noqa: E402
from tests.faults.profile import MINUTES, SEED, Effort  # noqa: E402
from tests.faults.reader import Findings, Reader  # noqa: E402
from tests.faults.stage import RESCAN_SECONDS, Stage, open_stage  # noqa: E402
from tests.faults.verdict import compare, pending  # noqa: E402
from tests.faults.writer import Writer  # noqa: E402

_WORD = re.compile(r"\bzq[a-z]{4}\b")
CALM_SECONDS = 120.0
"""So long after the last blow everything must have come to rest: the longest back-off of five attempts is half a minute."""


@dataclass(kw_only=True)
class Report:
    """What was done, and what came of it."""

    effort: Effort
    deeds: Counter[Deed] = field(default_factory=Counter)
    blows: Counter[Blow] = field(default_factory=Counter)
    documents: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    unavailable: int = 0
    calm_after: float = 0.0
    violations: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def note(self, what: str) -> None:
        self.log.append(f"{self.clock():8.2f} {what}")

    def __str__(self) -> str:
        rows: list[dict[str, Any]] = [{"what": "seed", "count": self.effort.seed}]
        rows += [{"what": deed.value, "count": count} for deed, count in sorted(self.deeds.items())]
        rows += [{"what": blow.value, "count": count} for blow, count in sorted(self.blows.items())]
        rows += [
            {"what": "kills and other blows", "count": self.blows.total()},
            {"what": "documents at the end", "count": self.documents},
            *({"what": f"answers checked: {how}", "count": count} for how, count in sorted(self.answers.items())),
            {"what": "questions that nobody could answer at the moment", "count": self.unavailable},
            {"what": "seconds from the last blow to rest", "count": round(self.calm_after, 1)},
            {"what": "violations", "count": len(self.violations)},
        ]
        return "\n".join([table(rows), *(f"- {one}" for one in self.violations), *self._history()])

    def _history(self) -> list[str]:
        """What was done to the documents that violations name, and the blows between."""
        names = {name for one in self.violations for name in _WORD.findall(one)}
        blows = {blow.value for blow in Blow}
        return [line for line in self.log if names and (names & set(_WORD.findall(line)) or any(blow in line for blow in blows))]


def run(effort: Effort, *, deed_every: float = 0.12, blow_every: float = 2.0, everything: bool = True) -> Report:
    """One campaign from the start of an instance to the comparison at its end."""
    report = Report(effort=effort)
    with open_stage() as stage:
        ledger, findings = Ledger(), Findings(clock=report.clock)
        try:
            with _readers(stage, ledger, findings, effort.seed):
                _storm(stage, ledger, report, deed_every, blow_every, everything=everything)
                _calm(stage, ledger, report)
        finally:
            report.answers, report.unavailable = findings.answers, findings.unavailable
            report.violations += findings.violations
            report.documents = sum(not entry.leaving for entry in ledger.all())
            if report.violations:
                _keep_logs(stage, report, findings)
    return report


@contextmanager
def _readers(stage: Stage, ledger: Ledger, findings: Findings, seed: int) -> Iterator[None]:
    stop = threading.Event()
    with open_service(stage.settings) as service, ThreadPoolExecutor(thread_name_prefix="reader") as threads:
        code, mcp = ThroughCode(service), ThroughMCP(lambda: str(stage.made.services["mcp_url"]))
        running = [
            threads.submit(Reader(f"reader {number}", code, ledger, findings, seed=seed).run, stop, pause=0.02)
            for number in range(2)
        ]
        running.append(threads.submit(Reader("client", mcp, ledger, findings, seed=seed).run, stop, pause=0.2))
        try:
            yield
        finally:
            stop.set()
            for one in running:
                one.result()


def _storm(stage: Stage, ledger: Ledger, report: Report, deed_every: float, blow_every: float, *, everything: bool) -> None:
    began = time.monotonic()
    over = threading.Event()
    writer = Writer(stage.made.inbox, ledger, stage.api_url, note=report.note, stop=threading.Event())

    def write() -> None:
        for step in deeds(report.effort.seed, every=deed_every):
            if over.wait(step.after):
                return
            writer.carry_out(step)

    def strike() -> None:
        for step in blows(report.effort.seed, every=blow_every):
            if over.wait(step.after):
                return
            if step.blow is Blow.EVERYTHING and not everything:
                continue
            report.note(step.blow.value)
            if stage.strike(step):
                report.blows[step.blow] += 1
            report.note(f"{step.blow.value} is over")

    with ThreadPoolExecutor(2, thread_name_prefix="storm") as threads:
        acting = [threads.submit(write), threads.submit(strike)]
        while not over.wait(0.2):
            if time.monotonic() - began > report.effort.seconds or any(one.done() for one in acting):
                over.set()
        stage.hurry()
        for one in acting:
            one.result()
    writer.close()
    report.deeds = Counter(writer.done)


def _calm(stage: Stage, ledger: Ledger, report: Report) -> None:
    """Wait until nothing is left to do after a sweep that began after the storm; then compare."""
    began = time.monotonic()
    differences = ["nothing was compared"]
    while differences and time.monotonic() - began < CALM_SECONDS:
        time.sleep(0.5)
        with suppress(DocwellError, psycopg.OperationalError), connect(_owner(stage), autocommit=True) as connection:
            if pending(connection) or not _swept_since(connection, time.monotonic() - began):
                differences = [f"it does not come to rest: {pending(connection)}, swept: {_swept_since(connection, 0)}"]
                continue
            differences = list(compare(connection, ledger))
    report.calm_after = time.monotonic() - began
    report.violations += differences


def _swept_since(connection: psycopg.Connection[Any], seconds: float) -> bool:
    row = connection.execute(
        "SELECT newest_sweep > now() - make_interval(secs => %s) FROM docwell.source WHERE name = 'inbox'", (seconds,)
    ).fetchone()
    return bool(row and row[0])


def _owner(stage: Stage) -> str:
    url = stage.settings.database_url
    assert url is not None
    return url.get_secret_value()


def _keep_logs(stage: Stage, report: Report, findings: Findings) -> None:
    kept = ROOT / "bench-results" / f"faults-{report.effort.seed}"
    kept.mkdir(parents=True, exist_ok=True)
    for log in (stage.made.folder / "home" / "logs").glob("*.log"):
        (kept / log.name).write_bytes(log.read_bytes())
    (kept / "storm.log").write_text("\n".join(report.log))
    (kept / "evidence.json").write_text(json.dumps(findings.evidence, indent=1, default=str))
    (kept / "report.md").write_text(str(report))


def main() -> int:
    """A long campaign, then the state machines with many more examples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="repeats the plan of an earlier run")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long things are broken")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}, {given.minutes:g} minutes, rescan every {RESCAN_SECONDS:g} s", flush=True)
    report = run(Effort(seed=seed, seconds=60 * given.minutes, explore=True))
    print(report, flush=True)
    machines = sorted(Path(__file__).parent.glob("test_*machine.py"))
    explored = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout=7200", *map(str, machines)],
        cwd=ROOT,
        env=os.environ | {MINUTES: str(given.minutes), SEED: str(seed)},
        check=False,
    )
    return 1 if report.violations else explored.returncode


if __name__ == "__main__":
    sys.exit(main())
