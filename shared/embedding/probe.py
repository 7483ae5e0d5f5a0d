"""Whether a model still is the one that made the vectors of a space: a few texts whose vectors are stored are embedded again.

A name proves little: servers give a model another name, and another model the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.embedding.protocol import Embedder, Role, Vectors

ORDINARY = "Invoices are payable within thirty days of receipt; reminders follow after ten more."
"""A text that any model takes."""

PROBES: Sequence[tuple[Role, str]] = (
    (Role.QUERY, "how long may an invoice stay unpaid"),
    (Role.PASSAGE, ORDINARY),
    (Role.PASSAGE, "def retry(attempt: int) -> float:\n    return min(60.0, 0.5 * 2**attempt)"),
    (Role.PASSAGE, "数据库备份每天凌晨三点运行。"),
)
"""A question, prose, code, and a language written otherwise: models differ in one of them at least."""

SAME = 0.98
"""Cosine from which on two vectors of one text are of the same model: other hardware and number formats stay above 0.99."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A text in a role, and its vector of length 1."""

    role: Role
    text: str
    vector: Vectors


def take_probes(embedder: Embedder) -> list[Probe]:
    """The probes of this model.

    Raises:
        PermanentError, TransientError: as `Embedder.embed`.
    """
    return _embed(embedder, PROBES)


def is_same_model(embedder: Embedder, probes: Sequence[Probe]) -> bool:
    """Whether this embedder gives the stored vectors again.

    Raises:
        PermanentError, TransientError: as `Embedder.embed`.
    """
    fresh = _embed(embedder, [(probe.role, probe.text) for probe in probes])
    return all(
        len(old.vector) == len(new.vector) and float(old.vector @ new.vector) >= SAME
        for old, new in zip(probes, fresh, strict=True)
    )


def to_json(probes: Sequence[Probe]) -> list[dict[str, Any]]:
    """What a database keeps: four significant digits are more than `SAME` needs."""
    return [
        {"role": probe.role.value, "text": probe.text, "vector": [float(f"{number:.4g}") for number in probe.vector]}
        for probe in probes
    ]


def from_json(stored: Sequence[Mapping[str, Any]]) -> list[Probe]:
    """The probes again."""
    return [Probe(role=Role(one["role"]), text=one["text"], vector=np.asarray(one["vector"], np.float32)) for one in stored]


def _embed(embedder: Embedder, wanted: Sequence[tuple[Role, str]]) -> list[Probe]:
    made: dict[tuple[Role, str], Vectors] = {}
    for role in Role:
        texts = [text for one, text in wanted if one is role]
        if texts:
            made |= {(role, text): vector for text, vector in zip(texts, embedder.embed(texts, role), strict=True)}
    return [Probe(role=role, text=text, vector=made[role, text]) for role, text in wanted]
