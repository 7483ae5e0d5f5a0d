"""The JSON form of the read models: plain dicts, times as ISO 8601 in UTC, hashes in hexadecimal."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any


def as_json(value: Any) -> Any:
    """A value made of dataclasses, containers and scalars as `json.dumps` takes it.

    Times become `2026-11-29T10:00:00.250Z` (milliseconds when there are any), bytes hexadecimal, UUIDs their usual
    text, money a decimal number as text.

    Raises:
        TypeError: a value that has no JSON form here.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, uuid.UUID | Path):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def utc_text(moment: datetime) -> str:
    """An aware time in UTC with a closing `Z`."""
    moment = moment.astimezone(UTC)
    whole = "seconds" if moment.microsecond < 1000 else "milliseconds"
    return moment.isoformat(timespec=whole).removesuffix("+00:00") + "Z"
