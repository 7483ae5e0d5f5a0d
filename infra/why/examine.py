"""Why a document is, or is not, found. This file reads as the story: each stage has its place in one of the modules beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

from infra.why import asked, indexing
from infra.why.intake import Intake
from infra.why.stage import Answer, Stage, Verdict, first_stop, unknown
from infra.why.subject import Subject, find_subject
from query_server.retrieve.filters import EVERYTHING, Filters
from query_server.retrieve.request import Mode
from query_server.retrieve.trace import Traced
from query_server.service import SearchService
from shared.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about the document `name`; `principal` as `asked.principal_of` takes it."""

    name: str
    query: str = ""
    principal: str = ""
    filters: Filters = EVERYTHING
    limit: int = 5
    mode: Mode = "hybrid"
    max_tokens: int = 4000


def examine(
    connection: Connection[Any], service: SearchService, settings: Settings, question: Question, *, directory: Path
) -> Answer:
    """Go through all stages; `connection` is the owner's, `service` reads as the reader. Changes nothing.

    Raises:
        Ambiguous: several documents answer to the name.
        PermanentError: `bad_argument`, nobody is called like the principal.
    """
    subject = find_subject(connection, question.name, directory=directory)
    stages = tuple(_stages(connection, service, settings, question, subject))
    stop = first_stop(stages)
    document, source = subject.document, subject.source
    # What nobody asked about leaves nothing open.
    missing = {asked.RANKED, asked.CUT} if not question.query else set()
    is_open = any(stage.verdict is Verdict.UNKNOWN and stage.stage not in missing for stage in stages)
    return Answer(
        document=question.name,
        document_id=None if document is None else str(document.document_id),
        source=None if source is None else source.name,
        namespace=document.namespace if document is not None else None if source is None else source.namespace,
        path=subject.path,
        state=None if document is None else document.state,
        found=False if stop is not None else None if is_open else True,
        stopped_at=None if stop is None else stop.stage,
        cure=None if stop is None else stop.cure,
        stages=stages,
    )


def _stages(
    connection: Connection[Any], service: SearchService, settings: Settings, question: Question, subject: Subject
) -> Iterator[Stage]:
    principal = asked.principal_of(question.principal)
    intake = Intake(connection=connection, settings=settings, subject=subject)
    in_scope = intake.in_scope()
    yield in_scope
    yield intake.seen(in_scope)
    yield intake.settled()
    document = subject.document
    if document is None:
        later = (indexing.JOB, indexing.PARSED, indexing.EMBEDDED, indexing.SERVED)
        for stage in (*later, asked.VISIBLE, asked.FILTERS, asked.RANKED, asked.CUT):
            yield unknown(stage, "It is no document yet.")
        return
    yield indexing.job(connection, document)
    yield indexing.parsed(connection, document)
    yield indexing.embedded(connection, document)
    yield indexing.served(document)
    traced = service.trace(
        document.document_id,
        question.query if document.searchable else "",
        filters=question.filters,
        limit=question.limit,
        mode=question.mode,
        max_tokens=question.max_tokens,
        principal=principal,
    )
    yield asked.visible(document, "" if subject.source is None else subject.source.type, principal, traced)
    yield asked.filters(_given(question.filters), traced)
    yield asked.ranked(traced, asked=bool(question.query))
    yield _cut(question, traced)


def _cut(question: Question, traced: Traced) -> Stage:
    if not question.query:
        return unknown(asked.CUT, "No question was given.")
    return asked.cut(question.query, traced)


def _given(filters: Filters) -> dict[str, object]:
    return {name: getattr(filters, name) for name in Filters.__dataclass_fields__}
