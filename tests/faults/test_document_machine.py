"""A document under every order of what its file, a person and a worker can do to it: it tells the truth, and loses no change."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg import Connection

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import exclusion, versions
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.documents import request_delete
from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, LeaseLost
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import run_job
from ingest_worker.rollback import request_rollback
from shared.database import connect
from shared.documents import JobState
from shared.embedding.protocol import Role, Vectors
from shared.errors import DocwellError, PermanentError, TransientError
from tests.asking import WordEmbedder
from tests.conftest import Database
from tests.faults.profile import machine_settings
from tests.versions import Library, open_library

WORDS = ("heron", "egret", "stork", "crane")
LIVE = "state IN ('queued', 'running', 'retrying')"


class Moody:
    """An embedder that fails, or waits, when it is told to."""

    fingerprint = WordEmbedder.fingerprint

    def __init__(self) -> None:
        self.failure: DocwellError | None = None
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.waits = threading.Event()

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        self.waits.set()
        assert self.may_go_on.wait(30)
        if self.failure is not None:
            raise self.failure
        return WordEmbedder().embed(texts, role)


def document_machine(
    library: Library, embedder: Moody, threads: ThreadPoolExecutor, second: Connection[Any]
) -> type[RuleBasedStateMachine]:
    """The machine over this library; each example has a file of its own. `second` is the connection of the worker's thread."""
    connection = library.connection
    numbers = itertools.count()

    class DocumentMachine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.name = f"{next(numbers)}.md"
            self.path = library.root / self.name
            self.saves = itertools.count()
            self.cancelled = False
            self.excluded = False
            self.run: Future[None] | None = None
            embedder.failure = None
            # The version that a person wants served: 0 the newest, None when an order of requests leaves it open.
            self.wanted: int | None = 0
            for word in ("heron", "egret"):
                self._save(word)
                self.document: uuid.UUID = library.ask(self.name)
                while self._work():
                    pass

        def _save(self, word: str) -> None:
            # Every save has its own bytes but for an empty file, and words that other saves have too.
            self.path.write_text(f"# {word}\n\nThe {word} of {self.name}, save {next(self.saves)}.\n" if word else " \n")

        def _row(self, columns: str) -> tuple[object, ...]:
            query = f"SELECT {columns} FROM docwell.document d WHERE document_id = %s"
            row = connection.execute(query.encode(), (self.document,)).fetchone()
            assert row is not None
            return tuple(row)

        def _work(self) -> bool:
            self.finish()
            job = library.claim()
            if job is not None:
                self._run(job, connection)
            return job is not None

        def _run(self, job: ClaimedJob, own: Connection[Any]) -> None:
            """As the worker does a job, with a connection of its own for what it records."""
            try:
                run_job(job, library.tools)
            except LeaseLost:
                return
            except DocwellError as error:
                permanent = isinstance(error, PermanentError)
                try:
                    with own.transaction():
                        state = jobs.fail(own, job, code=error.code, error=str(error), permanent=permanent, delay_seconds=0)
                        catalogue.record_failure(
                            own,
                            job.document_id,
                            state="failed" if state is JobState.DEAD else "queued",
                            code=error.code,
                            reason=str(error),
                            permanent=permanent,
                        )
                except LeaseLost:
                    return

        @precondition(lambda self: self.run is None)
        @rule(failure=st.sampled_from((None, None, TransientError("away"), PermanentError("refused"))))
        def begin(self, failure: DocwellError | None) -> None:
            """A worker takes the job and has read the file, and something else happens before it has embedded the text."""
            job = library.claim()
            if job is None:
                return
            embedder.failure = failure
            embedder.may_go_on.clear()
            embedder.waits.clear()
            self.run = threads.submit(self._run, job, second)
            while not self.run.done() and not embedder.waits.wait(0.005):
                pass

        @precondition(lambda self: self.run is not None)
        @rule()
        def finish(self) -> None:
            embedder.may_go_on.set()
            if self.run is not None:
                self.run.result(30)
                self.run = None
            embedder.failure = None

        @rule(word=st.sampled_from(("", *WORDS)))
        def save(self, word: str) -> None:
            before = self.path.read_bytes() if self.path.exists() else None
            self._save(word)
            self._ask()
            if self.path.read_bytes() != before:
                self.wanted = 0

        @rule()
        def touch(self) -> None:
            if self.path.exists():
                self._ask()

        def _ask(self) -> None:
            if not self.excluded:
                library.ask(self.name)
                self.cancelled = False

        @rule(way=st.sampled_from(("take away", "delete", "exclude")))
        def take_out(self, way: str) -> None:
            if way == "take away":
                self.path.unlink(missing_ok=True)
                request_delete(connection, [self.document])
            elif way == "exclude":
                exclusion.exclude(connection, self.document)
                self.excluded = True
            else:
                try:
                    exclusion.request_deletion(connection, self.document)
                except DocwellError:
                    return
                self.cancelled = True  # what was asked for before is not wanted any more
            self.wanted = None

        @precondition(lambda self: self.excluded)
        @rule()
        def include(self) -> None:
            exclusion.include(connection, self.document)
            self.excluded, self.cancelled = False, False

        @rule(number=st.sampled_from((None, 1, 2, 3)))
        def roll_back(self, number: int | None) -> None:
            try:
                self.wanted = request_rollback(connection, self.document, number).version
            except Conflict:
                return

        @rule()
        def cancel(self) -> None:
            live = connection.execute(
                f"SELECT job_id FROM docwell.job WHERE document_id = %s AND {LIVE}".encode(), (self.document,)
            ).fetchall()
            if control.cancel(connection, [job for (job,) in live]):
                self.cancelled, self.wanted = True, None

        @rule()
        def retry(self) -> None:
            ended = connection.execute(
                "SELECT job_id FROM docwell.job WHERE document_id = %s AND state IN ('dead', 'cancelled')", (self.document,)
            ).fetchall()
            control.retry(connection, [job for (job,) in ended])

        @rule(failure=st.sampled_from((TransientError("away"), PermanentError("refused"))))
        def work_with_a_broken_embedder(self, failure: DocwellError) -> None:
            self.finish()
            embedder.failure = failure
            self._work()
            embedder.failure = None

        @rule()
        def work_once(self) -> None:
            self._work()

        @rule()
        def work(self) -> None:
            while self._work():
                pass
            state, served, latest, pinned = self._row("state, served_version, latest_version, pinned_version")
            if self.cancelled or self.excluded or state == "failed":
                return
            if not self.path.exists():
                assert state == "deleted"
                return
            if state == "deleted":
                return  # a person deleted it, and nobody has asked for the file since
            text = self.path.read_text().strip()
            kept = versions.kept_versions(connection, self.document)
            newest = next(one for one in kept if one.number == latest)
            read = " ".join(chunk.text for chunk in versions.load_chunks(connection, newest.version_id))
            assert (text.splitlines()[-1:] or [""])[0] in read, "the newest version is the file"
            if self.wanted is not None:
                assert served == (self.wanted or (latest if text else None))
            if pinned is not None:
                assert served == pinned

        @invariant()
        def it_tells_the_truth(self) -> None:
            state, searchable, served, latest, code, reason, chunks, pinned = self._row(
                "state, searchable, served_version, latest_version, reason_code, reason, chunk_count, pinned_version"
            )
            live = library.one(f"SELECT count(*) FROM docwell.job WHERE document_id = %s AND {LIVE}", self.document)
            # A job that is to see whether the file is gone, or to delete it, leaves the state until then.
            assert live == 1 or state not in {"queued", "indexing"}
            kept = {one.number: one for one in versions.kept_versions(connection, self.document)}
            assert searchable == (served is not None)
            if isinstance(served, int) and isinstance(latest, int):
                assert served <= latest
                assert kept[served].chunk_count == chunks
                assert kept[served].state in {"indexed", "partial"}
                if served < latest and not live:
                    assert code in {"rolled_back", "cancelled"} or state == "failed"
            if state in {"indexed", "partial"}:
                assert searchable
            if state in {"needs_ocr", "skipped", "deleted", "excluded"}:
                assert not searchable
                assert pinned is None
            if state in {"failed", "skipped", "excluded"}:
                assert reason
            unfinished = [one.number for one in kept.values() if one.state == "indexing"]
            assert unfinished in ([], [latest])
            assert not unfinished or live

        @invariant()
        def searches_find_what_is_served_and_nothing_else(self) -> None:
            stray = library.one(
                """
                WITH served AS (
                    SELECT DISTINCT p.audience_id, p.chunk_id, c.input_id FROM docwell.document d
                    JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
                    JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id))
                SELECT (SELECT count(*) FROM served FULL JOIN docwell.chunk_terms t USING (audience_id, chunk_id)
                        WHERE served.input_id IS NULL OR t.length IS NULL)
                     + (SELECT count(*) FROM served FULL JOIN docwell.vector_1 v USING (audience_id, input_id)
                        WHERE served.chunk_id IS NULL OR v.indexed IS NULL)
                     + (SELECT count(*) FROM docwell.chunk c WHERE NOT EXISTS (SELECT 1 FROM docwell.version_chunk p
                        WHERE (p.audience_id, p.chunk_id) = (c.audience_id, c.chunk_id)))
                     + (SELECT abs(sum(a.chunk_count) - (SELECT count(*) FROM docwell.chunk_terms)) FROM docwell.audience a)
                """
            )
            assert stray == 0

        def teardown(self) -> None:
            self.finish()
            self.path.unlink(missing_ok=True)
            exclusion.exclude(connection, self.document)

    return DocumentMachine


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.mark.timeout(1800)
def test_a_document_tells_the_truth_and_loses_no_change(database: Database, tmp_path: Path, cage: ParserCage) -> None:
    embedder = Moody()
    with (
        open_library(database.url, tmp_path / "inbox", cage, embedder=lambda: embedder, keep_versions=3) as library,
        ThreadPoolExecutor(1) as threads,
        connect(database.url, autocommit=True) as second,
    ):
        library.take("first.md", "There is a space for vectors now.\n")
        machine = document_machine(library, embedder, threads, second)
        run_state_machine_as_test(machine, settings=machine_settings(examples=8, steps=20))
