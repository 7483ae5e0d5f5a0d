"""Signatures of Standard Webhooks (github.com/standard-webhooks/standard-webhooks, spec version 1).

`webhook-signature` holds one or several `v1,BASE64`, of which one has to be HMAC-SHA256 over `ID.TIMESTAMP.BODY` under one of our
secrets. The body is signed as it came, byte for byte, and is hashed while it comes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest_worker.hooks.authentic import NotAuthentic, matches_any

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

TOLERANCE_SECONDS = 300
"""How far a delivery's time may be from ours: what was recorded earlier cannot be sent again."""

_ID = re.compile(r"[!-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,11}")
_MOST_SIGNATURES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What the headers say: whose delivery, when it was sent (Unix seconds, as it was written), and the signatures, raw."""

    delivery_id: str
    timestamp: str
    signatures: tuple[bytes, ...]


def read_headers(headers: Mapping[str, str], *, now: float) -> Signed:
    """The headers of a delivery. `now` is Unix time in seconds.

    Raises:
        NotAuthentic: one is missing or malformed, or the time is not within 300 seconds of ours.
    """
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not headers.get(name)]
    if missing:
        raise NotAuthentic(f"The delivery is not signed: {', '.join(missing)} is missing.", code="signature_missing")
    delivery_id, timestamp = headers[ID], headers[TIMESTAMP]
    if _ID.fullmatch(delivery_id) is None:
        raise NotAuthentic(f"{ID} is no id: 1 to 256 visible ASCII characters.", code="signature_malformed")
    if _SECONDS.fullmatch(timestamp) is None:
        raise NotAuthentic(f"{TIMESTAMP} is no Unix time in whole seconds.", code="signature_malformed")
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise NotAuthentic(
            f"{TIMESTAMP} is more than {TOLERANCE_SECONDS} seconds from the time here. Sign each attempt anew, and"
            " check both clocks.",
            code="timestamp_stale",
        )
    signatures = tuple(filter(None, map(_decode, headers[SIGNATURE].split()[:_MOST_SIGNATURES])))
    if not signatures:
        raise NotAuthentic(f"{SIGNATURE} holds no signature `v1,…` of 32 bytes in base64.", code="signature_malformed")
    return Signed(delivery_id=delivery_id, timestamp=timestamp, signatures=signatures)


def _decode(one: str) -> bytes | None:
    version, _, encoded = one.partition(",")
    if version != "v1":
        return None
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == hashlib.sha256().digest_size else None


class Verifier:
    """Checks a delivery's signature while its body comes."""

    def __init__(self, signed: Signed, secrets: Sequence[bytes]) -> None:
        self._signatures = signed.signatures
        begin = f"{signed.delivery_id}.{signed.timestamp}.".encode("ascii")
        self._macs = [hmac.new(secret, begin, hashlib.sha256) for secret in secrets]

    def take(self, piece: bytes) -> None:
        """The next piece of the body."""
        for mac in self._macs:
            mac.update(piece)

    def verify(self) -> None:
        """To be called when all of it has come.

        Raises:
            NotAuthentic: none of the signatures is made with one of the secrets.
        """
        if not matches_any(self._signatures, [mac.digest() for mac in self._macs]):
            raise NotAuthentic(
                f"{SIGNATURE} does not fit: it is base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`, the body byte for byte as it is"
                " sent, under the decoded part of a secret behind `whsec_`.",
                code="signature_invalid",
            )


def sign(secret: bytes, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The signature that `Verifier` expects, for those who send."""
    mac = hmac.new(secret, f"{delivery_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"
