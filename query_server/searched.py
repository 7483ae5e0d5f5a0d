"""How a search went, for whoever counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shared.tracing import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How a search went. `outcome` is the answer's own, or `failed`; `caches` says of each cache that was asked whether it knew
    (`hit` or `miss`), and `warnings` are the codes that the answer carries."""

    outcome: str
    mode: str
    stages: Sequence[Stage]
    caches: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    warming: bool = False


Watch: TypeAlias = Callable[[Searched], None]
"""Told of each search when it is over."""
