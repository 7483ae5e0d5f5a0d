"""What becomes of a collection of files of many formats, and how fast; and the same beside the general parser."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingest_worker.judging import judge
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.file import File
from ingest_worker.parse.formats import FormatKind
from ingest_worker.parse.general import parse_generally
from ingest_worker.parse.parse import parse
from ingest_worker.parse.registry import detect
from shared.errors import PermanentError
from tests.bench.instance import ROOT

CORPORA = Path(os.environ.get("CORPORA", ROOT.parent / "shared" / "corpora"))
SECONDS = 0.5
"""How long the files of a format are read again and again to time them."""


def files() -> list[Path]:
    """The files of the collection, without its own list."""
    return sorted(path for path in CORPORA.rglob("*") if path.is_file() and path.name != "MANIFEST.jsonl")


def states() -> list[dict[str, Any]]:
    """Each file through the caged parser and the chunker, as a worker does it; the faster of two times, the peak of both."""
    if not CORPORA.is_dir():
        return [{"file": "the collection is not there (CORPORA), left out"}]
    with ParserCage(CageLimits()) as cage:
        cage.parse_and_chunk("warm.txt", b"warm", 480, 80)
        return [_state(cage, path) for path in files()]


def _state(cage: ParserCage, path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    _forget_peak(cage)
    times: list[float] = []
    row: dict[str, Any] = {}
    for _ in range(2):
        began = time.perf_counter()
        try:
            parsed = cage.parse_and_chunk(path.name, data, 480, 80)
            state, _, reason = judge(parsed)
            row = {"state": state.value, "pages": _pages(parsed.pages_with_text, parsed.page_count), "chunks": len(parsed.chunks)}
            row["reason"] = reason
        except PermanentError as error:
            state_name = "skipped" if isinstance(error, Skipped) else "failed"
            row = {"state": state_name, "pages": None, "chunks": 0, "reason": f"{error.code}: {error}"}
        times.append(time.perf_counter() - began)
    return {
        "file": path.relative_to(CORPORA).as_posix(),
        "kB": len(data) / 1000,
        **{name: row[name] for name in ("state", "pages", "chunks")},
        "s": min(times),
        "peak MB": _peak(cage),
        "reason": row["reason"],
    }


def _pages(with_text: int | None, count: int | None) -> str | None:
    return None if count is None else f"{with_text}/{count}"


def _forget_peak(cage: ParserCage) -> None:
    with suppress(OSError):
        Path(f"/proc/{cage.pid}/clear_refs").write_text("5", encoding="ascii")


def _peak(cage: ParserCage) -> float | None:
    """The most memory that the child had in RAM, None when it ended with the file."""
    with suppress(OSError):
        for line in Path(f"/proc/{cage.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None


def beside_general() -> list[dict[str, Any]]:
    """By format: seconds for one reading of all its files, and the characters found, here and by `unstructured`; both warm."""
    if not CORPORA.is_dir():
        return [{"format": "the collection is not there (CORPORA), left out"}]
    by_kind: dict[FormatKind, list[File]] = {}
    for path in files():
        data = path.read_bytes()
        with suppress(PermanentError):
            by_kind.setdefault(detect(path.name, data).kind, []).append(File(name=path.name, data=data))
    rows = []
    for kind in (FormatKind.WORD, FormatKind.SLIDES, FormatKind.SHEETS, FormatKind.HTML, FormatKind.MAIL, FormatKind.OUTLOOK):
        ours, general = _timed(by_kind[kind], _own), _timed(by_kind[kind], lambda file, kind=kind: _general(file, kind))
        rows.append(
            {
                "format": kind.value,
                "files": len(by_kind[kind]),
                "s": ours[0],
                "s, unstructured": general[0],
                "times as fast": general[0] / ours[0],
                "characters": ours[1],
                "characters, unstructured": general[1],
                "without text": ours[2],
                "without text, unstructured": general[2],
            }
        )
    return rows


def _timed(found: list[File], read: Callable[[File], int]) -> tuple[float, int, int]:
    """Seconds of one round, characters, and the files without any."""
    counts = [read(file) for file in found]
    rounds, began = 0, time.process_time()
    while rounds == 0 or time.process_time() - began < SECONDS:
        for file in found:
            read(file)
        rounds += 1
    return (time.process_time() - began) / rounds, sum(counts), counts.count(0)


def _own(file: File) -> int:
    try:
        return sum(len(element.text) for element in parse(file.name, file.data).elements)
    except PermanentError:
        return 0


def _general(file: File, kind: FormatKind) -> int:
    parsed = parse_generally(file, kind, "measured")
    return 0 if parsed is None else sum(len(element.text) for element in parsed.elements)
