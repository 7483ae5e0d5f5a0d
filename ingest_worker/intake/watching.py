"""The watcher process: all sources, each with its own loop, until it is told to stop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import structlog
from psycopg import Connection

from ingest_worker.catalogue import whereabouts
from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import DEFAULT_NAMESPACE, INBOX, Source, ensure_folder_source, get_source
from ingest_worker.intake.folder import FolderWatcher
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.sweeper import AT_A_TIME
from ingest_worker.jobs.wake import Wake
from ingest_worker.sources.running import following, remote_sources
from shared.config import FolderSettings, Settings
from shared.database import Pool, reachable
from shared.errors import ConfigurationError, ServiceUnavailable

log = structlog.get_logger(__name__)

_BATCH = 1000
_RETRY_SECONDS = 2.0
_LOOK_SECONDS = 0.5


def folder_sources(settings: Settings) -> tuple[FolderSettings, ...]:
    """The folders to watch: the inbox and those of `[[sources]]`, which may describe the inbox themselves.

    Raises:
        ConfigurationError: two sources have one name.
    """
    names = [source.name for source in settings.sources]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigurationError(f"Two [[sources]] are named {sorted(twice)[0]!r}. Give one of them another name.")
    folders = tuple(source for source in settings.sources if isinstance(source, FolderSettings))
    if INBOX in names:
        return folders
    return (FolderSettings(name=INBOX, root=settings.inbox, namespace=DEFAULT_NAMESPACE), *folders)


def prepare_source(pool: Pool, wanted: FolderSettings, *, max_bytes: int, max_attempts: int, wake: Wake) -> Source:
    """Bring a source's row up to date, and take it back if it was taken out.

    When its readers or tags changed, all of its documents are asked for again; otherwise those that were too large and are
    within the limit now.

    Raises:
        PermanentError: the name belongs to a source of another type or namespace.
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    asked = 0
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
        with connection.transaction():
            before = get_source(connection, wanted.name)
            source = ensure_folder_source(connection, wanted)
            if before is not None and (before.readers, before.tags) != (source.readers, source.tags):
                asked = _request_all(connection, source, whereabouts.live_names(connection, source.source_id), max_attempts)
            else:
                limit = max_bytes if wanted.max_bytes is None else wanted.max_bytes
                names = whereabouts.too_large_before(connection, source.source_id, limit)
                asked = _request_all(connection, source, names, max_attempts)
        has_documents = whereabouts.count_documents(connection, source.source_id) > 0
    if asked:
        log.info("settings_changed", source=source.name, documents=asked)
        wake(asked)
    if wanted.name == INBOX and not has_documents:
        # Once it holds documents a missing folder is more likely not mounted than new.
        wanted.root.mkdir(parents=True, exist_ok=True)
    return source


def _request_all(
    connection: Connection[Any], source: Source, names: Iterable[tuple[str, bytes | None]], max_attempts: int
) -> int:
    asked = 0
    batch: list[Observed] = []

    def flush() -> int:
        if not batch or source.namespace_id is None:
            return 0
        jobs = request_ingest(connection, source, source.namespace_id, batch, max_attempts=max_attempts).jobs
        batch.clear()
        return len(jobs)

    for path, locator in names:
        batch.append(Observed(name=path if locator is None else os.fsdecode(locator)))
        if len(batch) >= _BATCH:
            asked += flush()
    return asked + flush()


def watch_sources(
    settings: Settings, pool: Pool, wake: Wake, stop: threading.Event, *, on_begun: Callable[[], None] = lambda: None
) -> None:
    """Watch all folders, and follow the sources that are asked over the network, until `stop` is set; ends within two seconds.

    `on_begun` is called once, when all of them are watched.

    Raises:
        DocwellError: a source cannot be watched for a reason that waiting does not mend.
    """
    sources = folder_sources(settings)
    remotes = remote_sources(settings)
    if not _prepare_all(sources, settings, pool, wake, stop):
        return
    turn = threading.Semaphore(AT_A_TIME)
    watchers = [FolderWatcher(source, settings, pool, wake, sweep_turn=turn) for source in sources]
    ending = threading.Event()
    with (
        following(remotes, settings, pool, wake),
        ThreadPoolExecutor(max_workers=len(watchers), thread_name_prefix="watch") as threads,
    ):
        running: list[Future[None]] = [threads.submit(watcher.run, ending) for watcher in watchers]
        on_begun()
        try:
            while not stop.wait(_LOOK_SECONDS):
                done, _ = wait(running, timeout=0, return_when=FIRST_COMPLETED)
                for ended in done:
                    ended.result()
        finally:
            ending.set()
            for watcher in watchers:
                watcher.wake_up()


def _prepare_all(sources: Sequence[FolderSettings], settings: Settings, pool: Pool, wake: Wake, stop: threading.Event) -> bool:
    """Prepare each source, waiting for PostgreSQL when it is away; False when stopped before that."""
    told = False
    for source in sources:
        while not stop.is_set():
            try:
                prepare_source(pool, source, max_bytes=settings.max_bytes, max_attempts=settings.job_attempts, wake=wake)
                break
            except ServiceUnavailable as error:
                if not told:
                    log.warning("database_away", error=str(error))
                told = True
                stop.wait(_RETRY_SECONDS)
    return not stop.is_set()
