"""Documents that a query names: by the name of the file, with or without its ending, or by its title."""

from __future__ import annotations

import re
import uuid
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.filters import Filters
from query_server.retrieve.scope import Scope

LONGEST_NAME = 200
MOST_NAMED = 10
"""Documents that are taken of those with the same name: `README.md` names hundreds."""
MOST_PASSAGES = 300
"""Passages of a named document that are looked at, from its beginning."""

_FILE = re.compile(r"[^\s\"'`<>|*?]*[^\s\"'`<>|*?/\\]\.[A-Za-z][A-Za-z0-9]{0,7}(?![\w./\\])")

# Equality alone may use an index under row-level security: what else decides is asked of the few that are left.
_POSSIBLE: LiteralString = """
    WITH asked AS MATERIALIZED (
        SELECT ARRAY(SELECT docwell.name_key(name) FROM unnest(%(files)s::text[]) AS name) AS files,
               ARRAY(SELECT docwell.name_key(regexp_replace(name, '^.*/', '')) FROM unnest(%(paths)s::text[]) AS name) AS ends,
               nullif(docwell.name_key(%(whole)s), '') AS whole
    ), possible AS MATERIALIZED (
        SELECT d.document_id, d.served_version_id, d.path,
               d.name_key = ANY ((SELECT files FROM asked)::text[]) OR d.name_key = (SELECT whole FROM asked)
                   OR d.stem_key = (SELECT whole FROM asked) OR coalesce(d.title_key = (SELECT whole FROM asked), false)
                   AS by_name
        FROM docwell.document d
        WHERE (d.name_key = ANY ((SELECT files || ends FROM asked)::text[]) OR d.name_key = (SELECT whole FROM asked)
               OR d.stem_key = (SELECT whole FROM asked) OR d.title_key = (SELECT whole FROM asked))
          AND d.audience_id = ANY (%(audiences)s) AND d.served_version_id IS NOT NULL
"""
_NAMED: LiteralString = """
    ), named AS MATERIALIZED (
        SELECT d.document_id, d.served_version_id FROM possible d
        WHERE d.by_name
           OR EXISTS (SELECT FROM unnest(%(paths)s::text[]) AS name
                      WHERE right('/' || lower(d.path), length(name) + 1) = '/' || lower(name))
        ORDER BY length(d.path), d.path, d.document_id LIMIT %(most)s
    )
    SELECT place.audience_id, place.chunk_id, d.document_id
    FROM named JOIN docwell.document d USING (document_id)
    CROSS JOIN LATERAL (
        SELECT place.audience_id, place.chunk_id, place.ordinal FROM docwell.version_chunk place
        WHERE place.version_id = named.served_version_id
"""
_FIRST: LiteralString = """
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
    names = [name.replace("\\", "/").removeprefix("./").lstrip("/") for name in file_names(query)]
    whole = query.strip()
    values = {
        "files": [name for name in names if "/" not in name],
        "paths": [name for name in names if "/" in name],
        "whole": whole if len(whole) <= LONGEST_NAME else "",
        "audiences": list(scope.audiences),
        "most": MOST_NAMED,
        "passages": MOST_PASSAGES,
        **filters.parameters,
    }
    # Planning takes longer than looking: without a filter the text is always the same, and its plan is kept.
    statement: LiteralString = f"{_POSSIBLE}{filters.on_documents}{_NAMED}{filters.on_passages}{_FIRST}"
    found: dict[uuid.UUID, list[tuple[int, uuid.UUID]]] = {}
    for audience, chunk, document in connection.execute(statement, values).fetchall():
        found.setdefault(document, []).append((audience, chunk))
    return list(found.values())
