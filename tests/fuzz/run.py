"""`make fuzz`: spoilt files through the caged parser, a minute for each. What fails is kept, and the tests read it from then on.

`make fuzz ARGS="pdf source"` tries some parsers; `SECONDS_EACH` changes the minute, `CORPORA` names a folder of more seeds.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ingest_worker.parse.cage import CageLimits, ParserCage  # noqa: E402
from ingest_worker.parse.general import WARNING  # noqa: E402
from shared.errors import PermanentError  # noqa: E402
from tests.fuzz.good import PASSWORD  # noqa: E402
from tests.fuzz.mutating import KEPT, seeds, spoilt  # noqa: E402

LIMITS = CageLimits(timeout_seconds=20.0, recycle_documents=5_000, passwords=(PASSWORD,))
NEVER = frozenset(("parser_error", "parser_timeout", "parser_crashed"))
"""Reasons that are a parser's fault, and not the file's."""


_STUMBLED = WARNING.partition("{")[0]


class Fault(AssertionError):
    """A file ended in a way that no file may."""


def check(cage: ParserCage, name: str, data: bytes) -> None:
    """Read a file.

    Raises:
        Fault: its end is the parser's fault, its parser stumbled and the general one was asked, or chunks lie about their size.
    """
    try:
        parsed = cage.parse_and_chunk(name, data, 480, 80)
    except PermanentError as error:
        if error.code in NEVER:
            raise Fault(f"{name}: {error.code}: {error}") from error
        return
    if any(warning.startswith(_STUMBLED) for warning in parsed.warnings):
        raise Fault(f"{name}: its parser stumbled: {parsed.warnings}")
    if any(not chunk.text.strip() or not 0 < chunk.tokens <= 480 for chunk in parsed.chunks):
        raise Fault(f"{name}: an empty chunk, or one that is too large")


def fuzz(files: list[tuple[str, bytes]], seconds: float) -> tuple[int, list[tuple[str, bytes, str]]]:
    """Spoil and read until the time is over; how many were read, and the smallest file of each fault."""
    read = 0
    faults: list[tuple[str, bytes, str]] = []
    deadline = time.monotonic() + seconds
    first = time.time_ns()
    with ParserCage(LIMITS) as cage:
        for number in range(10_000):
            if time.monotonic() >= deadline or len(faults) >= 5:
                break
            tried, fault = _round(cage, files, first + number)
            read += tried
            if fault is not None:
                faults.append(fault)
    return read, faults


def _round(cage: ParserCage, files: list[tuple[str, bytes]], number: int) -> tuple[int, tuple[str, bytes, str] | None]:
    """Forty spoilt files; how many were read, and the smallest one that fails."""
    read = 0
    last: tuple[str, bytes] = ("", b"")

    @seed(number)
    @settings(
        max_examples=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(spoilt(files))
    def one(file: tuple[str, bytes]) -> None:
        nonlocal read, last
        read += 1
        last = file
        check(cage, *file)

    try:
        one()
    except Fault as fault:
        return read, (*last, str(fault))
    return read, None


def main(names: list[str]) -> int:
    """Fuzz the named parsers, or all."""
    seconds = float(os.environ.get("SECONDS_EACH", "60"))
    found = seeds()
    failed = False
    for name in names or list(found):
        read, faults = fuzz(found[name], seconds)
        print(f"{name}: {read} spoilt files read, {len(faults)} faults", flush=True)
        for file, data, said in faults:
            failed = True
            kept = KEPT / f"{hashlib.sha256(data).hexdigest()[:12]}-{Path(file).name}"
            kept.write_bytes(data)
            print(f"  {said[:300]}\n  kept as {kept.relative_to(ROOT)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
