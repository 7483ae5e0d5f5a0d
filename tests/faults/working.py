"""A real worker on the real services of the tests, with an embedder that can be held up, and a folder to take documents from."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from shared.database import connect
from tests.bench.ingesting import stub_settings
from tests.bench.stub_embedder import Handler, make_server
from tests.conftest import Database
from tests.folders import eventually

ROOT = Path(__file__).parents[2]


@dataclass(kw_only=True)
class HeldEmbedder:
    """The stub embedder: `gate` lets requests through, `on_text` hears each text first, `limits` says when to answer `status`."""

    url: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    on_text: Callable[[str], None] = lambda _text: None
    limits: Callable[[list[str]], bool] = lambda _texts: False
    status: int = 429

    def hold(self) -> None:
        """Let nothing through from now on; `asked` is set again when somebody waits."""
        self.gate.clear()
        self.asked.clear()


@contextlib.contextmanager
def held_embedder() -> Iterator[HeldEmbedder]:
    """Open at first."""
    held = HeldEmbedder()
    held.gate.set()

    class Held(Handler):
        def refuse(self, texts: list[str]) -> tuple[int, dict[str, str]] | None:
            # More than the embedder's client waits by itself.
            return (held.status, {"retry-after": "31"}) if held.limits(texts) else None

        def embed(self, texts: list[str]) -> Any:
            held.asked.set()
            for text in texts:
                held.on_text(text)
            held.gate.wait(60)
            return super().embed(texts)

    server = make_server(handler=Held)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    held.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield held
    finally:
        held.gate.set()
        server.shutdown()
        server.server_close()


@dataclass(kw_only=True)
class Works:
    """A folder, the database's owner, and workers."""

    folder: Path
    connection: Connection[Any]
    environment: dict[str, str]
    attempts: int = 5

    def ask(self, **texts: str) -> None:
        """Write files and queue their jobs: `ask(a="text")` is the file `a.md`. Nobody is woken."""
        for name, text in texts.items():
            (self.folder / "inbox" / f"{name}.md").write_text(text)
        with self.connection.transaction():
            source = ensure_source(self.connection, "inbox", kind="folder", namespace="default", root=self.folder / "inbox")
            number = ensure_namespace(self.connection, "default")
            request_ingest(
                self.connection, source, number, [Observed(name=f"{name}.md") for name in texts], max_attempts=self.attempts
            )

    def job(self, name: str) -> dict[str, Any]:
        """The newest job of a file."""
        row = self.connection.execute(
            "SELECT j.state, j.attempts, j.worker, j.error_code, j.last_error, d.state FROM docwell.job j"
            " JOIN docwell.document d USING (document_id) WHERE d.path = %s ORDER BY j.created_at DESC LIMIT 1",
            (f"{name}.md",),
        ).fetchone()
        assert row is not None
        return dict(zip(("state", "attempts", "worker", "error_code", "last_error", "document"), row, strict=True))

    def states(self) -> dict[str, str]:
        """Document state by path."""
        return dict(self.connection.execute("SELECT path, state FROM docwell.document").fetchall())

    def hurry(self) -> None:
        """Nobody waits for a back-off."""
        self.connection.execute(
            "UPDATE docwell.job SET next_run_at = now() WHERE state IN ('queued', 'retrying') AND next_run_at > now()"
        )

    @contextlib.contextmanager
    def worker(self, *, program: Sequence[str] = ("-P", "-m", "infra.cli", "worker")) -> Iterator[subprocess.Popen[bytes]]:
        """A worker, ready; killed with its children at the end, if it still runs."""
        ready = self.folder / "run" / "worker.ready"
        ready.unlink(missing_ok=True)
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *program], env=self.environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        try:
            eventually(lambda: ready.exists() or process.poll() is not None)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def child_of(self, name: str) -> int:
        """The process that works on a file now."""
        worker = self.job(name)["worker"]
        assert worker is not None
        return int(worker.rpartition(":")[2])


@contextlib.contextmanager
def open_works(database: Database, folder: Path, redis_url: str, embedder: HeldEmbedder, **settings: str) -> Iterator[Works]:
    """Everything but a running worker. Leases are long: what is taken back soon was not taken back by time."""
    (folder / "inbox").mkdir()
    (folder / "run").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    environment = kept | {
        "PYTHONPATH": str(ROOT),
        "DOCWELL_HOME": str(folder),
        "DOCWELL_INBOX": str(folder / "inbox"),
        "DOCWELL_DATABASE_URL": database.url,
        "DOCWELL_REDIS_URL": redis_url,
        "DOCWELL_WORKER_CONCURRENCY": "1",
        "DOCWELL_JOB_LEASE_SECONDS": "600",
        "DOCWELL_WATCH_SETTLE_SECONDS": "0",
        **stub_settings(embedder.url),
        **settings,
    }
    with connect(database.url, autocommit=True) as connection:
        yield Works(folder=folder, connection=connection, environment=environment)
