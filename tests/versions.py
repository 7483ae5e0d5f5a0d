"""A folder source and its worker, for tests of what becomes of a document over time."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.parse.cage import ParserCage
from ingest_worker.pipeline import Tools, run_job
from ingest_worker.reindexing.fill import fill_some
from ingest_worker.spaces import Models
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.protocol import Embedder
from tests.asking import WordEmbedder


@dataclass(frozen=True, kw_only=True)
class Library:
    """A folder as the source `inbox`, and a worker that does one job at a time when it is told to."""

    root: Path
    connection: Connection[Any]
    tools: Tools

    def ask(self, name: str, text: str | bytes | None = None, *, readers: list[str] | None = None) -> uuid.UUID:
        """Write the file, when there is text for it, and ask for it; returns the document's id."""
        if text is not None:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with self.connection.transaction():
            source = ensure_source(self.connection, "inbox", kind="folder", namespace="default", root=self.root, readers=readers)
            number = ensure_namespace(self.connection, "default")
            return request_ingest(self.connection, source, number, [Observed(name=name)]).documents[name]

    def remove(self, name: str) -> None:
        """Delete a file, long ago: one that went just now is looked for again."""
        (self.root / name).unlink()
        os.utime(self.root, (1, 1))

    def claim(self) -> ClaimedJob | None:
        """The next job that is due."""
        return next(iter(jobs.claim(self.connection, worker="test", lease_seconds=60)), None)

    def work(self) -> list[str]:
        """Do all that is due; the result of each run."""
        results = []
        while (job := self.claim()) is not None:
            results.append(run_job(job, self.tools).result)
        return results

    def fill(self, models: Models | None = None, **options: float) -> None:
        """Embed all that lacks a vector, as a worker does that has no job."""
        tools = self.tools
        while fill_some(tools.pool, models or tools.models, tools.embedder, tools.settings, tools.work, **options):
            pass

    def take(self, name: str, text: str | bytes | None = None, **facts: Any) -> uuid.UUID:
        """Write, ask and do all that is due."""
        document = self.ask(name, text, **facts)
        self.work()
        return document

    def standing(self, document: uuid.UUID) -> tuple[Any, ...]:
        """(state, searchable, served_version, latest_version, reason_code)"""
        row = self.connection.execute(
            "SELECT state, searchable, served_version, latest_version, reason_code FROM docwell.document WHERE document_id = %s",
            (document,),
        ).fetchone()
        assert row is not None
        return tuple(row)

    def served_text(self, document: uuid.UUID) -> str:
        """The text that searches find of the document."""
        rows = self.connection.execute(
            "SELECT c.text FROM docwell.document d JOIN docwell.version_chunk p ON p.version_id = d.served_version_id"
            " JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)"
            " WHERE d.document_id = %s ORDER BY p.ordinal",
            (document,),
        ).fetchall()
        return "\n".join(row[0] for row in rows)

    def searched(self) -> set[str]:
        """The texts that both legs of a search can find."""
        (space,) = self.connection.execute("SELECT space_id FROM docwell.embedding_space").fetchall()[0]
        rows = self.connection.execute(
            f"SELECT c.text FROM docwell.chunk c JOIN docwell.chunk_terms t USING (audience_id, chunk_id)"
            f" JOIN docwell.vector_{space} v ON (v.audience_id, v.input_id) = (c.audience_id, c.input_id)"
        ).fetchall()
        return {row[0] for row in rows}

    def one(self, query: str, *values: Any) -> Any:
        """The first column of the first row."""
        row = self.connection.execute(query.encode(), values).fetchone()
        assert row is not None
        return row[0]


@contextmanager
def open_library(
    url: str, root: Path, cage: ParserCage, *, embedder: Callable[[], Embedder] = WordEmbedder, **settings: Any
) -> Iterator[Library]:
    """The folder `root`, made when missing."""
    root.mkdir(exist_ok=True)
    with open_pool(url, name="test", size=3, autocommit=True) as pool, connect(url, autocommit=True) as connection:
        chosen = {"delete_grace_seconds": 0.0, "watch_settle_seconds": 0.0} | settings
        tools = Tools(settings=Settings(**chosen), pool=pool, cage=cage, embedder=embedder)
        yield Library(root=root, connection=connection, tools=tools)
