"""Neighbouring chunks share some text: where they are shown together it is written once."""

from __future__ import annotations

LONGEST_OVERLAP = 4_000
SHORTEST_OVERLAP = 16
"""Characters that end one chunk and begin the next before they are taken for an overlap; fewer may be chance."""


def without_overlap(before: str, text: str) -> str:
    """The text without its longest front that already ended the text before it."""
    longest = min(len(before), len(text), LONGEST_OVERLAP)
    tail = before[-longest:] if longest else ""
    for start in range(len(tail) - SHORTEST_OVERLAP + 1):
        if tail[start] == text[0] and text.startswith(tail[start:]):
            return text[len(tail) - start :]
    return text
