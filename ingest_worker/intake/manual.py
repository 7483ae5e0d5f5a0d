"""Documents that a person names by hand: found, asked for in batches, and followed to their end."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.erasures import erased_reason, find_erasure
from ingest_worker.catalogue.left_out import Why
from ingest_worker.catalogue.sources import MANUAL, Source, ensure_namespace, ensure_source
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.names import NameRules
from ingest_worker.intake.read import read_file
from ingest_worker.intake.tally import Tally
from ingest_worker.intake.walk import walk
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.registry import detect
from shared.errors import PermanentError
from shared.paths import document_path

BATCH = 500


def find_files(
    paths: Sequence[Path], *, names: NameRules | None = None, left_out: dict[str, Why] | None = None
) -> Iterator[Path]:
    """The files that are named, and those below the folders that are named, absolute; of a folder in byte order.

    Below a folder the same is left out as in a source's folder, with its own `.docwellignore`; it is put into `left_out` by
    path, up to the bound of a `Tally`. A file that is named itself is always taken.

    Raises:
        PermanentError: a path does not exist, or a folder or its rules cannot be read.
    """
    for path in paths:
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links and change the identity
        if absolute.is_dir():
            yield from _walk(absolute, names, {} if left_out is None else left_out)
        elif absolute.exists():
            yield absolute
        else:
            raise PermanentError(f"{path} does not exist.", code="not_found")


def _walk(folder: Path, names: NameRules | None, left_out: dict[str, Why]) -> Iterator[Path]:
    rules, tally = IgnoreRules(folder, names=names), Tally()
    if rules.problem is not None:
        raise PermanentError(rules.problem, code="unreadable_rules")
    try:
        for found in walk(os.path.realpath(folder), rules, tally):
            yield folder / found.name
    except OSError as error:
        raise PermanentError(f"The folder {folder} cannot be read: {error.strerror}.", code="unreadable_folder") from error
    left_out.update({f"{document_path(str(folder))}/{path}": why for path, why in tally.entries.items()})


def manual_source(connection: Connection[Any]) -> Source:
    """The source of documents that are named by hand; no sweep ever deletes them."""
    return ensure_source(connection, MANUAL, kind=MANUAL)


def request_files(
    connection: Connection[Any],
    files: Sequence[Path],
    *,
    namespace: str,
    tags: Sequence[str],
    max_attempts: int,
) -> dict[str, uuid.UUID]:
    """Ask for these files, in one transaction: `{path: job_id}`. Excluded documents are left out."""
    with connection.transaction():
        source = manual_source(connection)
        asked = request_ingest(
            connection,
            source,
            ensure_namespace(connection, namespace),
            [Observed(name=str(path)) for path in files],
            tags=tags,
            max_attempts=max_attempts,
        )
    return {path: asked.jobs[document] for path, document in asked.documents.items() if document in asked.jobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended, for somebody who waited for it."""

    job_id: uuid.UUID
    path: str
    state: str
    result: str | None
    chunks: int | None
    embedded: int | None
    reason: str | None


_ENDED = """
    SELECT wanted.job_id, coalesce(d.path, '') AS path, coalesce(j.state, 'cancelled') AS state, j.result, j.chunks, j.embedded,
           CASE WHEN j.job_id IS NULL THEN 'It was erased, or purged from the record.' ELSE coalesce(j.last_error, d.reason) END
               AS reason
    FROM unnest(%s::uuid[]) AS wanted (job_id)
    LEFT JOIN docwell.job j USING (job_id) LEFT JOIN docwell.document d USING (document_id)
    WHERE j.job_id IS NULL OR j.state IN ('succeeded', 'dead', 'cancelled')
"""


def ended_jobs(connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> list[Ended]:
    """Those of the jobs with which nothing more will happen by itself; one that is not there any more is among them."""
    with connection.cursor(row_factory=class_row(Ended)) as cursor:
        return cursor.execute(_ENDED, (list(jobs),)).fetchall()


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """What taking a file in would do: `new`, `changed`, `unchanged`, `skipped`, `failed` or `left_out`, and why."""

    path: str
    action: str
    reason: str


_KNOWN = """
    SELECT d.sha256, d.state FROM docwell.document d
    JOIN docwell.source s USING (source_id) JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    WHERE s.name = %s AND n.name = %s AND d.path = %s AND d.state <> 'deleted'
"""


def intend(connection: Connection[Any], file: Path, *, namespace: str, max_bytes: int) -> Intention:
    """What `request_files` would come to for one file, without doing it."""
    path = Observed(name=str(file)).path
    known = connection.execute(_KNOWN, (MANUAL, namespace, path)).fetchone()
    if known is not None and known[1] == "excluded":
        return Intention(path=path, action="skipped", reason="it is excluded; `docwell documents include` takes it back")
    try:
        content = read_file(file, max_bytes=max_bytes)
        detect(path, content.data)
    except Skipped as skipped:
        return Intention(path=path, action="skipped", reason=str(skipped))
    except PermanentError as error:
        return Intention(path=path, action="skipped" if error.code == "too_large" else "failed", reason=str(error))
    erasure_id = find_erasure(connection, source=MANUAL, namespace=namespace, path=path, sha256=content.sha256)
    if erasure_id is not None:
        return Intention(path=path, action="skipped", reason=erased_reason(erasure_id))
    if known is None:
        return Intention(path=path, action="new", reason="it is not in the index yet")
    if known[0] == content.sha256:
        return Intention(path=path, action="unchanged", reason="its bytes are those of the latest version")
    return Intention(path=path, action="changed", reason="its bytes differ from those of the latest version")
