"""Events of Confluence.

Data Center signs the raw body (X-Hub-Signature, HMAC-SHA256, confluence.atlassian.com/doc/managing-webhooks-1021225606.html).
Webhooks that an administrator of Confluence Cloud registers are signed by nothing: there a secret in the address has to do.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import orjson

from ingest_worker.hooks.authentic import NotAuthentic, matches_any

_LONGEST_TEST = 1000


def verify(body: bytes, *, signature: str | None, token: str | None, secrets: Sequence[str]) -> None:
    """Check one event. Where there is a signature it has to fit, whatever the token.

    Raises:
        NotAuthentic: neither is there, or what is there is not made with one of the secrets.
    """
    keys = [secret.encode() for secret in secrets]
    if signature is not None:
        method, _, digest = signature.strip().partition("=")
        expected = [hmac.new(key, body, hashlib.sha256).hexdigest().encode() for key in keys]
        if not matches_any([digest.lower().encode()], expected) or method.lower() != "sha256":
            raise NotAuthentic(
                "X-Hub-Signature does not fit: `sha256=` and HMAC-SHA256 of the body under one of the `webhook_secrets`.",
                code="signature_invalid",
            )
    elif token is None:
        raise NotAuthentic(
            "The event is not signed: there is neither X-Hub-Signature (Data Center) nor `?token=…` in the address (Cloud).",
            code="signature_missing",
        )
    elif not matches_any([token.encode("utf-8", "surrogateescape")], keys):
        raise NotAuthentic("The token in the address is none of the `webhook_secrets` of the source.", code="token_invalid")


def is_test(body: bytes) -> bool:
    """Whether this is what "test connection" sends: `{"test": true}` and no event."""
    if len(body) > _LONGEST_TEST or b'"test"' not in body:
        return False
    try:
        found: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and found.get("test") is True and not {"event", "eventType"} & found.keys()
