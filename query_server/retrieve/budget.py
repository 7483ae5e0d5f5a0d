"""How many passages fit into a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MARK = " […]"

# A passage is shown with its citation, path, section and a line of freshness; a token is about three characters of such text.
_FRAME_TOKENS = 24
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The first `count` passages fit and cost `tokens`; `dropped` more were wanted. `cut` is set when the first one alone was
    too large: it may keep this many tokens of its text."""

    count: int
    tokens: int
    dropped: int
    cut: int | None = None


def cost(text_tokens: int, *frame: str | None) -> int:
    """Tokens that a passage takes with what is written around it."""
    return text_tokens + _FRAME_TOKENS + sum(len(part) for part in frame if part) // _CHARACTERS_PER_TOKEN


def take(costs: Sequence[int], text_tokens: Sequence[int], max_tokens: int) -> Taken:
    """As many passages from the front as fit; never one from behind a passage that does not, so paging skips nothing.

    A first passage that does not fit alone is cut rather than dropped: a page without a passage would never end.
    """
    total = 0
    for count, needed in enumerate(costs):
        if total + needed > max_tokens:
            if count == 0:
                return Taken(
                    count=1,
                    tokens=max_tokens,
                    dropped=len(costs) - 1,
                    cut=max(0, max_tokens - (needed - text_tokens[0])),
                )
            return Taken(count=count, tokens=total, dropped=len(costs) - count)
        total += needed
    return Taken(count=len(costs), tokens=total, dropped=0)


def cut_text(text: str, tokens: int, keep: int) -> str:
    """The front of a text of `tokens` tokens that has at most about `keep`, cut at white space, with a mark."""
    if tokens <= keep:
        return text
    room = max(0, int(len(text) * keep / max(tokens, 1) * 0.9) - len(MARK))
    front = text[:room]
    space = max(front.rfind(" "), front.rfind("\n"))
    return (front[:space] if space > room // 2 else front).rstrip() + MARK
