"""The job table against a plain model, under every order of what can happen to it.

Time is moved by moving every time in the table the other way. All spans are multiples of `STEP` seconds, so that the moments that
the test itself takes change nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import note
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import dict_row

from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.table import ClaimedJob, LeaseLost
from shared.documents import JobState
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.faults.profile import machine_settings

STEP = 100.0
LEASE = 2.5 * STEP
ATTEMPTS = 3
PATHS = ("a.md", "b.md")
WORKERS = ("host:1:11", "host:1:12", "host:2:21")
LIVE = ("queued", "running", "retrying")
WAITING = ("queued", "retrying")

_SHIFT = """
    UPDATE docwell.job SET next_run_at = next_run_at - make_interval(secs => %(by)s),
        lease_until = lease_until - make_interval(secs => %(by)s), finished_at = finished_at - make_interval(secs => %(by)s),
        place = place - make_interval(secs => %(by)s)
"""
_ROWS = """
    SELECT job_id, document_id, state, kind, attempts, rerun, rerun_kind, lease_token, worker, error_code,
           extract(epoch FROM next_run_at - now())::float8 AS due_in
    FROM docwell.job
"""


class Ending(Enum):
    """What a worker does with a job that it claimed. Several in one rule, so that a search does not lose itself in them."""

    KEEPS_ON = auto()
    SUCCEEDS = auto()
    FAILS = auto()
    FAILS_FOR_GOOD = auto()
    IS_POSTPONED = auto()


@dataclass(kw_only=True)
class ModelJob:
    """What a job is. Times are seconds of the model's clock."""

    job_id: uuid.UUID
    document_id: uuid.UUID
    kind: str
    run_at: float
    state: str = "queued"
    attempts: int = 0
    rerun_kind: str | None = None
    token: uuid.UUID | None = None
    lease_until: float = 0.0
    worker: str | None = None
    ended_at: float = 0.0

    @property
    def live(self) -> bool:
        return self.state in LIVE

    def wait(self, state: str, run_at: float) -> None:
        self.state, self.run_at, self.token = state, run_at, None

    def end(self, state: str, now: float) -> None:
        self.state, self.ended_at, self.token = state, now, None

    def run_again(self, at: float, *, done: bool) -> None:
        assert self.rerun_kind is not None
        # An ingest that did not come to its end is still to be done, and does the rollback too.
        self.kind = self.rerun_kind if done else _both(self.kind, self.rerun_kind)
        self.rerun_kind, self.attempts = None, 0
        self.wait("queued", at)


def _both(waiting: str | None, newer: str) -> str:
    """What a job does that was asked for twice: the newer, but that an ingest does a rollback as well."""
    return "ingest" if (waiting, newer) == ("ingest", "rollback") else newer


def _span(steps: int) -> float:
    """Seconds that end half a step before a whole one: whether something is due never hangs on the time of a statement."""
    return max(0.0, steps * STEP - STEP / 2)


class JobTable(RuleBasedStateMachine):
    """Each rule does one thing to the table and to the model; then both must be the same."""

    corpus: Corpus
    documents: Sequence[uuid.UUID]

    claimed = Bundle("claimed")

    def __init__(self) -> None:
        super().__init__()
        self.connection = self.corpus.connection
        self.connection.execute("DELETE FROM docwell.job")
        self.now = 0.0
        self.model: dict[uuid.UUID, ModelJob] = {}
        self.asked: dict[uuid.UUID, str] = {}

    # What is asked for

    @initialize()
    def all_are_asked_for(self) -> None:
        self.somebody_asks(set(range(len(PATHS))), "ingest", 0)

    @rule(
        documents=st.sets(st.sampled_from(range(len(PATHS))), min_size=1),
        kind=st.sampled_from(["ingest", "ingest", "delete", "rollback"]),
        steps=st.sampled_from([0, 0, 2]),
    )
    def somebody_asks(self, documents: set[int], kind: str, steps: int) -> None:
        wanted = [self.documents[number] for number in sorted(documents)]
        delay = _span(steps)
        answered: dict[uuid.UUID, uuid.UUID] = {}
        for document in wanted:  # one by one: so no two are due at the very same moment, and the same one is always claimed first
            answered |= jobs.enqueue(self.connection, [document], kind=kind, max_attempts=ATTEMPTS, delay_seconds=delay)
        assert set(answered) == set(wanted)
        run_at = self.now + delay
        for document in wanted:
            job = self._live(document)
            self.asked[document] = kind if kind != "rollback" or self.asked.get(document) != "ingest" else "ingest"
            if job is None:
                job_id = answered[document]
                assert job_id not in self.model, "an ended job is not used again"
                self.model[job_id] = ModelJob(job_id=job_id, document_id=document, kind=kind, run_at=run_at)
                continue
            assert answered[document] == job.job_id, "one live job for a document"
            if job.state == "running":
                job.rerun_kind = _both(job.rerun_kind, kind)
                continue
            job.kind, job.run_at = _both(job.kind, kind), min(job.run_at, run_at)
            if job.state == "retrying":
                job.state, job.attempts = "queued", 0

    # What workers do

    @precondition(lambda self: self._due())
    @rule(target=claimed, worker=st.sampled_from(WORKERS), limit=st.sampled_from([1, 3]))
    def a_worker_claims(self, worker: str, limit: int) -> Any:
        due = self._due()
        claimed = jobs.claim(self.connection, worker=worker, lease_seconds=LEASE, limit=limit)
        taken = sorted(claimed, key=lambda one: self.documents.index(one.document_id))
        assert {one.job_id for one in taken} <= due, "nothing is claimed before its time, or twice"
        assert taken, "what is due is claimed"
        assert len(taken) <= limit
        assert len(taken) == 1 or all(one.attempts == 1 for one in taken), "what failed before is tried alone"
        for one in taken:
            job = self.model[one.job_id]
            job.state, job.attempts, job.token, job.rerun_kind = "running", job.attempts + 1, one.lease_token, None
            job.lease_until, job.worker = self.now + LEASE, worker
            assert (one.document_id, one.kind, one.attempts) == (job.document_id, job.kind, job.attempts)
            assert one.max_attempts == ATTEMPTS
            self.asked.pop(job.document_id, None)
        for one in taken:  # no two leases end at the very same moment either
            jobs.renew(self.connection, [one], lease_seconds=LEASE)
        return multiple(*taken)

    @rule(held=claimed, end=st.sampled_from(Ending), steps=st.sampled_from([0, 2]))
    def a_worker_comes_to_an_end(self, held: ClaimedJob, end: Ending, steps: int) -> None:
        match end:
            case Ending.KEEPS_ON:
                self._keep_lease(held)
            case Ending.SUCCEEDS:
                self._succeed(held)
            case Ending.FAILS | Ending.FAILS_FOR_GOOD:
                self._fail_held(held, end is Ending.FAILS_FOR_GOOD, steps)
            case Ending.IS_POSTPONED:
                self._postpone(held, steps)

    def _keep_lease(self, held: ClaimedJob) -> None:
        ours = self._holds(held)
        assert bool(jobs.renew(self.connection, [held], lease_seconds=LEASE)) is ours
        if ours:
            self.model[held.job_id].lease_until = self.now + LEASE

    def _succeed(self, held: ClaimedJob) -> None:
        if not self._holds(held):
            with pytest.raises(LeaseLost):
                jobs.succeed(self.connection, held, "indexed")
            with pytest.raises(LeaseLost):
                jobs.fence(self.connection, held)
            return
        jobs.fence(self.connection, held)
        job = self.model[held.job_id]
        again = job.rerun_kind is not None
        assert jobs.succeed(self.connection, held, "indexed", chunks=1, embedded=1) is again
        if again:
            job.run_again(self.now, done=True)
        else:
            job.end("succeeded", self.now)

    def _fail_held(self, held: ClaimedJob, permanent: bool, steps: int) -> None:
        delay = _span(steps)
        if not self._holds(held):
            with pytest.raises(LeaseLost):
                self._fail(held, permanent=permanent, delay=delay)
            return
        assert self._fail(held, permanent=permanent, delay=delay).value == self._expected_failure(held, permanent, delay)

    @precondition(lambda self: any(job.state == "running" for job in self.model.values()))
    @rule(worker=st.sampled_from(["host:1", "host:2"]))
    def a_worker_is_stopped(self, worker: str) -> None:
        jobs.hand_back(self.connection, worker)
        for job in self.model.values():
            if job.state == "running" and (job.worker or "").startswith(f"{worker}:"):
                job.attempts -= 1
                if job.rerun_kind is not None:
                    job.run_again(self.now, done=False)
                else:
                    job.wait("queued", self.now)

    def _postpone(self, held: ClaimedJob, steps: int) -> None:
        delay = _span(steps)
        if not self._holds(held):
            with pytest.raises(LeaseLost):
                jobs.postpone(self.connection, held, code="away", error="x", delay_seconds=delay)
            return
        jobs.postpone(self.connection, held, code="away", error="x", delay_seconds=delay)
        job = self.model[held.job_id]
        job.attempts -= 1
        if job.rerun_kind is not None:
            job.run_again(self.now + delay, done=False)
        else:
            job.wait("queued", self.now + delay)

    # What time and the scheduler do

    @rule(steps=st.sampled_from([1, 3]), scheduled=st.booleans(), delay=st.sampled_from([0, 2]))
    def time_passes(self, steps: int, scheduled: bool, delay: int) -> None:
        self.connection.execute(_SHIFT, {"by": steps * STEP})
        self.now += steps * STEP
        if scheduled:
            self._take_back(delay)
            assert jobs.due(self.connection, cap=100) == len(self._due())
            if not self._due():
                assert jobs.claim(self.connection, worker=WORKERS[0], lease_seconds=LEASE, limit=3) == []

    def _take_back(self, steps: int) -> None:
        delay = _span(steps)
        over = {job.job_id for job in self.model.values() if job.state == "running" and job.lease_until < self.now}
        found = set()
        while True:
            with self.connection.transaction():  # one by one, as everywhere here
                for job in jobs.expired(self.connection, limit=1):
                    found.add(job.job_id)
                    assert job.job_id in over, "a lease that runs is not taken away"
                    assert self._fail(job, permanent=False, delay=delay).value == self._expected_failure(job, False, delay)
                    break
                else:
                    break
        assert found == over, "one that ran out is"

    # What people do

    @precondition(lambda self: self.model)
    @rule(data=st.data(), cancels=st.booleans())
    def a_person_cancels_or_tries_again(self, data: st.DataObject, cancels: bool) -> None:
        wanted = self._some_jobs(data)
        if cancels:
            self._cancel(wanted)
        else:
            self._try_again(wanted)

    def _cancel(self, wanted: Sequence[ModelJob]) -> None:
        live = [job for job in wanted if job.live]
        assert control.cancel(self.connection, [job.job_id for job in wanted]) == len(live)
        for job in live:
            job.end("cancelled", self.now)
            self.asked.pop(job.document_id, None)

    def _try_again(self, wanted: Sequence[ModelJob]) -> None:
        can: set[uuid.UUID] = set()
        # Document by document: jobs that are queued in one statement are due alike, and no run could be repeated.
        for document in {job.document_id: None for job in wanted}:
            named = [job for job in wanted if job.document_id == document]
            live = self._live(document)
            if any(job.state in ("dead", "retrying", "cancelled") and live in (None, job) for job in named):
                can.add(document)
            assert control.retry(self.connection, [job.job_id for job in named]) == (document in can)
        # Which of several ended jobs of a document goes on is the table's choice; never more than one.
        revived = {row["job_id"]: row for row in self._rows() if row["state"] == "queued"}
        for document in can:
            (job,) = [
                self.model[job_id]
                for job_id, row in revived.items()
                if row["document_id"] == document and job_id in {one.job_id for one in wanted}
            ]
            assert revived[job.job_id]["attempts"] == 0
            job.attempts, job.rerun_kind = 0, None
            job.wait("queued", self.now)

    @rule(steps=st.sampled_from([0, 2]))
    def a_person_purges(self, steps: int) -> None:
        age = _span(steps)
        old = [job for job in self.model.values() if not job.live and job.ended_at + age <= self.now]
        # Half a step earlier, so that jobs that ended in this very moment count as old too.
        removed = control.purge(self.connection, states=list(JobState), older_than_seconds=age - (STEP / 4 if not steps else 0.0))
        assert removed == len(old)
        for job in old:
            del self.model[job.job_id]

    # What must hold

    @invariant()
    def all_holds(self) -> None:
        rows = {row["job_id"]: row for row in self._rows()}
        self._is_the_model(rows)
        self._keeps_to_the_limits()
        self._will_do_what_was_asked_for(list(rows.values()))

    def _is_the_model(self, rows: Mapping[uuid.UUID, dict[str, Any]]) -> None:
        assert set(rows) == set(self.model)
        for job_id, job in self.model.items():
            row = rows[job_id]
            found = (row["state"], row["kind"], row["attempts"], row["lease_token"])
            assert found == (job.state, job.kind, job.attempts, job.token)
            if job.state == "running":
                assert (row["rerun"], row["rerun_kind"]) == (job.rerun_kind is not None, job.rerun_kind)
            elif job.state in WAITING:
                assert abs(row["due_in"] - (job.run_at - self.now)) < STEP / 4

    def _keeps_to_the_limits(self) -> None:
        live = [job.document_id for job in self.model.values() if job.live]
        assert len(live) == len(set(live))
        assert all(0 <= job.attempts <= ATTEMPTS for job in self.model.values())
        assert all(job.attempts >= 1 for job in self.model.values() if job.state == "running")

    def _will_do_what_was_asked_for(self, rows: Sequence[dict[str, Any]]) -> None:
        for document, kind in self.asked.items():
            live = [row for row in rows if row["document_id"] == document and row["state"] in LIVE]
            note(f"asked: {kind}, live: {live}")
            assert len(live) == 1
            (row,) = live
            next_kind = row["rerun_kind"] if row["state"] == "running" else row["kind"]
            assert next_kind == kind or (kind, next_kind) == ("rollback", "ingest"), "an ingest does a rollback too"

    # Help

    def _due(self) -> set[uuid.UUID]:
        return {job.job_id for job in self.model.values() if job.state in WAITING and job.run_at <= self.now}

    def _rows(self) -> Iterator[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            yield from cursor.execute(_ROWS).fetchall()

    def _live(self, document: uuid.UUID) -> ModelJob | None:
        return next((job for job in self.model.values() if job.document_id == document and job.live), None)

    def _holds(self, held: ClaimedJob) -> bool:
        job = self.model.get(held.job_id)
        return job is not None and job.state == "running" and job.token == held.lease_token

    def _fail(self, held: ClaimedJob, *, permanent: bool, delay: float) -> JobState:
        return jobs.fail(self.connection, held, code="away", error="x", permanent=permanent, delay_seconds=delay)

    def _expected_failure(self, held: ClaimedJob, permanent: bool, delay: float) -> str:
        job = self.model[held.job_id]
        if job.rerun_kind is not None:
            job.run_again(self.now, done=False)
        elif permanent or job.attempts >= ATTEMPTS:
            job.end("dead", self.now)
        else:
            job.wait("retrying", self.now + delay)
        return job.state

    def _some_jobs(self, data: st.DataObject) -> list[ModelJob]:
        known = list(self.model)
        places = data.draw(st.sets(st.integers(0, len(known) - 1), min_size=1, max_size=3))
        return [self.model[known[place]] for place in sorted(places)]


def test_the_job_table_does_what_the_model_does(database: Database) -> None:
    with open_corpus(database.url) as corpus:

        class Machine(JobTable):
            pass

        Machine.corpus = corpus
        Machine.documents = [corpus.ask(path) for path in PATHS]
        run_state_machine_as_test(Machine, settings=machine_settings(examples=100, steps=30))
