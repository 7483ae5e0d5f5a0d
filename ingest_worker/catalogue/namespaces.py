"""What namespaces hold, in the owner's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue.sources import ensure_namespace

_DESCRIBE: LiteralString = """
    UPDATE docwell.namespace n SET description = wanted.description
    FROM (
        SELECT n.name, said.description FROM docwell.namespace n
        LEFT JOIN unnest(%(names)s::text[], %(descriptions)s::text[]) AS said (name, description) USING (name)
    ) AS wanted
    WHERE wanted.name = n.name AND n.description IS DISTINCT FROM wanted.description
"""


def describe_namespaces(connection: Connection[Any], descriptions: Mapping[str, str]) -> int:
    """Let these namespaces say what they hold, and all others nothing; returns how many changed. One that is new is made."""
    with connection.transaction():
        for name in sorted(descriptions):
            ensure_namespace(connection, name)
        values = {"names": list(descriptions), "descriptions": list(descriptions.values())}
        return connection.execute(_DESCRIBE, values).rowcount
