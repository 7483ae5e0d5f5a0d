"""The state of a document for which nothing is under way, told by its versions alone."""

# ruff: noqa: S608 - every fragment is a LiteralString, which the type checker proves; values are bound.
from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import Connection

ROLLED_BACK: LiteralString = """concat('Version ', d.served_version, ' is served instead of ', d.latest_version,
    ', because a person rolled back to it. Changed bytes replace it, and so does `docwell documents rollback`.')"""
"""Why an old version is served; `d` is the document."""

# A pin that was not served yet goes with its job. While a finished version is newer than the served one, that one is pinned.
_DROP_OPEN_PIN: LiteralString = """
    UPDATE docwell.document d SET
        pin_yields = false,
        pinned_version = (
            SELECT d.served_version FROM docwell.version latest
            WHERE latest.document_id = d.document_id AND latest.number = d.latest_version AND latest.number > d.served_version
              AND latest.state IN ('indexed', 'partial', 'needs_ocr', 'skipped'))
    WHERE d.document_id = ANY (%(documents)s) AND d.pinned_version IS DISTINCT FROM d.served_version
"""
_END_VERSIONS: LiteralString = """
    UPDATE docwell.version v SET state = %(state)s, reason_code = %(state)s, reason = %(reason)s
    WHERE v.document_id = ANY (%(documents)s) AND v.state = 'indexing'
"""
_SETTLE: LiteralString = f"""
    WITH known AS (
        SELECT d.document_id, served.state AS served_state, served.reason AS served_reason,
               latest.state AS latest_state, latest.reason_code AS latest_code, latest.reason AS latest_reason,
               coalesce(d.served_version < d.latest_version AND d.pinned_version = d.served_version, false) AS is_rolled_back,
               coalesce(latest.state IN ('needs_ocr', 'skipped', 'failed')
                        OR (latest.state IN ('indexed', 'partial') AND d.searchable), false) AS is_finished
        FROM docwell.document d
        LEFT JOIN docwell.version served ON served.version_id = d.served_version_id
        LEFT JOIN docwell.version latest ON latest.document_id = d.document_id AND latest.number = d.latest_version
        WHERE d.document_id = ANY (%(documents)s)
    )
    UPDATE docwell.document d SET
        state = CASE WHEN is_rolled_back THEN served_state WHEN is_finished THEN latest_state
                     ELSE coalesce(served_state, 'skipped') END,
        reason_code = CASE WHEN is_rolled_back THEN 'rolled_back' WHEN is_finished THEN latest_code ELSE 'cancelled' END,
        reason = CASE WHEN is_rolled_back THEN concat_ws(' ', {ROLLED_BACK}, served_reason)
                      WHEN is_finished THEN latest_reason
                      ELSE 'Its job was cancelled. Use `docwell jobs retry` to take it in.' END,
        changed_at = now()
    FROM known WHERE d.document_id = known.document_id AND d.state IN ('queued', 'indexing')
"""


def settle(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """Give documents that wait, and for which nothing is under way any more, the state that their versions are in."""
    if documents:
        connection.execute(_SETTLE, {"documents": list(documents)})


def settle_cancelled(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """The jobs of these documents were cancelled: what was not finished will not be, and a rollback is not wanted any more."""
    values = {"documents": list(documents), "state": "cancelled", "reason": "Its job was cancelled."}
    if documents:
        connection.execute(_END_VERSIONS, values)
        connection.execute(_DROP_OPEN_PIN, values)
        settle(connection, documents)


def supersede(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """Other bytes come before the version that was begun was finished: it never will be."""
    reason = "The bytes changed before this version was finished."
    if documents:
        connection.execute(_END_VERSIONS, {"documents": list(documents), "state": "superseded", "reason": reason})
