"""The model that writes contexts, as far as tests need one: what it is asked about, and an answer that depends on that alone."""

from __future__ import annotations

import re

from tests.anthropic_wire import Received, Reply, says


def passage_of(received: Received) -> str:
    """The passage that a request asks about."""
    found = re.search(r"<passage>\n(.*)\n</passage>", received.last_content[-1]["text"], re.DOTALL)
    assert found is not None
    return found[1]


def describe(received: Received) -> Reply:
    """A context that depends on the passage alone, with a word that stands nowhere else."""
    words = re.findall(r"\w+", passage_of(received))
    return says(f"This passage of zwielicht documents speaks of {' '.join(words[:6])}.")
