"""Rows of a very large document are sent in portions: one statement of them all would be too long, and its values too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

MOST_ROWS = 2_000
"""Rows of one statement: their terms take some 20 MB on both sides. Few documents are larger, and a batch never is."""


def portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """These items in their order, up to `MOST_ROWS` at a time; nothing of none."""
    for first in range(0, len(items), MOST_ROWS):
        yield items[first : first + MOST_ROWS]
