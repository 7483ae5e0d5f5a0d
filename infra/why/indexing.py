"""The stages of a job: queued, parsed, embedded, served."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from infra.why.stage import Stage, ok, stopped, unknown
from ingest_worker.catalogue import listing, without_vector
from ingest_worker.catalogue.asking import Filters
from ingest_worker.catalogue.job_listing import list_jobs
from ingest_worker.catalogue.json_form import utc_text
from ingest_worker.catalogue.listing import DocumentRow
from ingest_worker.catalogue.overview import count_jobs

JOB, PARSED, EMBEDDED, SERVED = "job", "parsed", "embedded", "served"

_AGAIN = "`docwell documents exclude {0} --yes`, then `docwell documents include {0}`: it is read again from its source."


def job(connection: Connection[Any], document: DocumentRow) -> Stage:
    """Whether the newest job came to its end."""
    rows = list_jobs(connection, Filters(document_id=document.document_id), limit=1).rows
    if not rows:
        said = "No job of it is on record: old ones are purged."
        return ok(JOB, said) if document.searchable else unknown(JOB, said)
    newest = rows[0]
    facts = f"Job {newest.job_id} ({newest.kind}) is {newest.state}, attempt {newest.attempts} of {newest.max_attempts}"
    evidence = [facts + (f", next run {utc_text(newest.next_run_at)}." if newest.next_run_at else ".")]
    if newest.last_error:
        evidence.append(f"Last error ({newest.error_code}): {newest.last_error}")
    if newest.state == "succeeded":
        ended = f" at {utc_text(newest.finished_at)}" if newest.finished_at is not None else ""
        return ok(JOB, f"Job {newest.job_id} ({newest.kind}) succeeded{ended}: {newest.result}.")
    if newest.state in {"dead", "cancelled"}:
        cure = f"Mend what the error names, then `docwell jobs retry {newest.job_id}`."
    else:
        counts = count_jobs(connection)
        evidence.append(f"{counts.due} jobs are due, the oldest since {counts.oldest_due_seconds or 0:.0f} s.")
        cure = "Wait; when nothing moves, start the workers: `docwell up` (`docwell status` shows whether they run)."
    if document.searchable:
        return ok(JOB, *evidence, "An older version is served meanwhile.", cure=cure)
    return stopped(JOB, *evidence, cure=cure)


def parsed(connection: Connection[Any], document: DocumentRow) -> Stage:
    """Whether text was read from it."""
    versions = listing.list_versions(connection, document.document_id)
    newest = versions[0] if versions else None
    evidence = [f"Its state is {document.state}" + (f" ({document.reason_code}): {document.reason}" if document.reason else ".")]
    if document.page_count:
        evidence.append(f"{document.pages_with_text or 0} of {document.page_count} pages have text.")
    if newest is not None:
        evidence.append(f"Version {newest.number} ({newest.media_type or 'type unknown'}) gave {newest.chunk_count} chunks.")
        evidence += [f"Warning: {warning}" for warning in newest.warnings]
    cures = {
        "needs_ocr": "Install tesseract (`docwell doctor` says whether it is there) or store a copy with a text layer.",
        "failed": "Mend what the reason names; the next change of the file reads it again, and so does `docwell jobs retry`.",
        "skipped": "See the stage `in scope`.",
        "partial": "What has no text is not found: the reason names it.",
    }
    cure = cures.get(document.state)
    if document.state in {"queued", "indexing"} and newest is None:
        return unknown(PARSED, "It was not read yet.")
    if document.state in {"excluded", "deleted"}:
        return unknown(PARSED, f"It is {document.state}.")
    if document.searchable:
        return ok(PARSED, *evidence, cure=cure)
    if newest is None and not document.reason:
        return unknown(PARSED, "It was not read yet.")
    return stopped(PARSED, *evidence, cure=cure)


_HELD = sql.SQL("""
    SELECT count(*),
           count(*) FILTER (WHERE EXISTS (SELECT 1 FROM {vectors} v
                                          WHERE v.audience_id = c.audience_id AND v.input_id = c.input_id)),
           count(*) FILTER (WHERE EXISTS (SELECT 1 FROM docwell.chunk_terms t
                                          WHERE t.audience_id = c.audience_id AND t.chunk_id = c.chunk_id))
    FROM (SELECT DISTINCT place.audience_id, place.chunk_id FROM docwell.document d
          JOIN docwell.version_chunk place ON place.version_id = d.served_version_id WHERE d.document_id = %s) AS served
    JOIN docwell.chunk c USING (audience_id, chunk_id)
""")


_BY_WORDS = "Ask in words that it holds; `docwell doctor` says how it would be found by meaning too."


def embedded(connection: Connection[Any], document: DocumentRow) -> Stage:
    """Whether each chunk that is served has its vector in the active space, and its terms."""
    if not document.searchable:
        return unknown(EMBEDDED, "No version is served, so there is nothing to have vectors.")
    space = connection.execute("SELECT space_id, model FROM docwell.embedding_space WHERE state = 'active'").fetchone()
    if space is None:
        return stopped(EMBEDDED, "No embedding space is active.", cure="`docwell doctor` says more.")
    query = _HELD.format(vectors=sql.Identifier("docwell", f"vector_{space[0]}"))
    chunks, vectors, terms = connection.execute(query, (document.document_id,)).fetchone() or (0, 0, 0)
    said = f"Of {chunks} served chunks {vectors} have a vector of {space[1]} and {terms} have their terms."
    if chunks and vectors == terms == chunks:
        return ok(EMBEDDED, said)
    gaps = without_vector.count_active(connection, document.document_id)
    if gaps and terms == chunks and vectors + sum(gap.passages for gap in gaps) >= chunks:
        reasons = [f"{gap.passages} without one ({gap.code}): {gap.reason}" for gap in gaps]
        return ok(EMBEDDED, said, *reasons, cure=_BY_WORDS)
    legs = "by meaning" if terms == chunks else "by their words" if vectors == chunks else "by meaning, or by their words"
    return stopped(EMBEDDED, said, f"The others are not found {legs}.", cure=_AGAIN.format(document.document_id))


def served(document: DocumentRow) -> Stage:
    """Which version searches see."""
    if document.served_version is None:
        return stopped(SERVED, "No version of it is served.", cure="See the first stage that stopped it.")
    evidence = [f"Version {document.served_version} of {document.latest_version} is served, with {document.chunk_count} chunks."]
    if document.pinned_version is not None:
        evidence.append(f"A person rolled back to version {document.pinned_version}.")
    if document.served_version == document.latest_version:
        return ok(SERVED, *evidence)
    evidence.append("The newest version is not the one that is found.")
    pinned = f"`docwell documents rollback {document.document_id} {document.latest_version}` serves the newest."
    return ok(SERVED, *evidence, cure=pinned if document.pinned_version is not None else None)
