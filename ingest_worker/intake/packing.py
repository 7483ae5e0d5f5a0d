"""Bytes as they are kept: hashed and compressed while they come."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

_LEVEL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What came: `content` is zlib, `sha256` and `size` are those of the bytes in it."""

    content: bytes
    sha256: bytes
    size: int


class Taker:
    """Compresses and hashes bytes that come in pieces."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._zlib = zlib.compressobj(_LEVEL)
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, data: bytes) -> None:
        """The next piece."""
        self._sha256.update(data)
        self._pieces.append(self._zlib.compress(data))
        self._size += len(data)

    def body(self) -> Body:
        """All that came."""
        self._pieces.append(self._zlib.flush())
        return Body(content=b"".join(self._pieces), sha256=self._sha256.digest(), size=self._size)


def pack(data: bytes) -> Body:
    """Bytes that are in memory already."""
    taker = Taker()
    taker.take(data)
    return taker.body()
