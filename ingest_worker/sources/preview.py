"""What a source would give, without taking any of it: its listing counted and compared with what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.sources.naming import fit_path
from ingest_worker.sources.protocol import Item, Source
from ingest_worker.sources.steps import Step, next_step

EXAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a listing came to. `size` is in bytes, of those things that tell theirs; `whole`: it was listed to its end.

    `new`, `changed` (their bytes), `facts` (only what is said of them), `moved`, `unchanged` and `gone` compare with what is
    known; `gone` is None when the listing was not whole. `failed` counts things that the source did not tell of, and what could
    not be listed; `failures` says why, for some.
    """

    items: int
    total: int | None
    size: int
    by_ending: dict[str, int]
    too_large: int
    restricted: int
    new: int
    changed: int
    facts: int
    moved: int
    unchanged: int
    gone: int | None
    whole: bool
    failed: int
    failures: tuple[str, ...]
    examples: tuple[str, ...]


def preview(
    source: Source,
    *,
    max_bytes: int,
    most: int,
    now: datetime,
    facts: Callable[[Item], str] = lambda _: "",
    known: Callable[[Sequence[str]], Mapping[str, KnownItem]] = lambda _: {},
    known_total: int = 0,
) -> Preview:
    """List at most about `most` things (a batch is not cut). Nothing is read and nothing stored.

    Raises: what the source raises.
    """
    counts: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    seen: set[str] = set()
    examples: list[str] = []
    failures: list[str] = []
    total, whole = None, True
    for batch in source.everything():
        total = batch.total if batch.total is not None else total
        stored = known([item.key for item in batch.items])
        counts["failed"] += len(batch.failed)
        failures += [f"{one.path or one.key}: {one.error}" for one in batch.failed[: EXAMPLES - len(failures)]]
        for item in batch.items:
            if item.key in seen:
                continue
            seen.add(item.key)
            path = fit_path(item.path, item.key)
            if len(examples) < EXAMPLES:
                examples.append(path)
            endings[PurePosixPath(path).suffix.lower() or item.media_type or "no ending"] += 1
            counts["size"] += item.size or 0
            counts["too_large"] += item.size is not None and item.size > max_bytes
            counts["restricted"] += item.readers is not None
            counts[_difference(item, path, stored.get(item.key), facts(item), now)] += 1
        if len(seen) >= most:
            whole = False
            break
    present = len(seen) - counts["new"]
    return Preview(
        items=len(seen),
        total=total,
        size=counts["size"],
        by_ending=dict(endings.most_common()),
        too_large=counts["too_large"],
        restricted=counts["restricted"],
        new=counts["new"],
        changed=counts["changed"],
        facts=counts["facts"],
        moved=counts["moved"],
        unchanged=counts["unchanged"],
        gone=max(0, known_total - present) if whole and not counts["failed"] else None,
        whole=whole,
        failed=counts["failed"],
        failures=tuple(failures),
        examples=tuple(examples),
    )


def _difference(item: Item, path: str, known: KnownItem | None, facts: str, now: datetime) -> str:
    step = next_step(item, known, facts=facts, now=now, whole=True)
    if known is None or known.document_id is None:
        return "new"
    if known.path != path:
        return "moved"
    return {Step.READ: "changed", Step.FACTS: "facts"}.get(step, "unchanged")
