"""A search as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from query_server.cursor import question_hash
from query_server.retrieve.filters import EVERYTHING, Filters

Mode = Literal["hybrid", "semantic", "keyword"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """`hypothetical_answer` is text in the words of a document that would answer (HyDE)."""

    query: str
    filters: Filters = EVERYTHING
    limit: int = 5
    mode: Mode = "hybrid"
    hypothetical_answer: str = ""
    max_tokens: int = 4000
    cursor: str = ""

    @property
    def question(self) -> str:
        """All that decides the ranking: what a cursor and a cached ranking are bound to."""
        return question_hash(self.query, self.filters, self.mode, self.hypothetical_answer)
