"""Which document a new file may be: one with its content whose own file is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import whereabouts
from ingest_worker.catalogue.whereabouts import Placed
from ingest_worker.intake.observe import digest
from ingest_worker.intake.settle import Due, Missing, Move, match_moves

READ_AT_ONCE = 4 * 1024 * 1024
"""Bytes of new files that are read without asking first whether any document has their size: that would take longer."""


@dataclass(slots=True, kw_only=True)
class Digests:
    """The sha256 of files under a root, each computed once."""

    real_root: str
    known: dict[str, bytes | None] = field(default_factory=dict)

    def of(self, name: str) -> bytes | None:
        """The digest of a file, None when it cannot be read."""
        if name not in self.known:
            self.known[name] = digest(self.real_root, name)
        return self.known[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Moves with the documents that moved, by their old path; and the files that are really new."""

    moves: list[Move]
    documents: dict[str, Placed]
    new: list[Due]


def match_content(
    connection: Connection[Any],
    source_id: int,
    arrived: Sequence[Due],
    digests: Digests,
    is_gone: Callable[[Placed], bool],
) -> Matched:
    """Pair new files with documents of the source that have their content and whose file `is_gone`. Changes nothing."""
    documents = _gone_with_content(connection, source_id, arrived, digests, is_gone)
    moves, new = match_moves(arrived, facts_of(documents), digests.of) if documents else ([], list(arrived))
    return Matched(moves=moves, documents=documents, new=new)


def facts_of(documents: Mapping[str, Placed]) -> dict[str, Missing]:
    """What tells whether a new file is one of these documents."""
    return {path: Missing(size=one.size, modified_ns=one.modified_ns, sha256=one.sha256) for path, one in documents.items()}


def _gone_with_content(
    connection: Connection[Any],
    source_id: int,
    arrived: Sequence[Due],
    digests: Digests,
    is_gone: Callable[[Placed], bool],
) -> dict[str, Placed]:
    sizes = {one.name: one.signature.size for one in arrived if one.signature is not None and one.signature.size > 0}
    if sum(sizes.values()) > READ_AT_ONCE:
        fitting = whereabouts.known_sizes(connection, source_id, sorted(set(sizes.values())))
        sizes = {name: size for name, size in sizes.items() if size in fitting}
    wanted = sorted({found for name in sizes if (found := digests.of(name)) is not None})
    placed = whereabouts.placed_with_content(connection, source_id, wanted) if wanted else []
    return {one.path: one for one in placed if is_gone(one)}
