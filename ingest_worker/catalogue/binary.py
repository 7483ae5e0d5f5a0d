"""Arrays of pgvector's values as PostgreSQL's binary parameters, built by numpy: no text, and no Python loop over numbers.

The format is that of `array_recv`: number of dimensions, whether there are nulls, the elements' type, size and lower bound, then
each element with its length. The elements are as pgvector's `halfvec_recv` and `sparsevec_recv` read them. Numbers are in network
order. COPY would do without the arrays, but does not work on tables with row-level security.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">iIIii")
_SPARSE_HEAD = struct.Struct(">iiii")


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """A parameter that is sent as it is; the statement casts it to its type."""

    data: bytes


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        data: bytes = obj.data
        return data


def halfvec_array(connection: Connection[Any], vectors: Sequence[NDArray[np.float32]]) -> BinaryArray:
    """A `halfvec[]` of float32 vectors of one dimension; at least one."""
    dimension = len(vectors[0])
    elements = np.zeros(
        len(vectors), np.dtype([("length", ">i4"), ("dimension", ">i2"), ("unused", ">i2"), ("values", ">f2", (dimension,))])
    )
    elements["length"] = 4 + 2 * dimension
    elements["dimension"] = dimension
    elements["values"] = np.stack(vectors)
    return _array(connection, "halfvec", len(vectors), elements.tobytes())


def sparsevec_array(
    connection: Connection[Any], counts: Sequence[Mapping[int, int]], *, most: int, dimensions: int
) -> BinaryArray:
    """A `sparsevec[]` of term counts {term number from 1 to `dimensions`: count}; a count above `most` becomes `most`."""
    return _array(connection, "sparsevec", len(counts), b"".join(_sparsevec(one, most, dimensions) for one in counts))


def _sparsevec(counts: Mapping[int, int], most: int, dimensions: int) -> bytes:
    size = len(counts)
    numbers = np.fromiter(counts.keys(), np.int32, size)
    times = np.fromiter(counts.values(), np.int32, size)
    order = np.argsort(numbers)
    indices = (numbers[order] - 1).astype(">i4").tobytes()
    values = np.minimum(times[order], most).astype(">f4").tobytes()
    return _SPARSE_HEAD.pack(12 + 8 * size, dimensions, size, 0) + indices + values


def integer_array(connection: Connection[Any], numbers: NDArray[np.int32]) -> BinaryArray:
    """An `integer[]`."""
    elements = np.empty((len(numbers), 2), ">i4")
    elements[:, 0] = 4
    elements[:, 1] = numbers
    return _array(connection, "int4", len(numbers), elements.tobytes())


def _array(connection: Connection[Any], element: str, size: int, elements: bytes) -> BinaryArray:
    info = connection.adapters.types.get(element)
    if info is None:
        raise RuntimeError(f"the connection does not know the type {element}")
    connection.adapters.register_dumper(BinaryArray, _AsItIs)
    return BinaryArray((_HEAD.pack(1, 0, info.oid, size, 1) if size else struct.pack(">iII", 0, 0, info.oid)) + elements)
