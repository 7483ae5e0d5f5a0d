"""From which cosine on a passage is about the question: a number of each model, measured, never carried over."""

from __future__ import annotations

from collections.abc import Mapping

THRESHOLDS: Mapping[str, float] = {}


def threshold_of(model: str) -> float | None:
    """The calibrated cosine of a model; None when nobody measured it, and then nothing is called certain."""
    return next((value for name, value in THRESHOLDS.items() if name in model), None)
