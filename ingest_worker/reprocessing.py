"""Documents that an older parser, chunker or prompt has read: counted, priced, and read again when a person asks for it.

An upgrade alone reads nothing again: what is indexed stays as it is until its bytes change.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue import documents
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.enrich import again, caption_prompt
from ingest_worker.enrich.caption_again import ask_captions
from ingest_worker.enrich.prompt import PROMPT_VERSION
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.fingerprint import ocr_settings, parser_fingerprint
from ingest_worker.parse.ocr import ocr_identity
from shared.config import Settings
from shared.embedding.endpoint import endpoint_of
from shared.embedding.spaces import model_in, read_models
from shared.prices import TokenUse, cost

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Older:
    """Documents of one source and namespace: `parsed` by an older parser or chunker, or with contexts of an older prompt only.

    `chunks` and `tokens` are those that they are served with.
    """

    source: str
    namespace: str
    parsed: int
    prompted: int
    chunks: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What reading them again would take at most: where the newer parser gives the same passage, it costs nothing.

    `context_calls` are those of the model that writes contexts, `caption_calls` of the one that describes pictures; 0 where it is
    off. `embedding_money` is None where no price is set.
    """

    older: Sequence[Older]
    documents: int
    chunks: int
    tokens: int
    context_calls: int
    caption_calls: int
    embedding_model: str | None
    embedding_money: Decimal | None


def current_fingerprint(settings: Settings) -> str:
    """The key of the parser and chunker that this installation reads with."""
    return parser_fingerprint(settings.chunk_tokens, settings.chunk_overlap, ocr_identity(ocr_settings(settings)))


# What is behind `;under=` is where a document stands at its source, not how it was read.
_OLDER: LiteralString = """
    SELECT d.document_id, s.name AS source, n.name AS namespace, d.served_version_id, s.enrich,
           s.enrich OR s.embed_anyway AS may_leave,
           split_part(v.fingerprint, ';under=', 1) <> %(current)s AS parsed, older_captions.count AS pictures
    FROM docwell.document d
    JOIN docwell.source s USING (source_id)
    JOIN docwell.namespace n ON n.namespace_id = d.namespace_id
    JOIN docwell.version v ON v.document_id = d.document_id AND v.number = d.latest_version
    CROSS JOIN LATERAL (
        SELECT count(*) AS count FROM docwell.caption k
        WHERE %(captions)s AND s.enrich AND k.document_id = d.document_id AND k.caption IS NOT NULL
          AND k.prompt < %(caption_prompt)s
          AND NOT EXISTS (SELECT FROM docwell.caption n WHERE n.document_id = d.document_id AND n.prompt = %(caption_prompt)s)
    ) AS older_captions
    WHERE d.state NOT IN ('deleted', 'excluded', 'failed') AND v.state IN ('indexed', 'partial', 'needs_ocr', 'skipped')
      AND (%(namespace)s::text IS NULL OR n.name = %(namespace)s) AND (%(source)s::text IS NULL OR s.name = %(source)s)
      AND (split_part(v.fingerprint, ';under=', 1) <> %(current)s
           OR older_captions.count > 0
           OR (%(contexts)s AND EXISTS (SELECT FROM docwell.chunk_context k
                                        WHERE k.document_id = d.document_id AND k.prompt < %(prompt)s)
                            AND NOT EXISTS (SELECT FROM docwell.chunk_context k
                                            WHERE k.document_id = d.document_id AND k.prompt = %(prompt)s)))
"""
_WITH_SIZE: LiteralString = """
    SELECT source, namespace, count(*) FILTER (WHERE parsed), count(*) FILTER (WHERE NOT parsed),
           coalesce(sum(size.chunks), 0)::bigint, coalesce(sum(size.tokens), 0)::bigint,
           coalesce(sum(size.chunks) FILTER (WHERE enrich), 0)::bigint,
           coalesce(sum(size.tokens) FILTER (WHERE may_leave), 0)::bigint, coalesce(sum(pictures), 0)::bigint
    FROM older CROSS JOIN LATERAL (
        SELECT count(*) AS chunks, sum(c.tokens) AS tokens
        FROM docwell.version_chunk place JOIN docwell.chunk c USING (audience_id, chunk_id)
        WHERE place.version_id = older.served_version_id
    ) AS size
    GROUP BY source, namespace ORDER BY source, namespace
"""
_COUNT: LiteralString = "WITH older AS MATERIALIZED (" + _OLDER + ")" + _WITH_SIZE
_IDS: LiteralString = "SELECT document_id, parsed, pictures FROM (" + _OLDER + ") AS older ORDER BY document_id"  # noqa: S608 - the same
_HOW_MANY: LiteralString = "SELECT count(*) FROM (" + _OLDER + ") AS older"  # noqa: S608 - the same


def count_older(connection: Connection[Any], settings: Settings) -> int:
    """How many documents an older parser, chunker or prompt has read."""
    row = connection.execute(_HOW_MANY, _values(settings, None, None)).fetchone()
    return int(row[0]) if row else 0


def make_plan(
    connection: Connection[Any], settings: Settings, *, namespace: str | None = None, source: str | None = None
) -> Plan:
    """Count and price them, from what is stored; nobody is asked.

    Raises:
        Unknown: there is no such source or namespace.
    """
    _refuse_unknown(connection, namespace, source)
    rows = connection.execute(_COUNT, _values(settings, namespace, source)).fetchall()
    older = [Older(source=r[0], namespace=r[1], parsed=r[2], prompted=r[3], chunks=r[4], tokens=r[5]) for r in rows]
    tokens = sum(one.tokens for one in older)
    chunks = sum(one.chunks for one in older)
    active = model_in(read_models(connection), "active")
    money: Decimal | None = None
    if active is not None:
        is_local = active.provider == "local"
        # What its source keeps from a paid model is not paid.
        paid = sum(row[7] for row in rows) if active.is_paid(endpoint_of(settings), settings.prices) else tokens
        money = Decimal(0) if is_local else cost(settings.prices, active.model, TokenUse(input_tokens=paid))
    return Plan(
        older=older,
        documents=sum(one.parsed + one.prompted for one in older),
        chunks=chunks,
        tokens=tokens,
        context_calls=sum(row[6] for row in rows) if settings.context_prefixes == "on" else 0,
        caption_calls=sum(row[8] for row in rows),
        embedding_model=active.model if active else None,
        embedding_money=money,
    )


_ASK: LiteralString = "UPDATE docwell.document SET reprocess = true WHERE document_id = ANY (%s)"
# Jobs before documents: the order in which every publisher holds them.
_HOLD_JOBS: LiteralString = """
    SELECT FROM docwell.job WHERE document_id = ANY (%s) AND state IN ('queued', 'running', 'retrying')
    ORDER BY job_id FOR UPDATE
"""


def request(connection: Connection[Any], settings: Settings, *, namespace: str | None = None, source: str | None = None) -> int:
    """Queue all of them as bulk jobs, which stand behind single documents; returns how many. The caller wakes the workers.

    Raises:
        Unknown: there is no such source or namespace.
    """
    _refuse_unknown(connection, namespace, source)
    rows = connection.execute(_IDS, _values(settings, namespace, source)).fetchall()
    parsed: list[uuid.UUID] = [document_id for document_id, is_parsed, _ in rows if is_parsed]
    prompted: list[uuid.UUID] = [document_id for document_id, is_parsed, _ in rows if not is_parsed]
    described = {document_id for document_id, is_parsed, pictures in rows if pictures and not is_parsed}
    queued = 0
    for first in range(0, len(parsed), _AT_ONCE):
        some = parsed[first : first + _AT_ONCE]
        with connection.transaction():
            connection.execute(_HOLD_JOBS, (some,))
            connection.execute(_ASK, (some,))
            asked = jobs.enqueue(connection, some, max_attempts=settings.job_attempts, bulk=True)
            documents.record_queued(connection, *asked)
            queued += len(asked)
    for first in range(0, len(prompted), _AT_ONCE):
        some = prompted[first : first + _AT_ONCE]
        asked = ask_captions(connection, [one for one in some if one in described], max_attempts=settings.job_attempts)
        if settings.context_prefixes == "on":
            asked |= again.ask(connection, some, max_attempts=settings.job_attempts)
        queued += len(asked)
    return queued


def _values(settings: Settings, namespace: str | None, source: str | None) -> dict[str, Any]:
    return {
        "current": current_fingerprint(settings),
        "namespace": namespace,
        "source": source,
        "contexts": settings.context_prefixes == "on",
        "prompt": PROMPT_VERSION,
        "captions": settings.vision_captions == "on",
        "caption_prompt": caption_prompt.PROMPT_VERSION,
    }


_NAMED: LiteralString = """
    SELECT %(namespace)s::text IS NULL OR EXISTS (SELECT FROM docwell.namespace WHERE name = %(namespace)s),
           %(source)s::text IS NULL OR EXISTS (SELECT FROM docwell.source WHERE name = %(source)s)
"""


def _refuse_unknown(connection: Connection[Any], namespace: str | None, source: str | None) -> None:
    names = {"namespace": namespace, "source": source}
    known = connection.execute(_NAMED, names).fetchone() or (False, False)
    for (what, name), is_known in zip(names.items(), known, strict=True):
        if not is_known:
            raise Unknown(f"There is no {what} {name}. `docwell status` shows those that there are.", code="not_found")
