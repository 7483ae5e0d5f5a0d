"""Documents for tests: made through the product's own catalogue and swap, with vectors of our choice."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector.psycopg import register_vector
from psycopg import Connection
from psycopg.rows import class_row

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.documents import Beginning, Content, Observed
from ingest_worker.catalogue.sources import ensure_audience, ensure_namespace, ensure_source
from ingest_worker.catalogue.vectors import Space
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob
from ingest_worker.publish import NewVersion, Published, Swap, publish
from shared.database import connect
from shared.documents import Chunk, ChunkKind, DocumentState, Span

DIMENSION = 8
FINGERPRINT = "test-fingerprint"


def text_chunk(text: str, **facts: Any) -> Chunk:
    """A chunk of prose; `tokens` counts words."""
    return Chunk(
        **{"kind": ChunkKind.TEXT, "text": text, "tokens": len(text.split()), "span": Span(line_start=1, line_end=1)} | facts
    )


def unit_vector(seed: object, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """A direction that depends on the seed alone."""
    digest = hashlib.sha256(repr(seed).encode()).digest()
    vector = np.random.default_rng(int.from_bytes(digest[:8], "big")).normal(size=dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Writes documents as the owner, through the real swap."""

    connection: Connection[Any]
    space_id: int
    dimension: int = DIMENSION

    def claim(self) -> ClaimedJob:
        """The next job that is due."""
        (job,) = jobs.claim(self.connection, worker="test", lease_seconds=60)
        return job

    def claim_path(self, path: str) -> ClaimedJob:
        """The job of this one document, whatever else is due."""
        with self.connection.cursor(row_factory=class_row(ClaimedJob)) as cursor:
            job = cursor.execute(
                "UPDATE docwell.job j SET state = 'running', attempts = attempts + 1, lease_token = gen_random_uuid(),"
                " lease_until = now() + interval '1 min' FROM docwell.document d WHERE d.document_id = j.document_id"
                " AND d.path = %s AND j.state = 'queued' RETURNING j.job_id, j.document_id, j.kind, j.attempts,"
                " j.max_attempts, j.lease_token, j.lease_until",
                (path,),
            ).fetchone()
        assert job is not None
        return job

    def ask(
        self,
        path: str,
        *,
        source: str = "inbox",
        kind: str = "folder",
        namespace: str = "default",
        readers: Sequence[str] | None = None,
        tags: Sequence[str] = (),
    ) -> uuid.UUID:
        """Make the document known and queue its job; returns its id."""
        with self.connection.transaction():
            home = ensure_source(
                self.connection, source, kind=kind, namespace=namespace if kind == "folder" else None, readers=readers
            )
            number = ensure_namespace(self.connection, namespace)
            asked = catalogue.request_ingest(self.connection, home, number, [Observed(name=path)], tags=tags)
        return asked.documents[path]

    def serve(
        self,
        job: ClaimedJob,
        chunks: Sequence[Chunk],
        *,
        vectors: Mapping[uuid.UUID, NDArray[np.float32]] | None = None,
        content: bytes | None = None,
        keep_versions: int = 5,
        state: DocumentState = DocumentState.INDEXED,
        title: str | None = None,
    ) -> Published:
        """Publish these chunks as the document's next version."""
        document = catalogue.for_job(self.connection, job.document_id)
        assert document is not None
        raw = content if content is not None else "\n".join(chunk.text for chunk in chunks).encode()
        taken = Content(data=raw, sha256=hashlib.sha256(raw).digest(), size=len(raw), modified_ns=1)
        restricted = document.source_readers is not None
        with self.connection.transaction():
            audience = ensure_audience(
                self.connection, document.namespace_id, document.readers or document.source_readers, restricted=restricted
            )
            begins = Beginning(document=document, content=taken, audience_id=audience, fingerprint="parser-1")
            (version_id,) = catalogue.begin_versions(self.connection, [begins]).values()
        if vectors is None:
            vectors = {chunk.input_id: unit_vector(chunk.text, self.dimension) for chunk in chunks}
        version = NewVersion(
            version_id=version_id, number=begins.number, audience_id=audience, state=state, title=title, chunks=tuple(chunks)
        )
        (done,) = publish(
            self.connection,
            [Swap(job=job, version=version)],
            space=Space(space_id=self.space_id),
            vectors=vectors,
            keep_versions=keep_versions,
        )
        return done

    def add(self, path: str, chunks: Sequence[Chunk], **facts: Any) -> uuid.UUID:
        """Ask for a document and serve it at once; `facts` go to `ask`, `vectors` and the like to `serve`."""
        serving = {name: facts.pop(name) for name in ("vectors", "content", "keep_versions", "title", "state") if name in facts}
        document = self.ask(path, **facts)
        self.serve(self.claim(), chunks, **serving)
        return document

    def count(self, table: str) -> int:
        """The rows of a table of ours."""
        row = self.connection.execute(f"SELECT count(*) FROM docwell.{table}").fetchone()
        assert row is not None
        return int(row[0])

    @property
    def vectors(self) -> str:
        """The name of the vector table."""
        return f"vector_{self.space_id}"


@contextmanager
def open_corpus(url: str, *, dimension: int = DIMENSION, fingerprint: str = FINGERPRINT) -> Iterator[Corpus]:
    """A corpus in this database, with an active embedding space of `dimension`."""
    with connect(url, autocommit=True) as connection:
        register_vector(connection)
        row = connection.execute(
            "SELECT docwell.create_embedding_space(%s, 'test', 'test', %s, 'active')", (fingerprint, dimension)
        ).fetchone()
        assert row is not None
        yield Corpus(connection=connection, space_id=int(row[0]), dimension=dimension)
