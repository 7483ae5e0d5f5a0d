"""Contexts that were bought, by document and passage, and how far each document has come with them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue import batches

Owner = tuple[int, uuid.UUID]
"""(audience_id, chunk_id)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a model is told of a document beside its text. `may_leave`: its source lets its text go to a paid service.

    `asked`: somebody wants the contexts that are missing, though the bytes are unchanged.
    """

    path: str
    title: str | None
    may_leave: bool
    asked: bool
    attempts: int


_SUBJECTS: LiteralString = """
    SELECT d.document_id, d.path, d.title, s.enrich AS may_leave, coalesce(e.asked, false) AS asked,
           coalesce(e.attempts, 0) AS attempts
    FROM docwell.document d JOIN docwell.source s USING (source_id) LEFT JOIN docwell.enrichment e USING (document_id)
    WHERE d.document_id = %s
"""


def subject(connection: Connection[Any], document_id: uuid.UUID) -> Subject | None:
    """A document; None when it was erased."""
    row = connection.execute(_SUBJECTS, (document_id,)).fetchone()
    if row is None:
        return None
    return Subject(path=row[1], title=row[2], may_leave=row[3], asked=row[4], attempts=row[5])


_ON_ROWS: LiteralString = """
    SELECT c.audience_id, c.chunk_id, c.context FROM docwell.chunk c
    JOIN unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id) USING (audience_id, chunk_id)
    WHERE c.context IS NOT NULL
"""


def contexts_on_rows(connection: Connection[Any], owners: Collection[Owner]) -> dict[Owner, str]:
    """The contexts by which these passages are searched already, or were in a version that is kept."""
    values = {"audiences": [audience for audience, _ in owners], "ids": [chunk for _, chunk in owners]}
    return {(row[0], row[1]): row[2] for row in connection.execute(_ON_ROWS, values).fetchall()}


# Its own first. Of another document only one that the same people may read: a context tells what stands in its document.
_BOUGHT: LiteralString = """
    SELECT DISTINCT ON (k.chunk_id) k.chunk_id, k.context
    FROM docwell.chunk_context k JOIN docwell.document d USING (document_id)
    WHERE k.chunk_id = ANY (%(chunks)s) AND k.prompt = %(prompt)s AND k.context IS NOT NULL
      AND (d.document_id = %(document)s OR (d.audience_id = %(audience)s AND d.state NOT IN ('deleted', 'excluded')))
    ORDER BY k.chunk_id, d.document_id <> %(document)s, k.created_at
"""


def bought(
    connection: Connection[Any], document_id: uuid.UUID, audience_id: int, chunks: Sequence[uuid.UUID], *, prompt: int
) -> dict[uuid.UUID, str]:
    """Contexts of these passages that were paid for with this version of the prompt."""
    values = {"document": document_id, "audience": audience_id, "chunks": list(chunks), "prompt": prompt}
    return dict(connection.execute(_BOUGHT, values).fetchall())


_KEEP: LiteralString = """
    INSERT INTO docwell.chunk_context AS k (document_id, chunk_id, prompt, context, reason_code, reason, model)
    SELECT document_id, %(chunk)s, %(prompt)s, %(context)s, %(code)s, %(reason)s, %(model)s
    FROM docwell.document WHERE document_id = %(document)s
    ON CONFLICT (document_id, chunk_id, prompt) DO UPDATE SET
        context = excluded.context, reason_code = excluded.reason_code, reason = excluded.reason, model = excluded.model,
        attempts = k.attempts + 1, created_at = now()
"""


def keep(
    connection: Connection[Any],
    document_id: uuid.UUID,
    chunk_id: uuid.UUID,
    *,
    prompt: int,
    model: str,
    context: str | None = None,
    code: str | None = None,
    reason: str | None = None,
) -> None:
    """Keep a context, or why there is none. A document that was erased meanwhile gets nothing."""
    values = {
        "document": document_id,
        "chunk": chunk_id,
        "prompt": prompt,
        "context": context,
        "code": code,
        "reason": reason,
        "model": model,
    }
    connection.execute(_KEEP, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a document has come: `complete`, `partial` or `none`, and why not further.

    `attempts` are rounds that failed, one after another. `due_seconds` from now the scheduler asks again; None: not by itself.
    `order_seconds` from now what is missing is put into a batch; None: it is not.
    """

    state: str
    chunks: int
    with_context: int
    reason_code: str | None = None
    reason: str | None = None
    attempts: int = 0
    due_seconds: float | None = None
    order_seconds: float | None = None


_NOTE: LiteralString = """
    INSERT INTO docwell.enrichment AS e
        (document_id, state, reason_code, reason, chunks, with_context, attempts, due, order_due)
    SELECT document_id, %(state)s, %(code)s, %(reason)s, %(chunks)s, %(with)s, %(attempts)s,
           now() + make_interval(secs => %(due)s), now() + make_interval(secs => %(order)s)
    FROM docwell.document WHERE document_id = %(document)s
    ON CONFLICT (document_id) DO UPDATE SET
        state = excluded.state, reason_code = excluded.reason_code, reason = excluded.reason, chunks = excluded.chunks,
        with_context = excluded.with_context, attempts = excluded.attempts, due = excluded.due,
        order_due = coalesce(excluded.order_due, e.order_due), changed_at = now()
"""


def note_progress(connection: Connection[Any], document_id: uuid.UUID, progress: Progress) -> None:
    """Write how far a document has come. What was asked of it stays asked until it is published; a turn that it has for a batch
    stays too, since answers may have come meanwhile.
    """
    values = {
        "document": document_id,
        "state": progress.state,
        "code": progress.reason_code,
        "reason": progress.reason,
        "chunks": progress.chunks,
        "with": progress.with_context,
        "attempts": progress.attempts,
        "due": progress.due_seconds,
        "order": progress.order_seconds,
    }
    connection.execute(_NOTE, values)


_ASK: LiteralString = """
    INSERT INTO docwell.enrichment AS e (document_id, asked)
    SELECT document_id, true FROM docwell.document
    WHERE document_id = ANY (%s) AND searchable AND served_version = latest_version AND pinned_version IS NULL
      AND state NOT IN ('deleted', 'excluded')
    ORDER BY document_id
    ON CONFLICT (document_id) DO UPDATE SET asked = true, due = NULL, changed_at = now()
    RETURNING document_id
"""


def ask(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Let the next job of these documents look for missing contexts; returns those that have something to look for.

    A document that serves an old version, or is on its way, has nothing.
    """
    return [row[0] for row in connection.execute(_ASK, (list(documents),)).fetchall()]


_TAKE_DUE: LiteralString = """
    WITH due AS (
        SELECT document_id FROM docwell.enrichment
        WHERE due <= now() OR (%(orders)s AND order_due <= now())
        ORDER BY due LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    )
    UPDATE docwell.enrichment e SET due = NULL, order_due = CASE WHEN %(orders)s THEN NULL ELSE order_due END
    FROM due WHERE e.document_id = due.document_id RETURNING e.document_id
"""


def take_due(connection: Connection[Any], *, limit: int, orders: bool = False) -> list[uuid.UUID]:
    """Documents whose missing contexts are to be asked for again, each told once.

    `orders`: nothing is put into batches any more, so those that wait for one are due too.
    """
    return [row[0] for row in connection.execute(_TAKE_DUE, {"limit": limit, "orders": orders}).fetchall()]


def forget_failures(connection: Connection[Any], documents: Collection[uuid.UUID]) -> None:
    """A person asks: passages that failed are like new."""
    connection.execute("DELETE FROM docwell.chunk_context WHERE document_id = ANY (%s) AND context IS NULL", (sorted(documents),))


_SETTLE: LiteralString = "UPDATE docwell.enrichment SET asked = false WHERE asked AND document_id = ANY (%s)"
# What no version of the document holds any more is not worth keeping.
_PRUNE: LiteralString = """
    DELETE FROM docwell.chunk_context k
    WHERE k.document_id = ANY (%s)
      AND NOT EXISTS (SELECT 1 FROM docwell.version v JOIN docwell.version_chunk place USING (version_id)
                      WHERE v.document_id = k.document_id AND place.chunk_id = k.chunk_id)
"""


def settle(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """These documents are published: nothing is asked of them any more, and contexts that no version holds go."""
    if not documents:
        return
    connection.execute(_SETTLE, (list(documents),))
    connection.execute(_PRUNE, (list(documents),))


_FORGET: tuple[LiteralString, ...] = (
    "DELETE FROM docwell.chunk_context WHERE document_id = %s",
    "DELETE FROM docwell.enrichment WHERE document_id = %s",
)


def forget(connection: Connection[Any], document_id: uuid.UUID) -> None:
    """A document is deleted: its contexts, which tell of its text, go with it, and those that are still to come."""
    batches.forget(connection, [document_id])
    for statement in _FORGET:
        connection.execute(statement, (document_id,))


# Passages that other documents hold too may be searched by a context that tells of this one. Terms of an older version are made
# again by the scheduler, from the row as it then is.
_BORROWED: LiteralString = """
    UPDATE docwell.chunk c SET context = NULL
    FROM docwell.chunk_context k
    WHERE k.document_id = ANY (%s) AND c.chunk_id = k.chunk_id AND c.context = k.context
    RETURNING c.audience_id, c.chunk_id
"""
_OUTDATE: LiteralString = """
    UPDATE docwell.chunk_terms t SET lexical_version = 0
    FROM unnest(%(audiences)s::integer[], %(ids)s::uuid[]) AS wanted (audience_id, chunk_id)
    WHERE (t.audience_id, t.chunk_id) = (wanted.audience_id, wanted.chunk_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Contexts that were erased, and passages that were searched by one of them, whose vectors are yet to follow."""

    contexts: int
    passages: set[Owner]


def take_back(connection: Connection[Any], documents: Collection[uuid.UUID]) -> Taken:
    """Erase the contexts that tell of these documents, on passages of others too.

    In the transaction of an erasure, which holds every publisher off.
    """
    batches.forget(connection, documents)
    lent: set[Owner] = set(connection.execute(_BORROWED, (list(documents),)).fetchall())
    if lent:
        connection.execute(_OUTDATE, {"audiences": [audience for audience, _ in lent], "ids": [chunk for _, chunk in lent]})
    gone = connection.execute("DELETE FROM docwell.chunk_context WHERE document_id = ANY (%s)", (list(documents),)).rowcount
    return Taken(contexts=gone, passages=lent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """How a document stands, for people. `next_try`: when the missing ones are asked for again by themselves."""

    state: str
    reason_code: str | None
    reason: str | None
    chunks: int
    with_context: int
    next_try: datetime | None
    failed: Mapping[str, int]


_STANDING: LiteralString = """
    SELECT e.state, e.reason_code, e.reason, e.chunks, e.with_context, e.due AS next_try,
           coalesce((SELECT jsonb_object_agg(code, count) FROM (
               SELECT coalesce(reason_code, '') AS code, count(*) AS count FROM docwell.chunk_context k
               WHERE k.document_id = e.document_id AND k.context IS NULL GROUP BY 1) AS failures), '{}') AS failed
    FROM docwell.enrichment e WHERE e.document_id = %s
"""


def standing(connection: Connection[Any], document_id: uuid.UUID) -> Enrichment | None:
    """How far a document has come; None when nothing was ever tried. `failed` counts passages by the reason of their failure."""
    with connection.cursor(row_factory=class_row(Enrichment)) as cursor:
        return cursor.execute(_STANDING, (document_id,)).fetchone()
