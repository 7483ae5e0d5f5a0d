"""Names of files that stand among the other words of a query: `invoice 2024 storage` names `invoice-2024.pdf`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, LiteralString

from psycopg import Connection

from query_server.retrieve.filters import Filters
from query_server.retrieve.scope import Scope
from shared.lexical import term_counts
from shared.spelling import other_umlauts
from shared.stop_words import STOP_WORDS

MOST_OF_A_NAME = 10
"""Documents that may share a name: one that more have says nothing of any, as `README` and `index` do."""

_MOST_WORDS = 16
"""Words of a query among which names are looked for, from its beginning."""

_LONGEST_RUN = 6
_MOST_SHUFFLED = 5
"""Words besides function words that may name a document in any order: each two or three of them."""

_SHORTEST_WORD = 3
"""Letters of a name of one word."""

_WORD = re.compile(r"[^\W_]+")

# The policies of row-level security are asked for each row, so for one more of a name than there may be, and no further.
_AMONG: LiteralString = """
    SELECT d.document_id, d.stem_key, regexp_replace(d.path, '^.*/', '')
    FROM unnest(%(names)s::text[]) AS asked (name)
    CROSS JOIN LATERAL (
        SELECT d.document_id, d.stem_key, d.path FROM docwell.document d
        WHERE d.stem_key = asked.name AND d.audience_id = ANY (%(audiences)s) AND d.served_version_id IS NOT NULL
"""
_END: LiteralString = """
        LIMIT %(most)s
    ) AS d
    ORDER BY d.stem_key, d.document_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameWords:
    """Documents with the same name, all words of which the query holds; `terms` are those that the name gives."""

    documents: tuple[uuid.UUID, ...]
    terms: frozenset[int]


def names_in(query: str) -> list[str]:
    """What a document may be named by words of this query, in the form of `docwell.name_key`: words that stand together, and of
    few words some in any order; in German with umlauts and without."""
    words = _WORD.findall(query.lower())[:_MOST_WORDS]
    telling = [word for word in words if word not in STOP_WORDS]
    found = [*_runs(words), *_runs(telling)]
    if len(set(telling)) <= _MOST_SHUFFLED:
        found += (" ".join(some) for size in (2, 3) for some in permutations(dict.fromkeys(telling), size))
    spelled = (" ".join(map(other_umlauts, name.split())) for name in found)
    return list(dict.fromkeys((*found, *spelled)))


def _runs(words: Sequence[str]) -> Iterator[str]:
    for start, word in enumerate(words):
        if word not in STOP_WORDS and (len(word) >= _SHORTEST_WORD or not word.isascii()):
            yield word
        yield from (" ".join(words[start:end]) for end in range(start + 2, min(len(words), start + _LONGEST_RUN) + 1))


def name_words(connection: Connection[Any], scope: Scope, filters: Filters, query: str) -> list[NameWords]:
    """The documents whose name, without its ending, is made of words of the query; of a name that many have, none."""
    names = names_in(query)
    if not names:
        return []
    values = {"names": names, "audiences": list(scope.audiences), "most": MOST_OF_A_NAME + 1, **filters.parameters}
    statement: LiteralString = _AMONG + filters.on_documents + _END
    found: dict[str, list[tuple[uuid.UUID, str]]] = {}
    for document, name, file in connection.execute(statement, values).fetchall():
        found.setdefault(name, []).append((document, file))
    return [
        NameWords(
            documents=tuple(document for document, _ in documents),
            terms=frozenset(term_counts("\n".join((name, *(file.rpartition(".")[0] or file for _, file in documents))))),
        )
        for name, documents in found.items()
        if len(documents) <= MOST_OF_A_NAME
    ]
