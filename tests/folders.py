"""A watched folder for tests: a real source, real jobs, and a worker that reads files without parsing them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.documents import Beginning
from ingest_worker.catalogue.held import count_held
from ingest_worker.catalogue.left_out import LeftOutRow, list_left_out
from ingest_worker.catalogue.source_state import approve_deletes
from ingest_worker.catalogue.sources import Source, ensure_audience, ensure_folder_source, get_source
from ingest_worker.catalogue.vectors import Space
from ingest_worker.intake.folder import FolderWatcher
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.names import name_rules
from ingest_worker.intake.read import Gone, Refused, read_content
from ingest_worker.intake.report import SweepReport
from ingest_worker.intake.rescan import SweepOptions, sweep
from ingest_worker.jobs import table as jobs
from ingest_worker.publish import NewVersion, Swap, publish, unpublish, withdraw
from shared.config import FolderSettings, Settings
from shared.database import Pool, open_pool
from shared.documents import DocumentState

SETTLE = 0.3
GRACE = 0.5
DEADLINE = 60.0
AT_ONCE = 20.0
"""Seconds within which a watcher that is told to stop has stopped on a loaded machine; what it could wait for takes minutes."""


def eventually(condition: Callable[[], Any], *, within: float = DEADLINE) -> Any:
    """What `condition` returns, once that is true; fails after `within` seconds."""
    ends = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < ends, "it did not come to pass in time"
        threading.Event().wait(0.01)


@dataclass(kw_only=True)
class Folder:
    """A folder source under test."""

    root: Path
    pool: Pool
    settings: Settings
    source_settings: FolderSettings
    woken: list[int] = field(default_factory=list)

    @property
    def source(self) -> Source:
        with self.pool.connection() as connection:
            found = get_source(connection, self.source_settings.name)
        assert found is not None
        return found

    def write(self, name: str, text: str = "text", *, age: float = 0.0) -> Path:
        """A file below the root; `age` seconds are taken off its mtime."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if age:
            then = time.time() - age
            os.utime(path, (then, then))
        return path

    def documents(self) -> dict[str, str]:
        """State by path, deleted documents left out."""
        with self.pool.connection() as connection:
            rows = connection.execute("SELECT path, state FROM docwell.document WHERE state <> 'deleted'").fetchall()
        return dict(rows)

    def ids(self) -> dict[str, Any]:
        """Document id by path, deleted documents left out."""
        with self.pool.connection() as connection:
            rows = connection.execute("SELECT path, document_id FROM docwell.document WHERE state <> 'deleted'").fetchall()
        return dict(rows)

    def live_jobs(self) -> dict[str, str]:
        """Kind of the live job by path."""
        with self.pool.connection() as connection:
            rows = connection.execute(
                "SELECT path, kind FROM docwell.job JOIN docwell.document USING (document_id)"
                " WHERE job.state IN ('queued', 'running', 'retrying')"
            ).fetchall()
        return dict(rows)

    def left_out(self) -> tuple[LeftOutRow, ...]:
        """What the newest sweep left out, by path."""
        with self.pool.connection() as connection:
            return list_left_out(connection, self.source.source_id).rows

    def approve(self) -> None:
        """Let go what is held, as a person does."""
        with self.pool.connection() as connection:
            _, as_of = count_held(connection, self.source.source_id)
            approve_deletes(connection, self.source_settings.name, as_of=as_of)

    def work(self) -> list[tuple[str, str]]:
        """Do all jobs that are due, reading the files and indexing nothing of them: `(path, result)` of each."""
        done = []
        while True:
            with self.pool.connection() as connection:
                claimed = jobs.claim(connection, worker="test", lease_seconds=60)
                if not claimed:
                    return done
                done += [_do(connection, job) for job in claimed]

    def sweep(self, *, stop: threading.Event | None = None, **options: Any) -> SweepReport:
        """One sweep by itself, with no settling unless asked for."""
        chosen = {"rest_seconds": 0.0, "grace_seconds": 0.0} | options
        rules = IgnoreRules(self.root, self.source_settings.ignore, name_rules(self.settings))
        return sweep(self.pool, self.source, rules, self.woken.append, stop or threading.Event(), SweepOptions(**chosen))

    @contextlib.contextmanager
    def watched(self, **more: Any) -> Iterator[FolderWatcher]:
        """The folder under a running watcher, whose first sweep is over."""
        watcher = FolderWatcher(self.source_settings, self.settings, self.pool, self.woken.append, **more)
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(watcher.run, stop)
            try:
                eventually(lambda: running.done() or watcher.mode is not None or not self.root.is_dir())
                if self.root.is_dir():
                    eventually(lambda: running.done() or self.source.newest_sweep is not None or self.source.sweep_error)
                yield watcher
            finally:
                stop.set()
                watcher.wake_up()
                running.result(timeout=AT_ONCE)


def _do(connection: Any, job: jobs.ClaimedJob) -> tuple[str, str]:
    document = catalogue.for_job(connection, job.document_id)
    assert document is not None
    if job.kind == "delete":
        unpublish(connection, job)
        return document.path, "deleted"
    try:
        content = read_content(connection, document, max_bytes=1 << 30)
    except Gone:
        unpublish(connection, job)
        return document.path, "deleted"
    except Refused as refusal:
        withdraw(connection, job.document_id, state=DocumentState.SKIPPED, code=refusal.code, reason=str(refusal))
        catalogue.record_seen(connection, job.document_id, size=refusal.size, modified_ns=refusal.modified_ns)
        jobs.succeed(connection, job, "skipped")
        return document.path, "skipped"
    audience = ensure_audience(
        connection, document.namespace_id, document.source_readers, restricted=document.source_readers is not None
    )
    begins = Beginning(document=document, content=content, audience_id=audience, fingerprint="test")
    (version_id,) = catalogue.begin_versions(connection, [begins]).values()
    version = NewVersion(version_id=version_id, number=begins.number, audience_id=audience, state=DocumentState.SKIPPED)
    publish(connection, [Swap(job=job, version=version)], space=_space(connection), vectors={}, keep_versions=5)
    return document.path, "read"


def _space(connection: Any) -> Space:
    """The active space, made when the index has none yet."""
    found = connection.execute("SELECT space_id FROM docwell.embedding_space WHERE state = 'active'").fetchone()
    if found is None:
        found = connection.execute("SELECT docwell.create_embedding_space('test', 'test', 'test', 2, 'active')").fetchone()
    return Space(space_id=found[0])


@contextlib.contextmanager
def open_folder(url: str, root: Path, **settings: Any) -> Iterator[Folder]:
    """The folder `root`, made when missing, as the source `docs`; `settings` may hold those of the source too."""
    root.mkdir(exist_ok=True)
    own = {name: settings.pop(name) for name in ("ignore", "readers", "tags", "max_bytes") if name in settings}
    source = FolderSettings(name="docs", root=root, **own)
    chosen = {
        "watch_settle_seconds": SETTLE,
        "delete_grace_seconds": GRACE,
        "watch_poll_seconds": 0.2,
        "sources": (source,),
    } | settings
    with open_pool(url, name="test-intake", size=6) as pool:
        with pool.connection() as connection:
            ensure_folder_source(connection, source)
        yield Folder(root=root, pool=pool, settings=Settings.model_validate(chosen), source_settings=source)
