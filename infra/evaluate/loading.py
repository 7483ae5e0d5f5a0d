"""A set's corpus in a namespace of its own: taken in as pushed documents are, asked, and removed without a trace."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import Connection

from ingest_worker.catalogue.dropping import drop_namespace
from ingest_worker.catalogue.sources import ensure_namespace
from ingest_worker.intake.manual import BATCH, Ended, ended_jobs
from ingest_worker.intake.push import Pushed, accept
from query_server.evaluate.sets import CorpusDocument
from shared.errors import PermanentError, ServiceUnavailable

MARK = "The corpus of a set of questions. `docwell eval` put it here, and removes it when it has asked them."
"""Stands as the namespace's description: nobody's own namespace is ever taken for one to be removed."""

IDLE_SECONDS = 30.0
"""How long nothing of the queue may be in work before we say that no worker runs; a scheduler's tick wakes them sooner."""

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A corpus that is in the index: its namespace, and how many of its documents ended how."""

    namespace: str
    documents: int
    chunks: int
    failed: int


class Loader:
    """Loads one corpus; clock and sleep are injected.

    `connect` opens a connection as the owner, each statement a transaction of its own. `wake` calls workers for so many jobs.
    `say` tells a person how far it is: documents done, and all.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection[Any]]],
        wake: Callable[[int], None],
        *,
        say: Callable[[int, int], None] = lambda _done, _all: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._connect = connect
        self._wake = wake
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._idle_seconds = idle_seconds

    @contextmanager
    def loaded(self, name: str, documents: Sequence[CorpusDocument], *, suffix: str = "", keep: bool = False) -> Iterator[Loaded]:
        """The corpus in the index until the block ends, however it ends; with `keep` for good, unless loading fails.

        What a run left that was killed is removed first.

        Raises:
            ServiceUnavailable: no worker takes the documents.
            PermanentError: not one of the documents could be taken in.
        """
        namespace = _free_name(name)
        number: int | None = None
        kept = False
        try:
            with self._connect() as connection:
                remove_leftovers(connection)
                number = _begin(connection, namespace)
                loaded = self._load(connection, namespace, documents, suffix)
                if keep:
                    connection.execute(_DESCRIBE, (None, number))
                    kept = True
                yield loaded
        finally:
            if number is not None and not kept:
                # An interrupt may have left the other connection in the middle of a statement.
                with self._connect() as connection:
                    drop_namespace(connection, number)

    def _load(self, connection: Connection[Any], namespace: str, documents: Sequence[CorpusDocument], suffix: str) -> Loaded:
        jobs: list[uuid.UUID] = []
        for document in documents:
            pushed = _pushed(namespace, document, suffix)
            job = accept(connection, pushed).job_id
            if job is not None:
                jobs.append(job)
            if len(jobs) % BATCH == 1:
                self._wake(BATCH)
        self._wake(len(jobs))
        ended = self._follow(connection, jobs)
        read = [one for one in ended if one.chunks]
        if not read:
            reason = next((one.reason for one in ended if one.reason), "it has no documents")
            raise PermanentError(f"Nothing of the set's corpus could be taken in: {reason}", code="empty_corpus")
        return Loaded(
            namespace=namespace,
            documents=len(documents),
            chunks=sum(one.chunks or 0 for one in read),
            failed=len(ended) - len(read),
        )

    def _follow(self, connection: Connection[Any], jobs: Sequence[uuid.UUID]) -> list[Ended]:
        waiting, ended = list(jobs), list[Ended]()
        idle_since = self._clock()
        while waiting:
            done = ended_jobs(connection, waiting[:BATCH])
            ended += done
            gone = {one.job_id for one in done}
            waiting = [job for job in waiting if job not in gone]
            self._say(len(ended), len(jobs))
            if done or connection.execute(_RUNNING).fetchone() is not None:
                idle_since = self._clock()
            elif self._clock() - idle_since > self._idle_seconds:
                raise ServiceUnavailable(
                    f"No worker takes the set's documents: nothing happened for {self._idle_seconds:g} s. Start one with"
                    " `docwell up` (or `docwell worker`), and look at `docwell jobs list` for what holds it up.",
                    code="no_worker",
                )
            if not done and waiting:
                self._sleep(_POLL_SECONDS)
        return ended


_LOCK: LiteralString = "SELECT pg_advisory_lock(%s)"
_TRY_LOCK: LiteralString = "SELECT pg_try_advisory_lock(%s)"
_UNLOCK: LiteralString = "SELECT pg_advisory_unlock(%s)"
_DESCRIBE: LiteralString = "UPDATE docwell.namespace SET description = %s WHERE namespace_id = %s"
_MARKED: LiteralString = "SELECT namespace_id, name FROM docwell.namespace WHERE description = %s ORDER BY namespace_id"
_RUNNING: LiteralString = "SELECT 1 FROM docwell.job WHERE state = 'running' AND lease_until > now() LIMIT 1"


def _begin(connection: Connection[Any], namespace: str) -> int:
    # Held by this session before others can see the namespace, and gone with the session: so leftovers are told apart.
    connection.execute(_LOCK, (_lock_key(namespace),))
    with connection.transaction():
        number = ensure_namespace(connection, namespace)
        connection.execute(_DESCRIBE, (MARK, number))
    return number


def remove_leftovers(connection: Connection[Any]) -> list[str]:
    """Remove the corpora of evaluations that were killed; returns their namespaces. Those that are in use stay."""
    removed = []
    for number, name in connection.execute(_MARKED, (MARK,)).fetchall():
        row = connection.execute(_TRY_LOCK, (_lock_key(name),)).fetchone()
        if row is not None and row[0]:
            try:
                drop_namespace(connection, number)
            finally:
                connection.execute(_UNLOCK, (_lock_key(name),))
            removed.append(name)
    return removed


def _free_name(name: str) -> str:
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "set"
    return f"eval-{plain[:40]}-{uuid.uuid4().hex[:8]}"


def _lock_key(namespace: str) -> int:
    return int.from_bytes(hashlib.sha256(b"docwell eval " + namespace.encode()).digest()[:8], "big", signed=True)


def _pushed(namespace: str, document: CorpusDocument, suffix: str) -> Pushed:
    data = document.content()
    return Pushed(
        namespace=namespace,
        path=document.name(suffix),
        content=zlib.compress(data),
        sha256=hashlib.sha256(data).digest(),
        size=len(data),
    )
