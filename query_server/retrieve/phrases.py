"""Which of the scored chunks hold the quoted phrases of a query, word by word."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, LiteralString

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from shared.query_terms import QueryTerms, fold_phrase

MOST_READ = 2_000
"""Texts that are read for one phrase, the best-scored chunks first. Only a phrase of words that stand everywhere has more."""

_BLOCK = 200

_TEXTS: LiteralString = """
    SELECT c.audience_id, c.chunk_id, concat_ws(E'\\n', c.symbol, c.section, c.text)
    FROM unnest(%s::integer[], %s::uuid[]) AS wanted (audience_id, chunk_id) JOIN docwell.chunk c USING (audience_id, chunk_id)
"""


def holds_phrases(
    connection: Connection[Any],
    query: QueryTerms,
    keys: Sequence[tuple[int, uuid.UUID]],
    counts: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64],
    numbers: Sequence[int],
    *,
    most: int,
) -> npt.NDArray[np.int64]:
    """How many of the phrases each chunk holds, shape (chunks,).

    Only chunks that hold all words of a phrase are read, by falling score, until `most` have it or MOST_READ were read. `counts`
    has shape (chunks, terms), for the terms of `numbers`.
    """
    held = np.zeros(len(keys), dtype=np.int64)
    texts: dict[tuple[int, uuid.UUID], str] = {}
    order = np.argsort(-scores, kind="stable")
    for phrase, needed in zip(query.phrases, query.phrase_terms, strict=True):
        columns = [numbers.index(number) for number in needed if number in numbers]
        possible = order[(counts[order][:, columns] > 0).all(axis=1)][:MOST_READ]
        found = 0
        for start in range(0, len(possible), _BLOCK):
            block = [int(place) for place in possible[start : start + _BLOCK]]
            texts |= read_folded(connection, [keys[place] for place in block if keys[place] not in texts])
            having = [place for place in block if phrase in texts.get(keys[place], "")]
            held[having] += 1
            found += len(having)
            if found >= most:
                break
    return held


def read_folded(connection: Connection[Any], keys: Sequence[tuple[int, uuid.UUID]]) -> dict[tuple[int, uuid.UUID], str]:
    """The texts of chunks with their symbol and section, folded as phrases are."""
    return {key: fold_phrase(text) for key, text in read_texts(connection, keys).items()}


def read_texts(connection: Connection[Any], keys: Sequence[tuple[int, uuid.UUID]]) -> dict[tuple[int, uuid.UUID], str]:
    """The texts of chunks with their symbol and section before them."""
    rows = connection.execute(_TEXTS, ([audience for audience, _ in keys], [chunk for _, chunk in keys])).fetchall()
    return {(row[0], row[1]): row[2] for row in rows}
