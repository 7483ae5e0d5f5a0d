"""Parsing and chunking in the cage, with how long each took and what the cage had to stop."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.cage import Parsed, ParserCage
from ingest_worker.parse.pictures import PictureLimits
from ingest_worker.work import PARSER_STOPS, Work
from shared.config import Settings
from shared.errors import DocwellError, PermanentError
from shared.tracing import Stage

_UNDER = ";under="


def parse_and_chunk(
    job: ClaimedJob,
    name: str,
    data: bytes,
    *,
    heading: tuple[str, ...] = (),
    cage: ParserCage,
    work: Work,
    settings: Settings,
    pictures: PictureLimits | None = None,
) -> Parsed:
    """See `ParserCage.parse_and_chunk`, whose errors it raises. The cage does both in one; the books tell them apart.

    `heading` is what the document stands under at its source: it leads the section of each passage. With `pictures` they are cut
    out too; where the parser ends over them, the file is read without.
    """
    began = work.clock()
    try:
        parse = partial(cage.parse_and_chunk, name, data, settings.chunk_tokens, settings.chunk_overlap)
        try:
            parsed = parse(pictures=pictures)
        except PermanentError as error:
            if pictures is None or not error.code.startswith("parser_"):
                raise
            # The pictures may be at fault: they are not worth the text.
            work.count(PARSER_STOPS, error.code)
            parsed = parse()
            parsed = replace(parsed, pictures=None, warnings=(*parsed.warnings, f"Its pictures were left out: {error}"))
        return _under(heading, parsed)
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


def _under(heading: tuple[str, ...], parsed: Parsed) -> Parsed:
    if not heading:
        return parsed
    return replace(
        parsed,
        chunks=tuple(replace(chunk, section=(*heading, *chunk.section)) for chunk in parsed.chunks),
        pictures=parsed.pictures and tuple(replace(picture, section=(*heading, *picture.section)) for picture in parsed.pictures),
    )


def heading_mark(heading: tuple[str, ...]) -> str:
    """What tells versions of the same bytes apart that stand under different headings; empty without one."""
    return f"{_UNDER}{hashlib.sha256(chr(0).join(heading).encode()).hexdigest()[:16]}" if heading else ""


def heading_of(fingerprint: str) -> str:
    """The mark of the heading in a version's fingerprint."""
    _, mark, heading = fingerprint.partition(_UNDER)
    return mark + heading
