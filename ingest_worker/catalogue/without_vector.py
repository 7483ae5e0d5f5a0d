"""Passages that are searched by their words alone in an embedding space: which, why, and in which documents."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue.vectors import Owner
from shared.config import Settings

Code = Literal["kept_here", "refused"]

KEPT_HERE: Code = "kept_here"
REFUSED: Code = "refused"

_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Why a passage has no vector: `kept_here`, its sources have `enrich = false` and the model is a paid one; `refused`, the
    model takes it in no way."""

    code: Code
    reason: str


def kept_here(model: str) -> Gap:
    """The gap of a passage whose sources let nothing leave."""
    return Gap(
        code=KEPT_HERE,
        reason=f"Its source has enrich = false, and {model} is a paid service: it is found by its words, and not by meaning.",
    )


def refused(error: Exception) -> Gap:
    """The gap of a passage that a model has refused."""
    return Gap(code=REFUSED, reason=str(error)[:_LONGEST_REASON])


MAY_LEAVE: LiteralString = "((s.enrich OR s.embed_anyway) AND s.name <> ALL (%(confined)s))"
"""Whether the source `s` lets its text go to a paid embedding model: what its row says, unless the settings confine it by now."""

_DOCUMENTS: LiteralString = """
    SELECT d.document_id FROM docwell.document d JOIN docwell.source s USING (source_id)
    WHERE d.document_id = ANY (%(documents)s) AND NOT
"""
_CONFINED: LiteralString = _DOCUMENTS + MAY_LEAVE


def confined_sources(settings: Settings) -> list[str]:
    """The names of the sources that the settings keep from paid embedding models. Their rows may not say so yet: whoever reads
    the source writes that there, and workers start at the same time."""
    return [one.name for one in settings.sources if not one.enrich and one.embed != "anyway"]


def confined_documents(connection: Connection[Any], documents: Collection[uuid.UUID], settings: Settings) -> set[uuid.UUID]:
    """Those of the documents whose source lets none of their text go to a paid embedding model."""
    values = {"documents": list(documents), "confined": confined_sources(settings)}
    return {row[0] for row in connection.execute(_CONFINED, values).fetchall()}


_NOTE: LiteralString = """
    INSERT INTO docwell.without_vector (space_id, audience_id, input_id, reason_code, reason)
    SELECT %(space)s, * FROM unnest(%(audiences)s::integer[], %(inputs)s::uuid[], %(codes)s::text[], %(reasons)s::text[])
    ORDER BY 2, 3
    ON CONFLICT (space_id, audience_id, input_id) DO UPDATE SET
        reason_code = excluded.reason_code, reason = excluded.reason, look_at = NULL, noted_at = now()
"""


def note(connection: Connection[Any], space_id: int, gaps: Mapping[Owner, Gap]) -> None:
    """These have no vector in the space, for these reasons. The caller holds their chunks."""
    if gaps:
        values = {
            "space": space_id,
            "audiences": [audience for audience, _ in gaps],
            "inputs": [input_id for _, input_id in gaps],
            "codes": [gap.code for gap in gaps.values()],
            "reasons": [gap.reason for gap in gaps.values()],
        }
        connection.execute(_NOTE, values)


_FILLED: LiteralString = """
    DELETE FROM docwell.without_vector w
    USING unnest(%(audiences)s::integer[], %(inputs)s::uuid[]) AS filled (audience_id, input_id)
    WHERE w.space_id = %(space)s AND (w.audience_id, w.input_id) = (filled.audience_id, filled.input_id)
"""


def filled(connection: Connection[Any], space_id: int, owners: Collection[Owner]) -> None:
    """These have their vector now."""
    if owners:
        values = {
            "space": space_id,
            "audiences": [audience for audience, _ in owners],
            "inputs": [input_id for _, input_id in owners],
        }
        connection.execute(_FILLED, values)


def settle(
    connection: Connection[Any],
    space_id: int,
    owners: Collection[Owner],
    *,
    lacking: Collection[uuid.UUID],
    gaps: Mapping[uuid.UUID, Gap],
) -> None:
    """Note why those of the owners have no vector whose inputs are `lacking`, as far as `gaps` tells; the others have theirs."""
    note(connection, space_id, {owner: gaps[owner[1]] for owner in owners if owner[1] in lacking and owner[1] in gaps})
    filled(connection, space_id, [owner for owner in owners if owner[1] not in lacking])


_LEAVE: LiteralString = "DELETE FROM docwell.without_vector WHERE audience_id = %s AND input_id = ANY (%s)"


def leave(connection: Connection[Any], audience_id: int, inputs: Sequence[uuid.UUID]) -> None:
    """These passages are searched no more, in any space."""
    connection.execute(_LEAVE, (audience_id, list(inputs)))


_REFUSED: LiteralString = """
    SELECT DISTINCT ON (input_id) input_id, reason FROM docwell.without_vector
    WHERE space_id = %s AND input_id = ANY (%s) AND reason_code = 'refused' AND look_at IS NULL
"""


def refused_inputs(connection: Connection[Any], space_id: int, inputs: Collection[uuid.UUID]) -> dict[uuid.UUID, Gap]:
    """Those of the embedded inputs that the space's model has refused already, in any audience."""
    rows = connection.execute(_REFUSED, (space_id, list(inputs))).fetchall()
    return {input_id: Gap(code=REFUSED, reason=reason) for input_id, reason in rows}


# --- looking again


_FREED: LiteralString = """
    UPDATE docwell.without_vector w SET look_at = now()
    FROM docwell.document d JOIN docwell.version_chunk place ON place.version_id = d.served_version_id
    JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (place.audience_id, place.chunk_id)
    WHERE d.source_id = %s AND (w.audience_id, w.input_id) = (c.audience_id, c.input_id)
      AND w.reason_code = 'kept_here' AND w.look_at IS NULL
"""
_ALL_FREED: LiteralString = """
    UPDATE docwell.without_vector SET look_at = now() WHERE space_id = %s AND reason_code = 'kept_here' AND look_at IS NULL
"""
_RETRY_OLD: LiteralString = """
    UPDATE docwell.without_vector SET look_at = now()
    WHERE space_id = %s AND reason_code = 'refused' AND look_at IS NULL AND noted_at < now() - make_interval(secs => %s)
"""
_RETRY: LiteralString = "UPDATE docwell.without_vector SET look_at = now() WHERE reason_code = 'refused' AND look_at IS NULL"


def source_freed(connection: Connection[Any], source_id: int) -> int:
    """The source lets its text leave now: its passages are looked at again. Returns how many."""
    return connection.execute(_FREED, (source_id,)).rowcount


def space_freed(connection: Connection[Any], space_id: int) -> int:
    """The space's model counts as unpaid now: what was kept from it is looked at again. Returns how many passages."""
    return connection.execute(_ALL_FREED, (space_id,)).rowcount


def retry_refused(connection: Connection[Any]) -> int:
    """Ask models again for what they have refused, in every space; returns how many passages."""
    return connection.execute(_RETRY).rowcount


def retry_old(connection: Connection[Any], space_id: int, *, seconds: float) -> int:
    """Ask the space's model again for what it refused so long ago; returns how many passages."""
    return connection.execute(_RETRY_OLD, (space_id, seconds)).rowcount


_PUT_OFF: LiteralString = """
    UPDATE docwell.without_vector w SET look_at = now() + make_interval(secs => %(seconds)s)
    FROM unnest(%(audiences)s::integer[], %(inputs)s::uuid[]) AS seen (audience_id, input_id)
    WHERE w.space_id = %(space)s AND (w.audience_id, w.input_id) = (seen.audience_id, seen.input_id) AND w.look_at <= now()
"""
_DROP_ORPHANS: LiteralString = """
    DELETE FROM docwell.without_vector w
    WHERE w.space_id = %s AND w.look_at <= now()
      AND NOT EXISTS (SELECT FROM docwell.chunk c WHERE (c.audience_id, c.input_id) = (w.audience_id, w.input_id))
"""


def put_off(connection: Connection[Any], space_id: int, owners: Collection[Owner], *, seconds: float | None) -> None:
    """Look at these, as far as they are due, later, or not again by itself. Without any: those that are no passages go."""
    if not owners:
        connection.execute(_DROP_ORPHANS, (space_id,))
        return
    values = {
        "space": space_id,
        "seconds": seconds,
        "audiences": [audience for audience, _ in owners],
        "inputs": [input_id for _, input_id in owners],
    }
    connection.execute(_PUT_OFF, values)


# --- telling


@dataclass(frozen=True, slots=True, kw_only=True)
class GapCount:
    """Passages of one kind in a space, and of how many documents that are served they are; `example` is one's path."""

    code: str
    passages: int
    documents: int
    example: str | None
    reason: str | None


_COUNT: LiteralString = """
    SELECT w.reason_code AS code, count(DISTINCT (w.audience_id, w.input_id)) AS passages,
           count(DISTINCT d.document_id) AS documents, min(d.path) AS example, min(w.reason) AS reason
    FROM docwell.without_vector w JOIN docwell.chunk c USING (audience_id, input_id)
    JOIN docwell.version_chunk place USING (audience_id, chunk_id)
    JOIN docwell.document d ON d.served_version_id = place.version_id
    WHERE w.space_id = %(space)s AND (%(document)s::uuid IS NULL OR d.document_id = %(document)s)
    GROUP BY w.reason_code ORDER BY w.reason_code
"""
_NAMED: LiteralString = """
    SELECT DISTINCT d.path
    FROM docwell.without_vector w JOIN docwell.chunk c USING (audience_id, input_id)
    JOIN docwell.version_chunk place USING (audience_id, chunk_id)
    JOIN docwell.document d ON d.served_version_id = place.version_id
    WHERE w.space_id = %(space)s AND w.reason_code = %(code)s ORDER BY d.path LIMIT %(limit)s
"""
_ACTIVE: LiteralString = "SELECT space_id FROM docwell.embedding_space WHERE state = 'active'"


def count_active(connection: Connection[Any], document_id: uuid.UUID | None = None) -> list[GapCount]:
    """The passages that searches do not find by meaning, by reason; those of one document, or of all."""
    space = connection.execute(_ACTIVE).fetchone()
    if space is None:
        return []
    with connection.cursor(row_factory=class_row(GapCount)) as cursor:
        return cursor.execute(_COUNT, {"space": space[0], "document": document_id}).fetchall()


def documents_with(connection: Connection[Any], space_id: int, code: Code, *, limit: int) -> list[str]:
    """Paths of documents that are served with such passages."""
    values = {"space": space_id, "code": code, "limit": limit}
    return [row[0] for row in connection.execute(_NAMED, values).fetchall()]
