"""The job table: leases, attempts, back-off, dead letters and what survives them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.documents import Beginning, Content
from ingest_worker.jobs import control, scheduler
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.lost import cut_off
from shared.config import Settings
from shared.database import open_pool
from shared.documents import JobState
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


def _job(corpus: Corpus, document: uuid.UUID) -> tuple[object, ...]:
    row = corpus.connection.execute(
        "SELECT state, attempts, kind, last_error FROM docwell.job WHERE document_id = %s ORDER BY created_at DESC LIMIT 1",
        (document,),
    ).fetchone()
    assert row is not None
    return tuple(row)


def test_ten_changes_of_a_waiting_document_are_one_job(corpus: Corpus) -> None:
    for _ in range(10):
        corpus.ask("a.md")
    assert corpus.count("job") == 1


def test_a_claimed_job_is_nobody_elses(corpus: Corpus) -> None:
    corpus.ask("a.md")
    assert corpus.claim().attempts == 1
    assert jobs.claim(corpus.connection, worker="other", lease_seconds=60) == []


def test_transient_failures_wait_and_the_last_one_is_dead(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    for attempt in range(1, 6):
        corpus.connection.execute("UPDATE docwell.job SET next_run_at = now()")
        job = corpus.claim()
        state = jobs.fail(corpus.connection, job, code="away", error="no embedder", permanent=False, delay_seconds=60)
        assert state is (JobState.RETRYING if attempt < 5 else JobState.DEAD)
        assert jobs.claim(corpus.connection, worker="other", lease_seconds=60) == []
    assert _job(corpus, document) == ("dead", 5, "ingest", "no embedder")


def test_a_permanent_failure_is_dead_at_once_and_can_be_retried(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    job = corpus.claim()
    assert jobs.fail(corpus.connection, job, code="damaged", error="broken", permanent=True, delay_seconds=0) is JobState.DEAD
    assert control.retry(corpus.connection, [job.job_id]) == 1
    assert _job(corpus, document)[:2] == ("queued", 0)


@pytest.mark.parametrize(
    ("error", "state", "attempts", "says"),
    [
        (psycopg.errors.DiskFull("could not extend file"), "queued", 0, "PostgreSQL's disk is full: could not extend file."),
        (psycopg.OperationalError("FATAL:  could not write init file: No space left on device"), "queued", 0, "disk is full"),
        (psycopg.errors.AdminShutdown("terminating connection"), "retrying", 1, "lost PostgreSQL"),
    ],
)
def test_a_full_disk_of_the_database_costs_no_attempt_and_any_other_loss_does(
    corpus: Corpus, error: psycopg.OperationalError, state: str, attempts: int, says: str
) -> None:
    document = corpus.ask("a.md")
    corpus.claim()
    with corpus.connection.transaction():
        for job in jobs.held_by(corpus.connection, ["test"]):
            cut_off(corpus.connection, job, error, rng=random.Random(1))
    *now, told = _job(corpus, document)
    assert now == [state, attempts, "ingest"]
    assert says in str(told)


def test_new_content_gives_a_waiting_retry_its_attempts_back(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    jobs.fail(corpus.connection, corpus.claim(), code="away", error="x", permanent=False, delay_seconds=600)
    corpus.ask("a.md")
    assert _job(corpus, document)[:2] == ("queued", 0)
    assert corpus.claim().document_id == document


def test_a_change_during_a_failing_run_runs_again(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    job = corpus.claim()
    corpus.ask("a.md")
    assert jobs.fail(corpus.connection, job, code="damaged", error="x", permanent=True, delay_seconds=0) is JobState.QUEUED
    assert _job(corpus, document)[:2] == ("queued", 0)


def test_a_cancelled_job_writes_nothing_and_the_served_version_stays(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("alpha")])
    corpus.ask("a.md")
    job = corpus.claim()
    assert control.cancel(corpus.connection, [job.job_id]) == 1
    with pytest.raises(jobs.LeaseLost):
        jobs.succeed(corpus.connection, job, "indexed")
    row = corpus.connection.execute("SELECT state, searchable FROM docwell.document").fetchone()
    assert row == ("indexed", True)


def test_purge_removes_ended_jobs_only(corpus: Corpus) -> None:
    corpus.add("a.md", [text_chunk("alpha")])
    corpus.ask("b.md")
    states = list(JobState)
    assert control.purge(corpus.connection, states=states, older_than_seconds=-1) == 1
    assert corpus.count("job") == 1


def test_the_scheduler_takes_back_what_a_lost_worker_held_and_counts_the_attempt(database: Database, corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    woken: list[int] = []
    with open_pool(database.url, name="test") as pool:
        for attempt in range(1, 6):
            corpus.connection.execute("UPDATE docwell.job SET next_run_at = now()")
            corpus.claim()
            corpus.connection.execute("UPDATE docwell.job SET lease_until = now() - interval '1 s'")
            scheduler.tick(Settings(), pool, woken.append, rng=random.Random(1))
            assert _job(corpus, document)[:2] == ("retrying" if attempt < 5 else "dead", attempt)
        corpus.ask("b.md")
        scheduler.tick(Settings(), pool, woken.append, rng=random.Random(1))
    assert woken == [1], "a job that waits for its back-off is not due"
    row = corpus.connection.execute("SELECT state, reason_code FROM docwell.document WHERE path = 'a.md'").fetchone()
    assert row == ("failed", "worker_lost")


@given(attempts=st.integers(1, 1000), seed=st.integers(), retry_after=st.none() | st.floats(0, 10_000))
def test_the_delay_grows_within_its_bounds(attempts: int, seed: int, retry_after: float | None) -> None:
    delay = jobs.retry_delay(attempts, rng=random.Random(seed), retry_after=retry_after)
    assert delay >= max(1.0, retry_after or 0.0)
    assert delay <= max(jobs.RETRY_CAP_SECONDS, retry_after or 0.0)


def test_jobs_of_a_worker_that_was_stopped_are_queued_at_once_and_lose_no_attempt(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    other = corpus.ask("b.md")
    jobs.claim(corpus.connection, worker="host:1:7", lease_seconds=60)
    jobs.claim(corpus.connection, worker="host:12:7", lease_seconds=60)
    corpus.connection.execute("UPDATE docwell.document SET state = 'indexing'")
    jobs.hand_back(corpus.connection, "host:1")
    assert _job(corpus, document)[:2] == ("queued", 0)
    assert _job(corpus, other)[:2] == ("running", 1)
    row = corpus.connection.execute("SELECT state FROM docwell.document WHERE document_id = %s", (document,)).fetchone()
    assert row == ("queued",)


def test_a_deletion_that_was_asked_for_during_a_run_survives_the_stop_of_its_worker(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    jobs.claim(corpus.connection, worker="host:1:7", lease_seconds=60)
    jobs.enqueue(corpus.connection, [document], kind="delete")
    jobs.hand_back(corpus.connection, "host:1")
    assert _job(corpus, document)[:3] == ("queued", 0, "delete")


def test_of_two_dead_jobs_of_a_document_only_one_is_tried_again(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    dead = []
    for _ in range(2):
        corpus.ask("a.md")
        job = corpus.claim()
        jobs.fail(corpus.connection, job, code="damaged", error="broken", permanent=True, delay_seconds=0)
        dead.append(job.job_id)
    assert control.retry(corpus.connection, dead) == 1
    assert _job(corpus, document)[:2] == ("queued", 0)


def test_a_document_whose_first_run_was_cancelled_half_way_does_not_stay_indexing(corpus: Corpus) -> None:
    document = corpus.ask("a.md")
    job = corpus.claim()
    found = catalogue.for_job(corpus.connection, document)
    assert found is not None
    content = Content(data=b"x", sha256=b"0" * 32, size=1, modified_ns=1)
    begins = Beginning(document=found, content=content, audience_id=found.audience_id, fingerprint="test")
    catalogue.begin_versions(corpus.connection, [begins])
    control.cancel(corpus.connection, [job.job_id])
    row = corpus.connection.execute(
        "SELECT state, reason_code FROM docwell.document WHERE document_id = %s", (document,)
    ).fetchone()
    assert row == ("skipped", "cancelled")
