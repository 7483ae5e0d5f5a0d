"""Times that PostgreSQL holds and Python has no value for: read as unknown, so that they stop no list that holds them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format


class _KnownTimes(Loader):
    """As psycopg's own, which raises DataError before the year 1, after 9999 and for infinity."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        own = psycopg.adapters.get_loader(oid, self.format)
        if own is None:
            raise psycopg.InterfaceError(f"psycopg has no loader for the type {oid}.")
        self._own = own(oid, context)

    def load(self, data: Buffer) -> datetime | None:
        try:
            found: datetime = self._own.load(data)
        except psycopg.DataError:
            return None
        return found


class _KnownTimesBinary(_KnownTimes):
    format = Format.BINARY


def register_times(connection: Connection[Any]) -> None:
    """Let this connection read a time that is none of Python's as None. `is_storable` keeps such times out; a row may still hold
    one that was stored before it did."""
    connection.adapters.register_loader("timestamptz", _KnownTimes)
    connection.adapters.register_loader("timestamptz", _KnownTimesBinary)
