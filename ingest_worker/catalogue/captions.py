"""Captions that were bought, by document and picture, how far each document has come with them, and thumbnails."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

Owner = tuple[int, uuid.UUID]
"""(audience_id, chunk_id)"""

DECORATION = "decoration"
"""The reason for which a picture has no caption and is never asked about again: it shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a model is told of a document beside its pictures. `may_leave`: its source lets it go to a paid service.

    `noted`: it is written down how far it has come.
    """

    path: str
    title: str | None
    may_leave: bool
    noted: bool
    attempts: int


_SUBJECT: LiteralString = """
    SELECT d.path, d.title, s.enrich AS may_leave, c.document_id IS NOT NULL AS noted, coalesce(c.attempts, 0) AS attempts
    FROM docwell.document d JOIN docwell.source s USING (source_id) LEFT JOIN docwell.captioning c USING (document_id)
    WHERE d.document_id = %s
"""


def subject(connection: Connection[Any], document_id: uuid.UUID) -> Subject | None:
    """A document; None when it was erased."""
    with connection.cursor(row_factory=class_row(Subject)) as cursor:
        return cursor.execute(_SUBJECT, (document_id,)).fetchone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a picture: its caption, or None where it was found to be decoration, and the model that said so.

    `is_newest`: by the model and the version of the prompt that are asked for now.
    """

    caption: str | None
    model: str
    is_newest: bool = True


# The newest first, its own first. Of another document only one that the same people may read: the words around the picture were
# shown to the model.
_KNOWN: LiteralString = """
    SELECT DISTINCT ON (k.picture) k.picture, k.caption, k.model, k.prompt,
           CASE WHEN k.document_id <> %(document)s THEN coalesce(k.lender_id, k.document_id) END,
           (k.prompt, k.model) = (%(prompt)s, %(model)s) AS is_newest
    FROM docwell.caption k JOIN docwell.document d USING (document_id)
    WHERE k.picture = ANY (%(pictures)s) AND (k.caption IS NOT NULL OR k.reason_code = %(decoration)s)
      AND (d.document_id = %(document)s OR (d.audience_id = %(audience)s AND d.state NOT IN ('deleted', 'excluded')))
    ORDER BY k.picture, (k.prompt, k.model) <> (%(prompt)s, %(model)s), k.document_id <> %(document)s, k.created_at DESC
"""
_BORROW: LiteralString = """
    INSERT INTO docwell.caption (document_id, picture, prompt, model, caption, reason_code, lender_id)
    SELECT d.document_id, new.picture, new.prompt, new.model, new.caption,
           CASE WHEN new.caption IS NULL THEN %(decoration)s END, new.lender_id
    FROM unnest(%(pictures)s::bytea[], %(captions)s::text[], %(models)s::text[], %(prompts)s::integer[], %(lenders)s::uuid[])
        AS new (picture, caption, model, prompt, lender_id)
    JOIN docwell.document d ON d.document_id = %(document)s
    ON CONFLICT (document_id, picture, prompt, model) DO UPDATE SET
        caption = excluded.caption, reason_code = excluded.reason_code, reason = NULL, lender_id = excluded.lender_id
"""


def known(
    connection: Connection[Any],
    document_id: uuid.UUID,
    audience_id: int,
    pictures: Collection[bytes],
    *,
    prompt: int,
    model: str,
) -> dict[bytes, Known]:
    """What was paid for already, with this version of the prompt and this model before any other.

    What another document with the same readers has is lent by it, and noted as such.
    """
    values: dict[str, Any] = {
        "document": document_id,
        "audience": audience_id,
        "pictures": list(pictures),
        "prompt": prompt,
        "model": model,
        "decoration": DECORATION,
    }
    rows = connection.execute(_KNOWN, values).fetchall()
    lent = [row[:5] for row in rows if row[4] is not None]
    if lent:
        names = ("pictures", "captions", "models", "prompts", "lenders")
        connection.execute(_BORROW, values | dict(zip(names, map(list, zip(*lent, strict=True)), strict=True)))
    return {bytes(row[0]): Known(caption=row[1], model=row[2], is_newest=row[5]) for row in rows}


_KEEP: LiteralString = """
    INSERT INTO docwell.caption AS k (document_id, picture, prompt, model, caption, reason_code, reason)
    SELECT document_id, %(picture)s, %(prompt)s, %(model)s, %(caption)s, %(code)s, %(reason)s
    FROM docwell.document WHERE document_id = %(document)s
    ON CONFLICT (document_id, picture, prompt, model) DO UPDATE SET
        caption = excluded.caption, reason_code = excluded.reason_code, reason = excluded.reason, lender_id = NULL,
        attempts = k.attempts + 1, created_at = now()
"""


def keep(
    connection: Connection[Any],
    document_id: uuid.UUID,
    picture: bytes,
    *,
    prompt: int,
    model: str,
    caption: str | None = None,
    code: str | None = None,
    reason: str | None = None,
) -> None:
    """Keep a caption, or why there is none. A document that was erased meanwhile gets nothing."""
    values = {
        "document": document_id,
        "picture": picture,
        "prompt": prompt,
        "model": model,
        "caption": caption,
        "code": code,
        "reason": reason,
    }
    connection.execute(_KEEP, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a document has come: `complete`, `partial` or `none`, and why not further.

    `decoration`: how many of its pictures show nothing. `attempts` are rounds that failed, one after another. `due_seconds` from
    now the scheduler asks again; None: not by itself.
    """

    state: str
    pictures: int
    with_caption: int
    decoration: int = 0
    reason_code: str | None = None
    reason: str | None = None
    attempts: int = 0
    due_seconds: float | None = None


_NOTE: LiteralString = """
    INSERT INTO docwell.captioning AS c
        (document_id, state, reason_code, reason, pictures, with_caption, decoration, attempts, due)
    SELECT document_id, %(state)s, %(code)s, %(reason)s, %(pictures)s, %(with)s, %(decoration)s, %(attempts)s,
           now() + make_interval(secs => %(due)s)
    FROM docwell.document WHERE document_id = %(document)s
    ON CONFLICT (document_id) DO UPDATE SET
        state = excluded.state, reason_code = excluded.reason_code, reason = excluded.reason, pictures = excluded.pictures,
        with_caption = excluded.with_caption, decoration = excluded.decoration, attempts = excluded.attempts, due = excluded.due,
        changed_at = now()
"""
# What no version shows any more, and the newest bytes do not hold, is not worth keeping.
_PRUNE: LiteralString = """
    DELETE FROM docwell.caption k
    WHERE k.document_id = %(document)s AND k.picture <> ALL (%(keep)s)
      AND NOT EXISTS (SELECT 1 FROM docwell.version v JOIN docwell.version_chunk place USING (version_id)
                      JOIN docwell.thumbnail t ON (t.audience_id, t.chunk_id) = (place.audience_id, place.chunk_id)
                      WHERE v.document_id = k.document_id AND t.picture = k.picture)
"""


def note_progress(connection: Connection[Any], document_id: uuid.UUID, progress: Progress, pictures: Collection[bytes]) -> None:
    """Write how far a document has come that holds these pictures. What was asked of it stays asked until it is published."""
    values = {
        "document": document_id,
        "state": progress.state,
        "code": progress.reason_code,
        "reason": progress.reason,
        "pictures": progress.pictures,
        "with": progress.with_caption,
        "decoration": progress.decoration,
        "attempts": progress.attempts,
        "due": progress.due_seconds,
        "keep": list(pictures),
    }
    connection.execute(_NOTE, values)
    connection.execute(_PRUNE, values)


_NOTE_FAILURE: LiteralString = """
    UPDATE docwell.captioning SET reason_code = %s, reason = %s, due = NULL, changed_at = now() WHERE document_id = %s
"""


def note_failure(connection: Connection[Any], document_id: uuid.UUID, *, code: str, reason: str) -> None:
    """Its pictures could not be cut out again: what it has stays, and nothing more is asked for by itself."""
    connection.execute(_NOTE_FAILURE, (code, reason, document_id))


# One that serves an old version, or is on its way, has nothing to look for; one without text may have pictures.
_ASK: LiteralString = """
    INSERT INTO docwell.captioning AS c (document_id, asked)
    SELECT d.document_id, true
    FROM docwell.document d LEFT JOIN docwell.version v ON v.document_id = d.document_id AND v.number = d.latest_version
    WHERE d.document_id = ANY (%s) AND d.pinned_version IS NULL AND d.state NOT IN ('deleted', 'excluded')
      AND (d.served_version = d.latest_version OR (NOT d.searchable AND v.state IN ('needs_ocr', 'skipped')))
    ORDER BY d.document_id
    ON CONFLICT (document_id) DO UPDATE SET asked = true, due = NULL, changed_at = now()
    RETURNING document_id
"""


def ask(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Let the next job of these documents look for missing captions; returns those that have something to look for."""
    return [row[0] for row in connection.execute(_ASK, (list(documents),)).fetchall()]


_TAKE_DUE: LiteralString = """
    WITH due AS (
        SELECT document_id FROM docwell.captioning WHERE due <= now() ORDER BY due LIMIT %s FOR UPDATE SKIP LOCKED
    )
    UPDATE docwell.captioning c SET due = NULL FROM due WHERE c.document_id = due.document_id RETURNING c.document_id
"""


def take_due(connection: Connection[Any], *, limit: int) -> list[uuid.UUID]:
    """Documents whose missing captions are to be asked for again, each told once."""
    return [row[0] for row in connection.execute(_TAKE_DUE, (limit,)).fetchall()]


def settle(connection: Connection[Any], documents: Sequence[uuid.UUID]) -> None:
    """These documents are published with what there is: nothing is asked of them any more."""
    if documents:
        connection.execute(
            "UPDATE docwell.captioning SET asked = false WHERE asked AND document_id = ANY (%s)", (list(documents),)
        )


_FORGET: tuple[LiteralString, ...] = (
    "DELETE FROM docwell.caption WHERE document_id = %s",
    "DELETE FROM docwell.captioning WHERE document_id = %s",
)


def forget(connection: Connection[Any], document_id: uuid.UUID) -> None:
    """A document is deleted: what was said of its pictures goes with it."""
    for statement in _FORGET:
        connection.execute(statement, (document_id,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbnail:
    """A small JPEG of a picture, and the sha256 by which the picture is known."""

    picture: bytes
    image: bytes


_THUMBNAILS: LiteralString = """
    INSERT INTO docwell.thumbnail (audience_id, chunk_id, picture, image)
    SELECT * FROM unnest(%s::integer[], %s::uuid[], %s::bytea[], %s::bytea[]) AS new (audience_id, chunk_id, picture, image)
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
"""


def insert_thumbnails(connection: Connection[Any], made: Mapping[Owner, Thumbnail]) -> None:
    """Keep the pictures of these captions, whose chunks are there and held by the caller."""
    rows = [(audience, chunk_id, one.picture, one.image) for (audience, chunk_id), one in made.items()]
    if rows:
        connection.execute(_THUMBNAILS, tuple(map(list, zip(*rows, strict=True))))


_THUMBNAIL: LiteralString = """
    SELECT t.image FROM docwell.thumbnail t JOIN docwell.version_chunk place USING (audience_id, chunk_id)
    JOIN docwell.version v USING (version_id)
    WHERE v.document_id = %s AND t.chunk_id = %s LIMIT 1
"""


def thumbnail(connection: Connection[Any], document_id: uuid.UUID, chunk_id: uuid.UUID) -> bytes | None:
    """The JPEG of a caption in a version of the document that is kept; None when there is none."""
    row = connection.execute(_THUMBNAIL, (document_id, chunk_id)).fetchone()
    return None if row is None else bytes(row[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Captioning:
    """How a document stands, for people. `next_try`: when the missing ones are asked for again by themselves."""

    state: str
    reason_code: str | None
    reason: str | None
    pictures: int
    with_caption: int
    decoration: int
    next_try: datetime | None


_STANDING: LiteralString = """
    SELECT state, reason_code, reason, pictures, with_caption, decoration, due AS next_try
    FROM docwell.captioning WHERE document_id = %s
"""


def standing(connection: Connection[Any], document_id: uuid.UUID) -> Captioning | None:
    """How far a document has come; None when nothing was ever tried."""
    with connection.cursor(row_factory=class_row(Captioning)) as cursor:
        return cursor.execute(_STANDING, (document_id,)).fetchone()
