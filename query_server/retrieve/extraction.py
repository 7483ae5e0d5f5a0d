"""What is known of how well a document was read, so that whoever cites it can say so."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping
from typing import Any, LiteralString

from psycopg import Connection

from query_server.answers import Notice, SearchAnswer

MOST_NOTICES = 5
LONGEST_NOTICE = 300

# `version` is what is served; the document's own state is that of the newest one, which may have failed since.
_READ: LiteralString = """
    SELECT d.document_id, v.state, v.reason_code, v.reason, v.warnings, v.number, d.latest_version, d.state, d.reason
    FROM docwell.document d JOIN docwell.version v ON v.version_id = d.served_version_id
    WHERE d.document_id = ANY (%s::uuid[])
      AND (v.state <> 'indexed' OR v.reason IS NOT NULL OR v.warnings <> '{}'
           OR (d.latest_version > v.number AND d.state IN ('failed', 'needs_ocr', 'skipped')))
"""


def read_notices(connection: Connection[Any], documents: Collection[uuid.UUID]) -> dict[uuid.UUID, tuple[Notice, ...]]:
    """What readers of these documents should know, by document; those that were read whole are left out.

    `partial` (pages without text, parts that were not read), `ocr` (text that a program saw on pictures), `extraction` (what the
    parser warned of), `outdated` (a newer version could not be indexed).
    """
    if not documents:
        return {}
    found = {}
    for document, state, code, reason, warnings, served, latest, now, why in connection.execute(_READ, (list(documents),)):
        notices = []
        if state != "indexed" or reason:
            notices.append(Notice(code="ocr" if code == "ocr" else state, message=_cut(reason or f"The document is {state}.")))
        notices += [Notice(code="extraction", message=_cut(warning)) for warning in warnings]
        if latest > served and now in {"failed", "needs_ocr", "skipped"}:
            said = f"This is version {served}; version {latest} is {now}" + (f": {why}" if why else ".")
            notices.insert(0, Notice(code="outdated", message=_cut(said)))
        found[document] = tuple(notices[:MOST_NOTICES])
    return found


def with_notices(answer: SearchAnswer, notices: Mapping[uuid.UUID, tuple[Notice, ...]]) -> SearchAnswer:
    """The answer, with what is known of its documents at each passage."""
    if not notices:
        return answer
    results = tuple(dataclasses.replace(one, warnings=notices.get(one.document_id)) for one in answer.results)
    return dataclasses.replace(answer, results=results)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_NOTICE else f"{text[: LONGEST_NOTICE - 1]}…"
