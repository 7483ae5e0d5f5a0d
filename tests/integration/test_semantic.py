"""The semantic leg: all that are wanted come back whatever hides the rest, and HNSW finds nearly what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector

from infra.local.postgres import EmbeddedPostgres
from query_server.access import LOCAL, Principal, scope
from query_server.retrieve import semantic
from query_server.retrieve.filters import EVERYTHING, Filters
from query_server.retrieve.scope import Scope, measure
from query_server.retrieve.semantic import SemanticHit, Space, active_space, count_indexed, is_exact, semantic_leg
from query_server.snapshot import Snapshots
from shared.database import connect, open_pool
from tests.asking import DIMENSION, MODEL, NOW
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk, unit_vector

BIG, SMALL = 800, 8
"""Passages of two namespaces: the small one is a hundredth."""

TENANT = Principal(name="tenant", namespaces=frozenset({"small"}), names=frozenset())


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """A database with all vectors but a few under HNSW, and these vectors by passage."""

    database: Database
    corpus: Corpus
    vectors: dict[object, np.ndarray]

    def near(
        self, query: np.ndarray, *, limit: int, principal: Principal = LOCAL, filters: Filters = EVERYTHING
    ) -> Sequence[SemanticHit]:
        """What the leg finds as the reader."""
        with connect(self.database.reader_url, as_reader=True) as connection, connection.transaction():
            register_vector(connection)
            scope(connection, principal)
            measured = measure(connection, filters, now=NOW, rescan_seconds=300)
            space = active_space(connection)
            assert space is not None
            return semantic_leg(
                connection, measured, filters, space, query, limit=limit, sees_everything=principal.sees_everything
            )


@pytest.fixture(scope="module")
def indexed(module_database: Database) -> Iterator[Indexed]:
    vectors: dict[object, np.ndarray] = {}
    with open_corpus(module_database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        for namespace, size in (("big", BIG), ("small", SMALL)):
            chunks = [text_chunk(f"{namespace} passage {number}") for number in range(size)]
            # The small namespace is far from where the queries below are: HNSW meets everybody else first.
            made = {
                chunk.input_id: (unit_vector(chunk.text, DIMENSION) + (3 if namespace == "big" else -3) * _towards())
                for chunk in chunks
            }
            made = {key: (vector / np.linalg.norm(vector)).astype(np.float32) for key, vector in made.items()}
            corpus.add(f"{namespace}.md", chunks, source=namespace, kind="push", namespace=namespace, vectors=made)
            vectors |= {chunk.chunk_id: made[chunk.input_id] for chunk in chunks}
        corpus.connection.execute(f"UPDATE docwell.{corpus.vectors} SET indexed = true WHERE input_id::text > '1'")
        corpus.connection.execute("ANALYZE")
        yield Indexed(database=module_database, corpus=corpus, vectors=vectors)


def _towards() -> np.ndarray:
    return unit_vector("where queries are", DIMENSION)


@pytest.fixture
def only_hnsw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is few enough to be compared one by one from the start."""
    monkeypatch.setattr(semantic, "EXACT_UP_TO", 0)
    monkeypatch.setattr(semantic, "EXACT_UP_TO_HIDDEN", 0)


@pytest.mark.usefixtures("only_hnsw")
@pytest.mark.parametrize(
    ("principal", "filters"),
    [
        (TENANT, EVERYTHING),
        (LOCAL, Filters(namespace="small")),
        (LOCAL, Filters(path="small.*")),
        (LOCAL, Filters(source="small")),
    ],
    ids=["tenant", "namespace", "path", "source"],
)
def test_a_hundredth_of_the_index_gets_all_it_has_though_everything_else_is_nearer(
    indexed: Indexed, principal: Principal, filters: Filters
) -> None:
    """pgvector issues 259 and 751: HNSW under a filter returns fewer than there are."""
    hits = indexed.near(_towards(), limit=SMALL, principal=principal, filters=filters)
    assert len({hit.key for hit in hits}) == SMALL
    assert [hit.similarity for hit in hits] == sorted((hit.similarity for hit in hits), reverse=True)


@pytest.mark.usefixtures("only_hnsw")
def test_hnsw_finds_nearly_what_comparing_one_by_one_finds(indexed: Indexed) -> None:
    shares = []
    for number in range(20):
        query = _towards() + unit_vector(number, DIMENSION)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        truth = sorted(indexed.vectors, key=lambda chunk: -float(indexed.vectors[chunk] @ query))[:10]
        found = [hit.key[1] for hit in indexed.near(query, limit=100)[:10]]
        shares.append(len(set(found) & set(truth)) / 10)
    assert np.mean(shares) >= 0.95


def test_comparing_one_by_one_finds_exactly_the_nearest_with_their_cosines(indexed: Indexed) -> None:
    query = unit_vector("another", DIMENSION)
    truth = sorted((float(vector @ query) for vector in indexed.vectors.values()), reverse=True)[:20]
    hits = indexed.near(query, limit=20)
    assert [hit.similarity for hit in hits] == pytest.approx(truth, abs=2e-3)
    assert float(indexed.vectors[hits[0].key[1]] @ query) == pytest.approx(hits[0].similarity, abs=2e-3)


@pytest.mark.usefixtures("only_hnsw")
def test_dead_rows_that_are_nearer_do_not_take_the_places_of_living_ones(database: Database) -> None:
    """pgvector issue 244: a search met only deleted rows and answered nothing."""
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as corpus:
        corpus.connection.execute("ALTER TABLE docwell.vector_1_indexed SET (autovacuum_enabled = off)")
        near = [text_chunk(f"near {number}") for number in range(300)]
        there = {chunk.input_id: unit_vector("there", DIMENSION) for chunk in near}
        corpus.add("near.md", near, vectors=there)
        far = [text_chunk(f"far {number}") for number in range(5)]
        corpus.add("far.md", far, vectors={chunk.input_id: -unit_vector(chunk.text, DIMENSION) for chunk in far})
        corpus.connection.execute(f"UPDATE docwell.{corpus.vectors} SET indexed = true")
        corpus.connection.execute(f"DELETE FROM docwell.{corpus.vectors} WHERE input_id = ANY (%s)", (list(there),))
        indexed = Indexed(database=database, corpus=corpus, vectors={})
        hits = indexed.near(unit_vector("there", DIMENSION), limit=5)
        assert {hit.key[1] for hit in hits} == {chunk.chunk_id for chunk in far}


def _scope(searched: int) -> Scope:
    return Scope(
        audiences=(1,),
        versions=(1,),
        index_version=1,
        chunks=searched,
        terms=1,
        searched=searched,
        documents=0,
        pending=0,
        unread=0,
        newest_sweep=None,
        stale=False,
        narrowed=False,
    )


@pytest.mark.parametrize(
    ("searched", "indexed_vectors", "hidden", "exact"),
    [
        (4_000, 1_000_000, False, True),
        (4_001, 4_001, False, False),
        (10_000, 100_000, True, True),  # a tenth: HNSW would walk past nine others for each
        (15_000, 50_000, True, False),  # nearly a third
        (20_001, 10_000_000, True, False),
        (15_000, 0, True, True),  # PostgreSQL has not counted them yet
    ],
)
def test_one_by_one_is_chosen_for_few_and_where_most_is_hidden(
    searched: int, indexed_vectors: int, hidden: bool, exact: bool
) -> None:
    space = Space(space_id=1, fingerprint="f", provider="p", model="m", dimension=DIMENSION, indexed=indexed_vectors)
    assert is_exact(_scope(searched), space, hidden=hidden) is exact


def test_the_space_tells_how_many_vectors_are_under_the_index(indexed: Indexed) -> None:
    with connect(indexed.database.reader_url, as_reader=True) as connection:
        space = active_space(connection)
        counted = count_indexed(connection)
    assert space is not None
    assert BIG / 2 < space.indexed <= BIG + SMALL
    assert counted == space.indexed


def test_connections_that_died_while_they_were_idle_are_replaced_unseen(indexed: Indexed, postgres: EmbeddedPostgres) -> None:
    pool = open_pool(indexed.database.reader_url, name="idle", size=3, as_reader=True, check=False, wait_seconds=5)
    snapshots = Snapshots(lambda: pool)
    try:
        with snapshots.open(LOCAL), snapshots.open(LOCAL), snapshots.open(LOCAL):
            pass
        with psycopg.connect(postgres.superuser_conninfo, dbname=indexed.database.name, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idle'")
        with snapshots.open(LOCAL) as connection:
            row = connection.execute("SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')")
            assert row.fetchone() == ("repeatable read", "on")
    finally:
        snapshots.close()


def test_nothing_of_one_snapshot_stays_for_the_next(indexed: Indexed) -> None:
    pool = open_pool(indexed.database.reader_url, name="one", size=1, as_reader=True, check=False, wait_seconds=5)
    snapshots = Snapshots(lambda: pool)
    counts = []
    try:
        for principal in (LOCAL, TENANT, LOCAL):
            with snapshots.open(principal) as connection:
                counts.append(measure(connection, EVERYTHING, now=datetime.now(UTC), rescan_seconds=300).searched)
    finally:
        snapshots.close()
    assert counts == [BIG + SMALL, SMALL, BIG + SMALL]
