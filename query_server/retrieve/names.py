"""Documents that a query names: by the name of the file, with or without its ending, or by its title."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import re
import uuid
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.filters import DOCUMENT_FILTER, Filters
from query_server.retrieve.scope import Scope

LONGEST_NAME = 200
MOST_NAMED = 10
"""Documents that are taken of those with the same name: `README.md` names hundreds."""
MOST_PASSAGES = 300
"""Passages of a named document that are looked at, from its beginning."""

_FILE = re.compile(r"[^\s\"'`<>|*?]*[^\s\"'`<>|*?/\\]\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w./\\])")

_NAMED: LiteralString = f"""
    WITH asked AS MATERIALIZED (
        SELECT (SELECT array_agg(docwell.name_key(name)) FROM unnest(%(files)s::text[]) AS name) AS files,
               docwell.name_key(%(whole)s) AS whole
    ), named AS MATERIALIZED (
        SELECT d.document_id, d.served_version_id FROM docwell.document d
        WHERE (d.name_key = ANY ((SELECT files FROM asked)::text[])
               OR d.name_key = (SELECT nullif(whole, '') FROM asked) OR d.stem_key = (SELECT nullif(whole, '') FROM asked)
               OR d.title_key = (SELECT nullif(whole, '') FROM asked))
          AND d.audience_id = ANY (%(audiences)s) AND d.served_version_id IS NOT NULL
        ORDER BY length(d.path), d.path, d.document_id LIMIT %(most)s
    )
    SELECT place.audience_id, place.chunk_id, place.ordinal, d.document_id, d.path
    FROM named JOIN docwell.document d USING (document_id)
    CROSS JOIN LATERAL (
        SELECT place.audience_id, place.chunk_id, place.ordinal FROM docwell.version_chunk place
        WHERE place.version_id = named.served_version_id AND {DOCUMENT_FILTER}
        ORDER BY place.ordinal LIMIT %(passages)s
    ) AS place
    ORDER BY d.document_id, place.ordinal
"""


def file_names(query: str) -> list[str]:
    """The parts of a query that look like a file's name or path: `see docs/billing.md` has `docs/billing.md`."""
    return list(dict.fromkeys(_FILE.findall(query[:1000])))


def named_chunks(connection: Connection[Any], scope: Scope, filters: Filters, query: str) -> list[list[tuple[int, uuid.UUID]]]:
    """The chunks of each document that the query names, in reading order.

    A query names a document when it holds the name of its file, or is this name without its ending or its title, whatever the
    case and the signs between words. Of a path that is given all parts must fit.
    """
    files = [name.replace("\\", "/") for name in file_names(query)]
    whole = query.strip()
    values = {
        "files": [name.rsplit("/", 1)[-1] for name in files],
        "whole": whole if len(whole) <= LONGEST_NAME else "",
        "audiences": list(scope.audiences),
        "most": MOST_NAMED,
        "passages": MOST_PASSAGES,
        **filters.parameters,
    }
    rows = connection.execute(_NAMED, values, prepare=False).fetchall()
    folders = [name.lower().removeprefix("./") for name in files if "/" in name]
    found: dict[uuid.UUID, list[tuple[int, uuid.UUID]]] = {}
    for audience, chunk, _, document, path in rows:
        if not folders or any(f"/{path.lower()}".endswith(f"/{folder.lstrip('/')}") for folder in folders):
            found.setdefault(document, []).append((audience, chunk))
    return list(found.values())
