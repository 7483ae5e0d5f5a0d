"""Text that went and comes back is not embedded again, within bounds; and what was erased leaves no vector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest_worker.catalogue import vector_cache
from ingest_worker.erasure import erase
from ingest_worker.parse.cage import ParserCage
from ingest_worker.vector_upkeep import VectorKeeper
from shared.config import Settings
from shared.embedding.open import open_embedder
from tests.conftest import Database
from tests.v1_embeddings import Server
from tests.versions import Library, open_library


@pytest.fixture
def found(database: Database, tmp_path: Path, cage: ParserCage, server: Server) -> Iterator[Library]:
    named = {"embedding_provider": "openai", "embedding_base_url": server.url, "embedding_model": "small", "keep_versions": 1}
    embedder = open_embedder(Settings(**named))
    with open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder, **named) as library:
        yield library


def asked(server: Server, text: str) -> int:
    """How often the service was asked for this text."""
    return json.dumps(server.requests).count(text)


def test_text_that_is_deleted_and_comes_back_or_is_edited_and_edited_back_is_paid_once(found: Library, server: Server) -> None:
    found.take("a.txt", "the first text")
    before = found.one("SELECT embedding::text FROM docwell.vector_1")
    found.take("a.txt", "the second text")
    found.take("a.txt", "the first text")
    assert asked(server, "the first text") == asked(server, "the second text") == 1
    found.remove("a.txt")
    found.take("a.txt")
    assert found.searched() == set()
    found.take("elsewhere/b.txt", "the first text", readers=["group:staff"])
    assert found.searched() == {"the first text"}
    assert asked(server, "the first text") == 1
    assert found.one("SELECT embedding::text FROM docwell.vector_1") == before
    assert found.one("SELECT embedded FROM docwell.job ORDER BY finished_at DESC LIMIT 1") == 0


def test_it_stays_within_its_days_and_rows_and_may_be_off(found: Library, server: Server) -> None:
    for number in range(6):
        found.take("a.txt", f"text number {number}")
    assert found.one("SELECT count(*) FROM docwell.vector_cache") == 5
    assert vector_cache.prune(found.connection, days=30, rows=5) == 0
    assert vector_cache.prune(found.connection, days=30, rows=3) == 2
    found.take("a.txt", "text number 4")
    found.take("a.txt", "text number 0")
    assert (asked(server, "text number 4"), asked(server, "text number 0")) == (1, 2)
    found.connection.execute("UPDATE docwell.vector_cache SET removed_at = now() - interval '31 days'")
    assert vector_cache.prune(found.connection, days=30, rows=100) > 0
    assert found.one("SELECT count(*) FROM docwell.vector_cache") == 0
    VectorKeeper(Settings(vector_cache_days=0)).tick(found.tools.pool)
    found.take("a.txt", "text number 7")
    assert found.one("SELECT count(*) FROM docwell.vector_cache") == 0


def test_an_erasure_leaves_no_vector_of_any_version_of_the_text(found: Library, server: Server) -> None:
    document = found.take("a.txt", "a secret of old")
    found.take("a.txt", "a secret of today")
    found.take("b.txt", "something else")
    receipt = erase(found.connection, document, max_bytes=10**9)
    assert receipt.removed.vectors == 1
    assert found.one("SELECT count(*) FROM docwell.vector_cache") == 0
    assert found.one("SELECT count(*) FROM docwell.vector_1") == 1
    found.take("c.txt", "a secret of old")
    assert asked(server, "a secret of old") == 2
