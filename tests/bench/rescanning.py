"""A folder of many small files, looked through: the first time, and again when nothing has changed, beside a bare walk.

Each run alternates with a walk that only lists and stats, in the process that sweeps; its peak memory is its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.figures import spread

SIZES = (10_000, 100_000)
A_FOLDER = 100
RUNS = 7
_TIME = 1_700_000_000


def unchanged() -> list[dict[str, Any]]:
    """First scan and unchanged rescan of small files, by their number."""
    return [_measure(count) for count in SIZES]


def _measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="docwell-bench-") as name, _database(Path(name)) as url:
        root = Path(name) / "docs"
        _make_files(root, count)
        first = _child("first", url, root)
        _mark_read(url)
        again = _child("again", url, root)
    ratios = [sweep / walk for sweep, walk in zip(again["sweeps"], again["walks"], strict=True)]
    sweeps, ratio = spread(again["sweeps"]), spread(ratios)
    return {
        "files": count,
        "first scan, s": first["sweeps"][0],
        "files/s": count / first["sweeps"][0],
        "bare walk, s p50": spread(again["walks"])["p50"],
        "rescan, s p50": sweeps["p50"],
        "min": sweeps["min"],
        "max": sweeps["max"],
        "rescan / walk p50": ratio["p50"],
        "its max": ratio["max"],
        "MiB before": again["before"],
        "MiB peak, first": first["peak"],
        "MiB peak, rescan": again["peak"],
        "runs": len(ratios),
    }


def _make_files(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"folder {number // A_FOLDER:05}"
        if number % A_FOLDER == 0:
            folder.mkdir(parents=True)
        path = folder / f"document {number:06}.md"
        path.write_text(f"# Document {number}\n")
        os.utime(path, (_TIME, _TIME))


@contextmanager
def _database(folder: Path) -> Iterator[str]:
    """A migrated PostgreSQL of its own, as `docwell up` sets it."""
    from infra.local.postgres import EmbeddedPostgres
    from infra.migrate import migrate

    folder.chmod(0o711)
    server = EmbeddedPostgres(folder / "home")
    server.start()
    try:
        migrate(server.url_owner, server.url_reader)
        yield server.url_owner
    finally:
        server.stop()


def _mark_read(url: str) -> None:
    """As if workers had read every file: what is measured is the sweep alone."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE docwell.document SET state = 'indexed', modified_ns = %s, sha256 = sha256(convert_to(path, 'UTF8')),"
            " size = octet_length('# Document ' || ltrim(substr(path, 23, 6), '0') || chr(10))"
            " + CASE WHEN substr(path, 23, 6) = '000000' THEN 1 ELSE 0 END",
            (_TIME * 1_000_000_000,),
        )
        connection.execute("DELETE FROM docwell.job")
        connection.execute("VACUUM ANALYZE")


def _child(what: str, url: str, root: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.rescanning", what, url, str(root)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _bare_walk(root: str) -> int:
    """The least that anybody must do: list every folder and stat every file."""
    files, folders = 0, [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
                    files += 1
    return files


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak() -> int:
    """The most memory that this program had at a time, in MiB. `ru_maxrss` would count what its parent had before it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def main(what: str, url: str, root: str) -> None:
    """In a process of its own: sweep once (`first`), or in turn with a bare walk (`again`), and print what was seen as JSON."""
    from ingest_worker.catalogue.sources import ensure_folder_source
    from ingest_worker.intake.ignore import IgnoreRules
    from ingest_worker.intake.rescan import SweepOptions, sweep
    from shared.config import FolderSettings
    from shared.database import open_pool

    options = SweepOptions(rest_seconds=1.0, grace_seconds=2.0)
    walks, sweeps = [], []
    with open_pool(url, name="bench-sweep", size=4) as pool:
        with pool.connection() as connection:
            source = ensure_folder_source(connection, FolderSettings(name="docs", root=Path(root)))
        before = _peak()

        def look_through() -> None:
            report = sweep(pool, source, IgnoreRules(Path(root)), lambda _: None, threading.Event(), options)
            if report.error is not None or (what == "again" and report.found_something):
                raise RuntimeError(f"not as expected: {report.counts} {report.error}")

        for _ in range(1 if what == "first" else RUNS):
            walks.append(_timed(lambda: _bare_walk(root)))
            sweeps.append(_timed(look_through))
    print(json.dumps({"walks": walks, "sweeps": sweeps, "before": before, "peak": _peak()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
