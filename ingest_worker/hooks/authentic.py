"""What every check of a sender shares: its failure, and comparison in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

from shared.errors import PermanentError


class NotAuthentic(PermanentError):
    """Nothing proves that this comes from its sender. The message holds no secret and nothing that would help to guess one."""


def matches_any(given: Iterable[bytes], expected: Sequence[bytes]) -> bool:
    """Whether one of the values given is one of those expected; all are compared, so that the time taken tells nothing."""
    found = 0
    for value in given:
        for secret in expected:
            found |= hmac.compare_digest(value, secret)
    return bool(found)
