"""Parsing and chunking in the cage, with how long each took and what the cage had to stop."""

from __future__ import annotations

from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.cage import Parsed, ParserCage
from ingest_worker.work import PARSER_STOPS, Work
from shared.config import Settings
from shared.errors import DocwellError
from shared.tracing import Stage


def parse_and_chunk(job: ClaimedJob, name: str, data: bytes, *, cage: ParserCage, work: Work, settings: Settings) -> Parsed:
    """See `ParserCage.parse_and_chunk`, whose errors it raises. The cage does both in one; the books tell them apart."""
    began = work.clock()
    try:
        return cage.parse_and_chunk(name, data, settings.chunk_tokens, settings.chunk_overlap)
    except DocwellError as error:
        if error.code.startswith("parser_"):
            work.count(PARSER_STOPS, error.code)
        raise
    finally:
        ended = work.clock()
        between = max(began, ended - cage.chunk_seconds)
        work.passed(Stage(name="parse", began=began, ended=between), [job])
        if between < ended:
            work.passed(Stage(name="chunk", began=between, ended=ended), [job])
