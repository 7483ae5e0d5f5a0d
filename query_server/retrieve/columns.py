"""Columns of a result as numpy arrays: thousands of rows without a Python object for each value.

PostgreSQL's binary form of a one-dimensional array (`array_send`, src/backend/utils/adt/arrayfuncs.c): five int4 (dimensions,
whether there are NULLs, the type of the elements, their number, the first index), then each element's length and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from psycopg import Cursor

_HEADER = 20


def fetch_arrays(cursor: Cursor[Any], types: Sequence[str]) -> list[npt.NDArray[Any]]:
    """The arrays of the one row of a binary result, each of the numpy type named for it (`>i4`, `>f8`, `V16` for a uuid).

    Elements are of fixed size and none is NULL. No rows aggregated, so no array, is an array without elements.
    """
    result = cursor.pgresult
    if result is None:
        raise RuntimeError("nothing was executed")
    return [_decode(result.get_value(0, place), kind) for place, kind in enumerate(types)]


def _decode(raw: bytes | None, kind: str) -> npt.NDArray[Any]:
    if raw is None:
        return np.empty(0, dtype=kind)
    elements = np.frombuffer(raw, dtype=[("length", ">i4"), ("value", kind)], offset=_HEADER)
    values: npt.NDArray[Any] = elements["value"]
    return values
