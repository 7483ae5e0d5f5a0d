"""A folder and a worker that asks a stand-in for Anthropic's service, for tests of what is bought for documents."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from ingest_worker.jobs import table as jobs
from ingest_worker.pipeline import JobReport, Tools, run_job
from tests.anthropic_stand_in import StandIn


@dataclass(kw_only=True)
class Workshop:
    """A folder, its worker, and what the stand-in was asked."""

    root: Path
    connection: Connection[Any]
    tools: Tools
    model: StandIn
    may_leave: bool = True

    def write(self, name: str, content: str | bytes) -> None:
        (self.root / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def take(self, *names: str, readers: Sequence[str] | None = None, source: str = "inbox") -> list[JobReport]:
        with self.connection.transaction():
            home = ensure_source(
                self.connection,
                source,
                kind="folder",
                namespace="default",
                root=self.root,
                enrich=self.may_leave,
                readers=readers,
            )
            number = ensure_namespace(self.connection, "default")
            request_ingest(self.connection, home, number, [Observed(name=name) for name in names])
        return self.work()

    def work(self) -> list[JobReport]:
        reports = []
        while claimed := jobs.claim(self.connection, worker="test", lease_seconds=60):
            reports += [run_job(job, self.tools) for job in claimed]
        return reports

    def one(self, query: str, *values: Any) -> tuple[Any, ...]:
        row = self.connection.execute(query, values).fetchone()
        assert row is not None
        return tuple(row)

    def id_of(self, path: str) -> uuid.UUID:
        found: uuid.UUID = self.one("SELECT document_id FROM docwell.document WHERE path = %s", path)[0]
        return found
