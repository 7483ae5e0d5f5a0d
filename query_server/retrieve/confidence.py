"""From which evidence on a passage is about the question: numbers of each model, measured, never carried over to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What cosines of one model mean.

    The evidence for a passage is its cosine, and where the keyword leg was asked too, `coverage` times the share of the query's
    weight that its terms make up (0.0-1.0). Below `relevant` the best evidence there is speaks of something else. A passage that
    both legs put first is `certain` from that evidence on; one that only the semantic leg was asked for, from the cosine
    `certain_alone` on.
    """

    coverage: float
    relevant: float
    relevant_alone: float
    certain: float
    certain_alone: float


CALIBRATIONS: Mapping[str, Calibration] = {
    # Measured on 300 questions put to their own one of five sets (English and German prose, product documentation, Rust,
    # Chinese), the same put 840 times to a set of another subject or language, and 78 about small documents in words of their
    # own. A wrong `no_match` hides what is there, where a passage too many is seen through by whoever reads it: `relevant`
    # denies 3 of 68 answerable questions of the last and 0.3 % of the first, and finds out 80 % of the second. Of the
    # passages called certain 94 to 100 % were right in every set. See docs/measurements.md, "Knowing when nothing fits".
    "intfloat/multilingual-e5-small": Calibration(
        coverage=0.15, relevant=0.85, relevant_alone=0.81, certain=0.92, certain_alone=0.92
    ),
}


def calibration_of(model: str) -> Calibration | None:
    """The numbers of a model; None when nobody measured it, and then nothing is called certain."""
    return CALIBRATIONS.get(model)
