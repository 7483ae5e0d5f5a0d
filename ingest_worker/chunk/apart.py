"""Syntax trees in a process of their own, for grammars that may never come back: their scanners loop on some broken text.

No signal handler and no thread of Python gets a turn while a grammar runs, so only the end of its process ends it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import asdict
from typing import Final

import orjson

from ingest_worker.chunk.outlines import Definition, Outline

SECONDS: Final = 5
"""Processor time for one file; a file of a megabyte takes one."""


def outline_apart(text: str, language: str, *, seconds: int = SECONDS) -> Outline | None:
    """The outline of a text, or None when its grammar did not come to an end in time, or crashed."""
    command = [sys.executable, "-P", "-m", "ingest_worker.chunk.apart", language, str(seconds)]
    try:
        done = subprocess.run(
            command, input=text.encode("utf-8", "replace"), capture_output=True, timeout=seconds * 6, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        return None
    raw = orjson.loads(done.stdout)
    return Outline(
        ranks={int(line): rank for line, rank in raw["ranks"].items()},
        definitions=[Definition(**definition) for definition in raw["definitions"]],
    )


def main() -> None:
    """Read the outline of standard input, in the language of the first argument, within as many seconds as the second says."""
    # The kernel ends this process even when nobody waits for it any more.
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from ingest_worker.chunk.syntax import read_outline

    found = read_outline(sys.stdin.buffer.read().decode("utf-8"), sys.argv[1]) or Outline()
    ranks = {str(line): rank for line, rank in found.ranks.items()}
    answer = orjson.dumps({"ranks": ranks, "definitions": [asdict(definition) for definition in found.definitions]})
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
