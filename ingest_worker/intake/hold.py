"""When files that are gone are no deletions: a share that is not mounted, or not whole, looks as if somebody had deleted all."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ingest_worker.intake.orders import Remove

HOLD_FROM = 20
"""A sweep that would delete this many documents, and more than half of its source, deletes none until a person approves."""


def must_hold(gone: int, total: int) -> bool:
    """Whether so many deletions of a source look like a share that is not mounted rather than like somebody's wish."""
    return gone >= HOLD_FROM and gone * 2 > total


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is deleted now, what is held, and why."""

    go: tuple[Remove, ...] = ()
    held: tuple[Remove, ...] = ()
    reason: str | None = None


def judge(
    leaving: Sequence[Remove],
    approved: Collection[uuid.UUID],
    *,
    total: int,
    source: str,
    root: str,
    moved_device: bool,
    why: str = "since their files are gone or ignored now",
    check: str | None = None,
) -> Verdict:
    """Which of the deletions of a sweep may be done.

    What a person approved goes; the rest is judged as if there were nothing else. `total` counts the documents of the source;
    `moved_device`: the folder is on another device than it was. `why` they would go and what a person is to `check` are words
    for a source that is no folder.
    """
    go = [one for one in leaving if one.document_id in approved]
    rest = [one for one in leaving if one.document_id not in approved]
    left = total - len(go)
    reason = None
    if must_hold(len(rest), left):
        reason = f"{len(rest)} of {left} documents of source {source} would be deleted, {why}."
    elif rest and moved_device:
        reason = f"{root} is on another device than before, and {len(rest)} documents of source {source} are not on it."
    if reason is None:
        return Verdict(go=(*go, *rest))
    cure = (
        f"{check or f'Check that {root} is mounted and whole'}: then the next sweep sees them again. If they are meant to go, run"
        f" `docwell sources approve-deletes {source}`; `docwell sources show {source} --held` lists them."
    )
    return Verdict(go=tuple(go), held=tuple(rest), reason=f"{reason} They are held: nothing of them was deleted. {cure}")
