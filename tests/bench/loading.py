"""How long a hybrid search takes while a thousand documents come in, against when nothing does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.local.runtime import attach
from query_server.assembly import open_service
from query_server.service import SearchService
from shared.config import load_settings
from tests.bench.figures import spread
from tests.bench.ingesting import make_corpus, stub, stub_settings
from tests.bench.instance import running

DOCUMENTS = 1000
SEARCHES = 300
_PATIENCE_SECONDS = 900.0


def search_during_ingest() -> list[dict[str, Any]]:
    """The 300-file corpus is there; then 1,000 more of four sections each come into the inbox at once, with the stub embedder.

    The client rests 20 ms after each answer, as people do for longer.
    """
    with stub() as url, running(stub_settings(url)) as made:
        corpus = made.folder / "corpus"
        corpus.mkdir()
        make_corpus(corpus)
        made.run("ingest", str(corpus))
        settings, _ = load_settings(made.environment)
        with open_service(attach(settings)) as service:
            idle = _ask(service, lambda asked, _answer: asked >= SEARCHES)
            _fill(made.inbox)
            began = time.perf_counter()
            busy = _ask(service, lambda asked, answer: asked > 50 and _is_over(service, answer, began))
            seconds = time.perf_counter() - began
            after = _ask(service, lambda asked, _answer: asked >= SEARCHES)
    rows = [
        {"hybrid search, ms": "while nothing comes in", **spread(idle)},
        {"hybrid search, ms": f"while {DOCUMENTS} documents come in ({DOCUMENTS / seconds:.0f} a second)", **spread(busy)},
        {"hybrid search, ms": "afterwards", **spread(after)},
    ]
    ratios = {key: rows[1][key] / rows[0][key] for key in ("p50", "p95")}
    return [*rows, {"hybrid search, ms": "during / idle", **ratios}]


def _ask(service: SearchService, enough: Callable[[int, dict[str, Any]], bool]) -> list[float]:
    times: list[float] = []
    rng = random.Random(len(times))
    while True:
        number = rng.randrange(300)
        query = f"term{number * 7 % 4000} term{number * 13 % 4000} ERR-{number:04d}-05 marker"
        began = time.perf_counter()
        answer = service.search(query)
        times.append((time.perf_counter() - began) * 1000)
        if enough(len(times), answer):
            return times
        time.sleep(0.02)


def _fill(inbox: Path) -> None:
    rng = random.Random(11)
    words = [f"term{number}" for number in range(4000)]
    for number in range(DOCUMENTS):
        sections = [
            f"## Section {part}\n\n{' '.join(rng.choices(words, k=110))} NEW-{number:04d}-{part:02d}.\n" for part in range(4)
        ]
        (inbox / f"new{number:04d}.md").write_text("\n".join([f"# New {number}\n", *sections]))


def _is_over(service: SearchService, answer: dict[str, Any], began: float) -> bool:
    if time.perf_counter() - began > _PATIENCE_SECONDS:
        raise TimeoutError("the documents did not all come in")
    if answer["pending_in_scope"]:
        return False
    return bool(service.status()["by_state"].get("indexed", 0) >= DOCUMENTS + 300)
