"""What is known of how well a document was read, so that whoever cites it can say so."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import Connection

from query_server.answers import Notice

MOST_NOTICES = 5
LONGEST_NOTICE = 300

# `v` is the version that is served; the document's own state is that of the newest one, which may have failed since.
REMARKS: LiteralString = """
    CASE WHEN v.state <> 'indexed' OR v.reason IS NOT NULL OR v.warnings <> '{}'
              OR (d.latest_version > v.number AND d.state IN ('failed', 'needs_ocr', 'skipped'))
         THEN ARRAY[v.state, v.reason_code, v.reason, v.number::text, d.latest_version::text, d.state, d.reason] || v.warnings END
"""
"""What `notices_of` takes, of a document `d` and the version `v` that it serves; NULL where there is nothing to tell. Part of the
statement that looks up places: asked for apart it cost a search 0.4 to 1.1 ms, there 0.1."""

_READ: LiteralString = "SELECT"
_OF: LiteralString = """
    FROM docwell.document d JOIN docwell.version v ON v.version_id = d.served_version_id WHERE d.document_id = %s
"""


def read_notices(connection: Connection[Any], document_id: uuid.UUID) -> tuple[Notice, ...]:
    """What readers of this document should know."""
    statement: LiteralString = _READ + REMARKS + _OF
    row = connection.execute(statement, (document_id,)).fetchone()
    return notices_of(row[0]) if row is not None and row[0] is not None else ()


def notices_of(remarks: Sequence[str | None]) -> tuple[Notice, ...]:
    """What readers of a document should know of how it was read.

    `partial` (pages without text, parts that were not read), `ocr` (text that a program saw on pictures), `extraction` (what the
    parser warned of), `outdated` (a newer version could not be indexed).
    """
    state, code, reason, served, latest, now, why, *warnings = remarks
    notices = []
    if state != "indexed" or reason:
        notices.append(Notice(code="ocr" if code == "ocr" else str(state), message=_cut(reason or f"The document is {state}.")))
    notices += [Notice(code="extraction", message=_cut(warning)) for warning in warnings if warning]
    if int(latest or 0) > int(served or 0) and now in {"failed", "needs_ocr", "skipped"}:
        said = f"This is version {served}; version {latest} is {now}" + (f": {why}" if why else ".")
        notices.insert(0, Notice(code="outdated", message=_cut(said)))
    return tuple(notices[:MOST_NOTICES])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NOTICE else f"{text[: LONGEST_NOTICE - 1]}…"
