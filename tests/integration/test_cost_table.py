"""What is paid for the first load, unchanged documents, an edit and another model, of embeddings, contexts and captions."""

from __future__ import annotations

from pathlib import Path

from ingest_worker.parse.cage import ParserCage
from tests.conftest import Database
from tests.costing import COLOURS, KINDS, costs


def test_what_was_paid_is_not_paid_again_and_an_edit_pays_for_its_own_passages(
    database: Database, tmp_path: Path, cage: ParserCage
) -> None:
    found = {(one.situation, one.kind): one for one in costs(database.url, tmp_path, cage, passages=12)}
    first = {kind: found["first load", kind] for kind in KINDS}
    assert first["caption"].items == first["caption"].calls == len(COLOURS)
    assert first["context"].items == first["context"].calls >= 12
    assert first["embedding"].items >= first["context"].items + len(COLOURS)
    for kind in KINDS:
        again = found["unchanged", kind]
        assert (again.calls, again.items, again.tokens) == (0, 0, 0)
    edited = {kind: found["one paragraph edited", kind] for kind in KINDS}
    assert 1 <= edited["context"].calls == edited["context"].items <= 3
    assert edited["embedding"].items == edited["context"].items
    assert (edited["caption"].calls, edited["caption"].tokens) == (0, 0)
    switched = {kind: found["model switched", kind] for kind in KINDS}
    assert switched["embedding"].items >= first["context"].items + len(COLOURS)
    assert (switched["context"].calls, switched["caption"].calls) == (0, 0), "what was bought stays"
