"""`make bench`: run the measurements, print them as tables, keep them as JSON in `bench-results/`.

`make bench ARGS="start latency"` runs some of them. See docs/measurements.md for what was seen.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import (  # noqa: E402
    calibrating,
    chunking,
    contexts,
    costing,
    editing,
    hooking,
    ingesting,
    keywords,
    latency,
    listing,
    loading,
    over_stdio,
    parsing,
    querying,
    reading,
    recovering,
    rescanning,
    retrieving,
    scaling,
    serving,
    source_hooking,
    starting,
)
from tests.bench.figures import table  # noqa: E402

MEASURES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "start": starting.warm_start,
    "fresh": starting.fresh_make_run,
    "latency": latency.file_to_searchable,
    "ingest": ingesting.compare,
    "edit": editing.one_paragraph,
    "rescan": rescanning.unchanged,
    "scaling": scaling.scaling,
    "query": querying.hybrid_latency,
    "mcp": serving.mcp_load,
    "stdio": over_stdio.stdio_latency,
    "load": loading.search_during_ingest,
    "webhooks": hooking.webhook_latency,
    "source_webhooks": source_hooking.source_webhook_latency,
    "listing": listing.first_listing,
    "recovery": recovering.recovery,
    "chunks": chunking.sizes,
    "evidence": calibrating.evidence,
    "retrieval": retrieving.hit_rates,
    "context": contexts.with_and_without,
    "costs": costing.calls_and_tokens,
    "keyword": keywords.agreement,
    "corpora": reading.states,
    "parsers": reading.beside_general,
    "parsing": parsing.pages_a_second,
    "formats": parsing.formats,
    "memory": parsing.memory,
}


def main(names: list[str]) -> int:
    """Run the named measurements, or all."""
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. There are: {', '.join(MEASURES)}.", file=sys.stderr)
        return 2
    results = ROOT / "bench-results"
    results.mkdir(exist_ok=True)
    for name in names or list(MEASURES):
        load = os.getloadavg()[0]
        rows = MEASURES[name]()
        print(f"\n## {name} (load before: {load:.2f}, {os.cpu_count()} cores, Python {platform.python_version()})\n")
        print(table(rows), flush=True)
        record = {"measured": datetime.datetime.now(datetime.UTC).isoformat(), "load": load, "rows": rows}
        (results / f"{name}.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
