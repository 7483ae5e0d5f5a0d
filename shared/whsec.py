"""Secrets of Standard Webhooks: `whsec_` and base64 (specification of Standard Webhooks, "Signature scheme")."""

from __future__ import annotations

import base64
import binascii

PREFIX = "whsec_"
SHORTEST_BYTES = 16


def decode_secret(text: str) -> bytes:
    """The key in a secret; padding may be missing. No error holds any of it.

    Raises:
        ValueError: the prefix is missing, the rest is no base64, or it is too short to be a secret.
    """
    if not text.startswith(PREFIX):
        raise ValueError(f"a webhook secret begins with {PREFIX}")
    encoded = text.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"a webhook secret is {PREFIX} and base64") from None
    if len(key) < SHORTEST_BYTES:
        raise ValueError(f"a webhook secret holds at least {SHORTEST_BYTES} bytes")
    return key
