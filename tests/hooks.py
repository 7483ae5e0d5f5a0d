"""A sender of signed webhooks, for tests: made from the specification, and not with the code that is tested."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

_numbers = itertools.count(1)


def make_secret(number: int = 1) -> str:
    """A secret as people configure it."""
    return "whsec_" + base64.b64encode(hashlib.sha256(f"secret {number}".encode()).digest()).decode()


def signature(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = delivery_id.encode() + b"." + timestamp.encode() + b"." + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def headers(secret: str, body: bytes, *, delivery_id: str | None = None, at: float | None = None) -> dict[str, str]:
    """The headers of one attempt; `at` is Unix time, else now."""
    delivery_id = delivery_id or f"msg_{os.getpid()}_{next(_numbers)}"
    timestamp = str(int(time.time() if at is None else at))
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(secret, delivery_id, timestamp, body),
    }


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Posts to the generic webhook."""

    client: httpx.Client
    secret: str = field(default_factory=make_secret)

    def send(self, *, delivery_id: str | None = None, at: float | None = None, **event: Any) -> httpx.Response:
        """An event; `namespace` is `team` and `action` is `upsert` unless they are given."""
        body = json.dumps({"action": "upsert", "namespace": "team", **event}).encode()
        return self.post(body, delivery_id=delivery_id, at=at)

    def post(
        self, body: bytes, *, kind: str = "application/json", delivery_id: str | None = None, at: float | None = None
    ) -> httpx.Response:
        """Any bytes, rightly signed."""
        signed = headers(self.secret, body, delivery_id=delivery_id, at=at)
        return self.client.post("/v1/webhooks/generic", content=body, headers={"Content-Type": kind, **signed})

    def form(self, event: dict[str, Any], file: bytes, *, kind: str = "application/pdf") -> httpx.Response:
        """An event with the document beside it."""
        body = form(event, file, kind=kind)
        return self.post(body, kind="multipart/form-data; boundary=frontier")


def form(event: dict[str, Any] | None, file: bytes | None, *, kind: str = "application/pdf", boundary: str = "frontier") -> bytes:
    """A form as browsers and curl make it."""
    parts = b""
    if event is not None:
        told = json.dumps({"action": "upsert", "namespace": "team", **event}).encode()
        parts += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="event"\r\nContent-Type: application/json\r\n\r\n'.encode()
            + told
            + b"\r\n"
        )
    if file is not None:
        parts += (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n'
            f"Content-Type: {kind}\r\n\r\n".encode()
            + file
            + b"\r\n"
        )
    return parts + f"--{boundary}--\r\n".encode()
