"""A folder and a worker with contexts on, whose model is the stand-in for Anthropic's service."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest_worker.catalogue import batches, contexts
from ingest_worker.enrich.batch_keeper import BatchKeeper
from ingest_worker.enrich.batch_service import AnthropicBatches
from ingest_worker.enrich.model import AnthropicModel
from ingest_worker.enrich.step import Enricher
from ingest_worker.parse.cage import ParserCage
from ingest_worker.pipeline import Tools
from shared.config import Settings
from shared.database import connect, open_pool
from tests.anthropic_contexts import passage_of
from tests.anthropic_stand_in import KEY, StandIn
from tests.asking import WordEmbedder
from tests.workshop import Workshop

PRICES = {"claude-haiku-4-5": {"input": "1", "output": "5", "cache_read": "0.1", "cache_write": "1.25", "batch": "0.5"}}


@dataclass(kw_only=True)
class Shop(Workshop):
    """A worker with contexts on."""

    def set(self, **settings: Any) -> None:
        merged = {**self.tools.settings.model_dump(), **settings}
        self.tools = replace(self.tools, settings=Settings.model_validate(merged), enricher=enricher_for(self.model))

    def served(self, path: str) -> list[tuple[str, str | None]]:
        """Text and context of each passage, in order."""
        return self.connection.execute(
            """
            SELECT c.text, c.context FROM docwell.document d
            JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            WHERE d.path = %s ORDER BY p.ordinal
            """,
            (path,),
        ).fetchall()

    def standing(self, path: str) -> contexts.Enrichment:
        found = contexts.standing(self.connection, self.id_of(path))
        assert found is not None
        return found

    def vectors(self) -> dict[uuid.UUID, str]:
        return dict(self.connection.execute("SELECT input_id, (ctid, xmin)::text FROM docwell.vector_1").fetchall())

    def assert_whole(self) -> None:
        """Every served passage has its vector and its terms, made from what it is searched by; nothing else has."""
        rows = self.connection.execute(
            """
            SELECT DISTINCT c.audience_id, c.chunk_id, c.input_id, t.length, v.input_id IS NOT NULL
            FROM docwell.document d
            JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            LEFT JOIN docwell.chunk_terms t ON (t.audience_id, t.chunk_id) = (c.audience_id, c.chunk_id)
            LEFT JOIN docwell.vector_1 v ON (v.audience_id, v.input_id) = (c.audience_id, c.input_id)
            """
        ).fetchall()
        assert all(length is not None and has_vector for *_, length, has_vector in rows)
        served = {(audience, input_id) for audience, _, input_id, *_ in rows}
        assert set(self.connection.execute("SELECT audience_id, input_id FROM docwell.vector_1").fetchall()) == served
        chunks, terms = self.one("SELECT sum(chunk_count), sum(term_total) FROM docwell.audience")
        assert (chunks, terms) == (len(rows), sum(length for *_, length, _ in rows))


def enricher_for(model: StandIn, *, key: str | None = KEY) -> Enricher:
    return Enricher(
        open_model=lambda settings: AnthropicModel(model=settings.context_model, api_key=key, base_url=model.url, retries=0)
    )


@contextmanager
def open_shop(database_url: str, root: Path, cage: ParserCage, model: StandIn, **settings: Any) -> Iterator[Shop]:
    """A shop whose folder is `root`, with these settings beside `context_prefixes`."""
    chosen = Settings(watch_settle_seconds=0, context_prefixes="on", prices=PRICES, **settings)
    with open_pool(database_url, name="test", autocommit=True) as pool, connect(database_url, autocommit=True) as connection:
        tools = Tools(settings=chosen, pool=pool, cage=cage, embedder=WordEmbedder, enricher=enricher_for(model))
        found = Shop(root=root, connection=connection, tools=tools, model=model)
        yield found
        found.tools.enricher.close()


@dataclass(kw_only=True)
class BatchShop:
    """A shop that orders contexts in batches, and one who looks after them."""

    shop: Shop

    def tick(self, **options: Any) -> None:
        """A round of a process that has just begun: nothing is known but what is written down, and no pause is kept."""
        self.shop.connection.execute("UPDATE docwell.context_batch SET next_look = now()")
        keeper = BatchKeeper(
            self.shop.tools.settings, self.shop.tools.pool, **{"open_service": self.service, "gather_seconds": 0.0, **options}
        )
        keeper.tick()
        keeper.close()

    def service(self, _settings: Any) -> AnthropicBatches:
        return AnthropicBatches(model="claude-haiku-4-5", api_key=KEY, base_url=self.shop.model.url)

    def bring(self) -> None:
        """The service works off what it has; the answers come, and documents are read again."""
        self.shop.model.batches.finish(self.shop.model)
        self.tick()
        self.shop.work()

    def asked(self) -> list[str]:
        """The passages that were worked off, each as often as it was paid for."""
        return sorted(passage_of(received) for received in self.shop.model.requests)

    def paid(self) -> int:
        return int(self.shop.one("SELECT coalesce(sum(calls), 0) FROM docwell.ledger")[0])

    def texts(self, *paths: str) -> list[str]:
        return sorted({text for path in paths for text, _ in self.shop.served(path)})

    def waiting(self) -> tuple[int, int, int]:
        found = batches.waiting(self.shop.connection)
        return found.documents, found.batches, found.passages


def sections(count: int, *, sentences: int = 20) -> list[str]:
    """Parts of a document in which no sentence stands twice; each is about a passage."""
    return [
        f"## Part {number}\n\n"
        + " ".join(f"Sentence {one} of part {number} tells of m{number}n{one}." for one in range(sentences))
        + "\n"
        for number in range(count)
    ]
