"""Prefixes that Anthropic's service keeps in its cache, and what a request reads from it or writes to it.

From its documentation on prompt caching: a request is tools, system and messages, in this order; a prefix up to a block with
`cache_control` is written once and read afterwards, when it has a minimum of tokens (4,096 for Claude Haiku 4.5); it lives five
minutes from its last use; it can be read from the moment at which the answer that wrote it begins, so requests that are sent
together before that each write it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MINIMUM_TOKENS = 4_096
LIFE_SECONDS = 300.0
_IMAGE_TOKENS = 1_500


def count_tokens(text: str) -> int:
    """Tokens as the stand-in counts them: four characters each."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The tokens of a request, and its longest prefix that is to be kept."""

    tokens: int
    prefix: str | None
    prefix_tokens: int


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    """What a request shows the model."""
    tokens = prefix_tokens = 0
    shown = ""
    prefix = None
    for block in _blocks(body):
        if block.get("type") == "image":
            tokens += _IMAGE_TOKENS
        else:
            tokens += count_tokens(block["text"] if block.get("type") == "text" else json.dumps(block))
        shown += json.dumps({name: value for name, value in block.items() if name != "cache_control"})
        if "cache_control" in block:
            prefix, prefix_tokens = shown, tokens
    return Prompt(tokens=tokens, prefix=prefix, prefix_tokens=prefix_tokens)


def _blocks(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blocks = list(body.get("tools", ()))
    for content in (body.get("system", ()), *(message["content"] for message in body["messages"])):
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return blocks


@dataclass
class PrefixCache:
    """Which prefixes can be read, until when."""

    minimum: int = MINIMUM_TOKENS
    life: float = LIFE_SECONDS
    clock: Callable[[], float] = time.monotonic
    until: dict[tuple[str, str], float] = field(default_factory=dict)

    def ask(self, model: str, prompt: Prompt) -> dict[str, int]:
        """The fields of a usage that tell of the input."""
        read = written = 0
        if prompt.prefix is not None and prompt.prefix_tokens >= self.minimum:
            if self.until.get((model, prompt.prefix), 0.0) > self.clock():
                self.until[model, prompt.prefix] = self.clock() + self.life
                read = prompt.prefix_tokens
            else:
                written = prompt.prefix_tokens
        return {
            "input_tokens": prompt.tokens - read - written,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
        }

    def begin_answer(self, model: str, prompt: Prompt) -> None:
        """From now on the prefix can be read."""
        if prompt.prefix is not None and prompt.prefix_tokens >= self.minimum:
            self.until[model, prompt.prefix] = self.clock() + self.life
