"""What the embedder process and its clients say to each other over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from urllib.parse import unquote

import numpy as np
import orjson

from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Vectors
from shared.errors import ConfigurationError

EMBED_PATH = "/embed"
FINGERPRINT_PATH = "/fingerprint"
FINGERPRINT_HEADER = "docwell-fingerprint"
DIMENSION_HEADER = "docwell-dimension"
VECTORS_TYPE = "application/vnd.docwell.float32"

MAX_TEXTS = 256
"""Texts in one request."""
MAX_BYTES = 8 * 1024 * 1024
"""Bytes in one request's body."""


def socket_path(url: str) -> str | None:
    """The path in a `unix://` URL, or None for an `http://` or `https://` one.

    Raises:
        ConfigurationError: it is neither.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "unix" and rest.startswith("/"):
        return unquote(rest)
    if scheme in ("http", "https") and rest:
        return None
    raise ConfigurationError(
        f"DOCWELL_EMBEDDER_URL is {url!r}: write unix:///path/to/embedder.sock or http://host:port.", code="embedder_url"
    )


def dump_vectors(vectors: Vectors) -> bytes:
    """Rows of little-endian float32, one after the other."""
    return vectors.astype("<f4").tobytes()


def load_vectors(body: bytes, dimension: int) -> Vectors:
    """The rows again: shape (rows, dimension).

    Raises:
        ValueError: the bytes are no whole number of rows.
    """
    return np.frombuffer(body, "<f4").reshape(-1, dimension).astype(np.float32)


def dump_fingerprint(fingerprint: Fingerprint) -> bytes:
    """A fingerprint as JSON."""
    return orjson.dumps(asdict(fingerprint))


def load_fingerprint(body: bytes) -> Fingerprint:
    """The fingerprint again.

    Raises:
        ValueError, TypeError: the bytes are none.
    """
    return Fingerprint(**orjson.loads(body))
