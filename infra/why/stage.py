"""What one stage says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a stage does with the document."""

    OK = "ok"
    STOPPED = "stopped"
    """It goes no further than here."""
    UNKNOWN = "unknown"
    """This stage was not asked about, or cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage: its verdict, what it rests on as sentences, and what to do when the document should go on."""

    stage: str
    verdict: Verdict
    evidence: tuple[str, ...]
    cure: str | None = None


def ok(stage: str, *evidence: str, cure: str | None = None) -> Stage:
    """The document passes; a `cure` is for what is not well all the same."""
    return Stage(stage=stage, verdict=Verdict.OK, evidence=evidence, cure=cure)


def stopped(stage: str, *evidence: str, cure: str | None = None) -> Stage:
    """The document stops here."""
    return Stage(stage=stage, verdict=Verdict.STOPPED, evidence=evidence, cure=cure)


def unknown(stage: str, *evidence: str, cure: str | None = None) -> Stage:
    """Nothing can be said."""
    return Stage(stage=stage, verdict=Verdict.UNKNOWN, evidence=evidence, cure=cure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All stages in their order. `found`: nothing stops it and no stage is left open; None when one is."""

    document: str
    document_id: str | None
    source: str | None
    namespace: str | None
    path: str | None
    state: str | None
    found: bool | None
    stopped_at: str | None
    cure: str | None
    stages: tuple[Stage, ...]


def first_stop(stages: Sequence[Stage]) -> Stage | None:
    """The first stage that stops the document."""
    return next((stage for stage in stages if stage.verdict is Verdict.STOPPED), None)
