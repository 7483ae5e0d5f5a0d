"""What people ask of jobs: try again, stop, forget."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.settling import settle_cancelled
from shared.documents import JobState

_RETRY = """
    UPDATE docwell.job SET
        state = 'queued', attempts = 0, next_run_at = now(), place = now(), bulk = false, finished_at = NULL, result = NULL
    WHERE job_id IN (
        -- Of several ended jobs of a document the newest: a document has one live job.
        SELECT DISTINCT ON (document_id) job_id FROM docwell.job
        WHERE job_id = ANY (%s) AND state IN ('dead', 'retrying', 'cancelled')
        ORDER BY document_id, state = 'retrying' DESC, created_at DESC
    )
      AND NOT EXISTS (SELECT 1 FROM docwell.job live WHERE live.document_id = job.document_id
                      AND live.job_id <> job.job_id AND live.state IN ('queued', 'running', 'retrying'))
    RETURNING document_id
"""
_QUEUE_DOCUMENTS = """
    UPDATE docwell.document SET state = 'queued', changed_at = now()
    WHERE document_id = ANY (%s) AND state NOT IN ('deleted', 'excluded')
    RETURNING document_id
"""
_LEAVE_ENDED = """
    UPDATE docwell.job SET state = 'cancelled', finished_at = now() WHERE document_id = ANY (%s) AND state = 'queued'
"""


def retry(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> int:
    """Give dead, waiting or cancelled jobs all their attempts again, now: one for each document. Returns how many were taken.

    Jobs of deleted and excluded documents are not: nothing brings those back but their file, or `include`.
    """
    taken = {row[0] for row in connection.execute(_RETRY, (list(jobs),)).fetchall()}
    # Jobs before documents, so the documents are looked at when the jobs are held.
    queued = {row[0] for row in connection.execute(_QUEUE_DOCUMENTS, (list(taken),)).fetchall()}
    if taken - queued:
        connection.execute(_LEAVE_ENDED, (list(taken - queued),))
    return len(queued)


_CANCEL = """
    UPDATE docwell.job SET state = 'cancelled', finished_at = now(), lease_token = NULL, lease_until = NULL
    WHERE job_id = ANY (%s) AND state IN ('queued', 'running', 'retrying')
    RETURNING document_id
"""


def cancel(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> int:
    """Stop live jobs; a running one loses its lease and writes nothing. Returns how many were stopped."""
    documents = [row[0] for row in connection.execute(_CANCEL, (list(jobs),)).fetchall()]
    settle_cancelled(connection, documents)
    return len(documents)


_PURGE = """
    DELETE FROM docwell.job WHERE state = ANY (%(states)s) AND finished_at < now() - make_interval(secs => %(older)s)
"""


def purge(connection: Connection[Any], *, states: Sequence[JobState], older_than_seconds: float) -> int:
    """Remove ended jobs from the record; live ones stay. Returns how many went."""
    live = {JobState.QUEUED, JobState.RUNNING, JobState.RETRYING}
    ended = [state.value for state in states if state not in live]
    return connection.execute(_PURGE, {"states": ended, "older": older_than_seconds}).rowcount
