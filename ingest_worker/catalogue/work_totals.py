"""What workers have done, added up in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString, TypeAlias

from psycopg import Connection

Totals: TypeAlias = Mapping[tuple[str, str, str], float]
"""Values by name, label and detail; see `ingest_worker.work`."""

# In one order for all, so that two workers that add at the same time never wait for each other.
_ADD: LiteralString = """
    INSERT INTO docwell.work_total AS total (name, label, detail, value)
    SELECT * FROM unnest(%(names)s::text[], %(labels)s::text[], %(details)s::text[], %(values)s::float8[]) AS added
    ORDER BY 1, 2, 3
    ON CONFLICT (name, label, detail) DO UPDATE SET value = total.value + excluded.value
"""


def add_totals(connection: Connection[Any], totals: Totals) -> None:
    """Add these to what is there, in a transaction of its own that waits for no disk: a crash may cost the newest of them."""
    if totals:
        names, labels, details = zip(*totals, strict=True)
        values = {"names": list(names), "labels": list(labels), "details": list(details), "values": list(totals.values())}
        with connection.transaction():
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(_ADD, values)


def read_totals(connection: Connection[Any]) -> dict[tuple[str, str, str], float]:
    """Everything that was added."""
    rows = connection.execute("SELECT name, label, detail, value FROM docwell.work_total").fetchall()
    return {(name, label, detail): value for name, label, detail, value in rows}
