"""How long it takes from the command to the ready banner."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.figures import spread
from tests.bench.instance import READY, ROOT, instance
from tests.ports import free_port

WARM_RUNS = 5


def warm_start() -> list[dict[str, Any]]:
    """The first start of a home (initdb, migration), then the later ones."""
    with instance() as made:
        first = made.start()
        stops = [made.stop()]
        warm = []
        for _ in range(WARM_RUNS):
            warm.append(made.start())
            stops.append(made.stop())
    return [
        {"measure": "first start of a home, installed, s", **spread([first])},
        {"measure": "warm start to banner, s", **spread(warm)},
        {"measure": "Ctrl-C to end, s", **spread(stops)},
    ]


def fresh_make_run() -> list[dict[str, Any]]:
    """`make run` in a fresh clone without a virtual environment, package downloads or a warm cache of theirs included."""
    with tempfile.TemporaryDirectory(prefix="docwell-bench-") as name:
        Path(name).chmod(0o711)
        clone = Path(name) / "docwell"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        environment = {"DOCWELL_API_PORT": str(free_port()), "DOCWELL_MCP_PORT": str(free_port())}
        rows = []
        for what in ("fresh `make run` to banner, s", "second `make run` to banner, s"):
            began = time.perf_counter()
            process = subprocess.Popen(
                ["env", *(f"{key}={value}" for key, value in environment.items()), "make", "-C", str(clone), "run"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            seconds = next((time.perf_counter() - began for line in process.stdout if READY in line), None)
            _interrupt(process)
            rows.append({"measure": what, **spread([seconds or float("nan")])})
        shutil.rmtree(clone)
    return rows


def _interrupt(process: subprocess.Popen[str]) -> None:
    import os

    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)
    if process.stdout is not None:
        process.stdout.close()
