"""From a closed one-page file to a passage that a search finds."""

from __future__ import annotations

import time
from typing import Any

from shared.config import load_settings
from tests.bench.figures import spread
from tests.bench.instance import Instance, running, wait_for

FILES = 30
PAGE = "This page explains how cancelling works, and when the money comes back to the customer. " * 12


def file_to_searchable() -> list[dict[str, Any]]:
    """Each file is written beside the inbox and renamed into it: that moment is when it is closed."""
    with running() as made:
        settings, _ = load_settings(made.environment)
        settle = settings.watch_settle_seconds
        _drop(made, "warm-up")
        seconds = [_drop(made, f"file{number}") for number in range(FILES)]
    return [
        {"measure": "closed file to searchable, s", **spread(seconds)},
        {"measure": f"the same without the settle time of {settle} s", **spread([one - settle for one in seconds])},
    ]


def _drop(made: Instance, name: str) -> float:
    from infra.local.runtime import attach
    from query_server.assembly import open_service

    marker = f"marker-{name}-xyzzy"
    draft = made.folder / f"{name}.md"
    draft.write_text(f"# {name}\n\n{marker}\n\n{PAGE}\n")
    settings, _ = load_settings(made.environment)
    with open_service(attach(settings)) as service:
        service.search("nothing", mode="keyword")
        draft.rename(made.inbox / draft.name)
        began = time.perf_counter()
        wait_for(lambda: _found(service, marker), seconds=60, what=f"{name} in the index")
        return time.perf_counter() - began


def _found(service: Any, marker: str) -> bool:
    return any(marker in result["text"] for result in service.search(marker, mode="keyword")["results"])
