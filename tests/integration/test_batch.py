"""Jobs that are claimed together: whose turn it is, what they share, and that one which fails costs the others nothing."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import Connection

from ingest_worker.batch import LARGE_BYTES, Ended, Pace, run_jobs
from ingest_worker.catalogue import fetches, portions
from ingest_worker.catalogue.documents import Observed, request_ingest
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source
from ingest_worker.jobs import control
from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.held import Held
from ingest_worker.jobs.lane import Lane
from ingest_worker.jobs.table import ClaimedJob, LeaseLost
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Role, Vectors
from shared.errors import PermanentError, Postponed, TransientError
from tests.conftest import Database
from tests.corpus import unit_vector

DIMENSION = 8


class CountingEmbedder:
    """A vector for each text, made of its words alone; counts calls and fails as it is told."""

    fingerprint = Fingerprint(provider="test", model="counting", dimension=DIMENSION)

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.refuse: Callable[[Sequence[str]], Exception | None] = lambda texts: None

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        self.calls.append(len(texts))
        error = self.refuse(texts)
        if error is not None:
            raise error
        return np.stack([unit_vector(text, DIMENSION) for text in texts])

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Folder sources whose jobs are claimed and run as a worker does it."""

    root: Path
    connection: Connection[Any]
    tools: Tools
    embedder: CountingEmbedder

    def ask(self, *names: str, source: str = "inbox") -> None:
        """Ask for these files in one go, making those that are not there."""
        (self.root / source).mkdir(exist_ok=True)
        for name in names:
            path = self.root / source / name
            if not path.exists():
                path.write_text(f"# {name}\n\nThe text of {name} in {source}.\n")
        with self.connection.transaction():
            made = ensure_source(self.connection, source, kind="folder", namespace="default", root=self.root / source)
            number = ensure_namespace(self.connection, "default")
            request_ingest(self.connection, made, number, [Observed(name=name) for name in names])

    def claim(self, limit: int = 16) -> list[ClaimedJob]:
        return jobs.claim(self.connection, worker="host:1:2", lease_seconds=60, limit=limit)

    def run(self, claimed: Sequence[ClaimedJob], *, enough: Callable[[], bool] = lambda: False) -> list[Ended]:
        return list(run_jobs(claimed, self.tools, Pace(), enough=enough))

    def path(self, job: ClaimedJob) -> str:
        row = self.connection.execute("SELECT path FROM docwell.document WHERE document_id = %s", (job.document_id,)).fetchone()
        assert row is not None
        return str(row[0])

    def outcomes(self, ended: Sequence[Ended]) -> dict[str, str]:
        """By path: the result, or the class of what stopped the job."""
        return {
            self.path(one.job): one.outcome.result if isinstance(one.outcome, JobReport) else type(one.outcome).__name__
            for one in ended
        }

    def searchable(self) -> set[str]:
        return {row[0] for row in self.connection.execute("SELECT path FROM docwell.document WHERE searchable").fetchall()}


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def desk(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Desk]:
    embedder = CountingEmbedder()
    with (
        open_pool(database.url, name="test", autocommit=True) as pool,
        connect(database.url, autocommit=True) as connection,
    ):
        tools = Tools(settings=Settings(watch_settle_seconds=0), pool=pool, cage=cage, embedder=lambda: embedder)
        yield Desk(root=tmp_path, connection=connection, tools=tools, embedder=embedder)


def test_documents_that_come_together_share_a_call_to_the_embedder(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")
    ended = desk.run(desk.claim())
    assert desk.outcomes(ended) == {"a.md": "indexed", "b.md": "indexed", "c.md": "indexed"}
    assert desk.embedder.calls == [3]
    assert desk.searchable() == {"a.md", "b.md", "c.md"}


def test_a_passage_that_two_of_them_hold_is_embedded_once_and_served_for_both(desk: Desk) -> None:
    (desk.root / "inbox").mkdir()
    for name in ("a.md", "b.md"):
        (desk.root / "inbox" / name).write_text("# Same\n\nThe very same words.\n")
    desk.ask("a.md", "b.md")
    reports = [one.outcome for one in desk.run(desk.claim())]
    assert [one.embedded for one in reports if isinstance(one, JobReport)] == [1, 0]
    assert desk.searchable() == {"a.md", "b.md"}
    row = desk.connection.execute("SELECT count(*), sum(chunk_count) FROM docwell.audience").fetchone()
    assert row == (1, 1), "the statistics count the passage once"


def test_a_damaged_file_fails_alone(desk: Desk) -> None:
    desk.ask("a.md", "c.md")
    (desk.root / "inbox" / "b.pdf").write_bytes(b"%PDF-1.7\nnothing of a PDF follows")
    desk.ask("b.pdf")
    assert desk.outcomes(desk.run(desk.claim())) == {"a.md": "indexed", "c.md": "indexed", "b.pdf": "Unreadable"}


def test_a_job_that_was_cancelled_on_the_way_stops_none_of_the_others(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")
    claimed = desk.claim()
    doomed = next(job for job in claimed if desk.path(job) == "b.md")

    def cancel(texts: Sequence[str]) -> None:
        control.cancel(desk.connection, [doomed.job_id])

    desk.embedder.refuse = cancel
    ended = desk.run(claimed)
    assert desk.outcomes(ended) == {"a.md": "indexed", "b.md": "LeaseLost", "c.md": "indexed"}
    assert desk.searchable() == {"a.md", "c.md"}
    assert isinstance(next(one.outcome for one in ended if one.job is doomed), LeaseLost)


def test_a_text_that_the_embedder_refuses_fails_its_document_only(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")

    def refuse(texts: Sequence[str]) -> Exception | None:
        return PermanentError("It will not have this.", code="refused") if any("b.md" in text for text in texts) else None

    desk.embedder.refuse = refuse
    assert desk.outcomes(desk.run(desk.claim())) == {"a.md": "indexed", "b.md": "PermanentError", "c.md": "indexed"}


def test_an_outage_of_the_embedder_is_met_once_for_all_of_them(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")
    desk.embedder.refuse = lambda texts: TransientError("It is away.", code="embedder_unavailable")
    assert set(desk.outcomes(desk.run(desk.claim())).values()) == {"Outage"}
    assert desk.embedder.calls == [3, 1], "the second asks whether it takes any other text"


def test_a_text_that_the_embedder_cannot_answer_now_is_no_outage_while_it_takes_others(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")

    def fail(texts: Sequence[str]) -> Exception | None:
        return TransientError("HTTP 500", code="embedding_unavailable") if any("b.md" in text for text in texts) else None

    desk.embedder.refuse = fail
    assert desk.outcomes(desk.run(desk.claim())) == {"a.md": "indexed", "b.md": "TransientError", "c.md": "indexed"}


def test_what_was_not_begun_when_time_is_up_goes_back_without_a_lost_attempt(desk: Desk) -> None:
    desk.ask("a.md", "b.md")
    claimed = desk.claim()
    assert desk.run(claimed, enough=lambda: True) == []
    assert jobs.hand_back(desk.connection, "host:1:2", [claimed[0].job_id]) == 1
    rows = desk.connection.execute("SELECT job_id, state, attempts FROM docwell.job").fetchall()
    assert set(rows) == {(claimed[0].job_id, "queued", 0), (claimed[1].job_id, "running", 1)}


def test_what_could_not_be_fetched_ends_though_fetching_took_all_the_time(desk: Desk) -> None:
    desk.ask("a.md", "b.md")
    claimed = {desk.path(job): job for job in desk.claim()}
    with desk.connection.transaction():
        url, document_id = "https://docs.example.com/b.md", claimed["b.md"].document_id
        fetches.ask(desk.connection, document_id, url, title=None, media_type=None, source_modified=None)
    assert desk.outcomes(desk.run(list(claimed.values()), enough=lambda: True))["b.md"] == "PermanentError"


def test_a_single_note_goes_before_what_came_in_bulk(desk: Desk) -> None:
    desk.ask(*(f"bulk{number:02}.md" for number in range(30)))
    desk.ask("note.md")
    assert [desk.path(job) for job in desk.claim()] == ["note.md"]
    assert len(desk.claim()) == 16


def test_bulk_does_not_wait_for_ever_behind_single_notes(desk: Desk) -> None:
    desk.ask(*(f"bulk{number:02}.md" for number in range(30)))
    desk.connection.execute("UPDATE docwell.job SET place = place - make_interval(secs => %s)", (jobs.BULK_HANDICAP_SECONDS + 1,))
    desk.ask("note.md")
    assert all(desk.path(job).startswith("bulk") for job in desk.claim())


def test_sources_take_turns_whatever_the_length_of_their_queues(desk: Desk) -> None:
    desk.ask(*(f"{number:02}.md" for number in range(60)))
    desk.ask(*(f"{number:02}.md" for number in range(40)), source="team")
    order = []
    for _ in range(4):
        claimed = desk.claim()
        order.append({row[0] for row in _sources(desk, claimed)})
        desk.run(claimed)
    assert order == [{"inbox"}, {"team"}, {"inbox"}, {"team"}]


def _sources(desk: Desk, claimed: Sequence[ClaimedJob]) -> list[tuple[str]]:
    return desk.connection.execute(
        "SELECT s.name FROM docwell.job JOIN docwell.source s USING (source_id) WHERE job_id = ANY (%s)",
        ([job.job_id for job in claimed],),
    ).fetchall()


def test_a_source_whose_jobs_run_already_waits_for_the_others(desk: Desk) -> None:
    desk.ask(*(f"{number:02}.md" for number in range(60)))
    assert {row[0] for row in _sources(desk, desk.claim())} == {"inbox"}
    desk.ask("x.md", source="team")
    desk.connection.execute("UPDATE docwell.source SET turn_at = now() WHERE name = 'team'")
    assert {row[0] for row in _sources(desk, desk.claim())} == {"team"}


def test_a_job_that_was_tried_before_is_tried_alone(desk: Desk) -> None:
    desk.ask("a.md", "b.md", "c.md")
    first = desk.claim(limit=1)[0]
    jobs.fail(desk.connection, first, code="worker_lost", error="gone", permanent=False, delay_seconds=0)
    desk.connection.execute("UPDATE docwell.job SET place = '-infinity' WHERE job_id = %s", (first.job_id,))
    assert [job.job_id for job in desk.claim()] == [first.job_id]
    assert first.job_id not in {job.job_id for job in desk.claim()}


def test_only_as_many_passages_are_published_at_once_as_take_about_a_second(desk: Desk) -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    assert pace.most_chunks == 32

    def wait(texts: Sequence[str]) -> None:
        now[0] += 5.0

    desk.embedder.refuse = wait
    desk.ask("a.md")
    list(run_jobs(desk.claim(), desk.tools, pace, enough=lambda: False))
    assert pace.most_chunks == 16
    desk.embedder.refuse = lambda texts: None
    desk.ask("b.md")
    list(run_jobs(desk.claim(), desk.tools, pace, enough=lambda: False))
    assert pace.most_chunks == 32


def test_a_large_file_keeps_none_waiting_that_were_claimed_with_it(desk: Desk) -> None:
    (desk.root / "inbox").mkdir(exist_ok=True)
    (desk.root / "inbox" / "large.txt").write_text("word " * (LARGE_BYTES // 4))
    desk.ask("large.txt")
    desk.ask("a.md", "b.md")
    times = iter([False])
    ended = desk.run(desk.claim(), enough=lambda: next(times, True))
    done = [desk.path(one.job) for one in ended]
    assert (set(done[:-1]), done[-1]) == ({"a.md", "b.md"}, "large.txt"), "and it is done though time is up"


def _make_large(desk: Desk, *names: str, size: int = LARGE_BYTES, words: int = 1_000_000) -> None:
    (desk.root / "inbox").mkdir(exist_ok=True)
    for name in names:
        (desk.root / "inbox" / name).write_text(" ".join(f"{name}{number % words:06}" for number in range(size // 15)))
    desk.ask(*names)


def test_what_waits_behind_a_large_file_is_done_by_others_while_it_is_embedded(desk: Desk) -> None:
    _make_large(desk, "large1.txt", "large2.txt", words=10)
    desk.ask("a.md")
    claimed = desk.claim()
    held = Held(claimed, pool=desk.tools.pool, worker="host:1:2", lease_seconds=60)
    elsewhere: list[ClaimedJob] = []

    def give_back(texts: Sequence[str]) -> None:
        if not any("a.md" in text for text in texts):
            held.give_back()
            elsewhere.extend(jobs.claim(desk.connection, worker="host:3:4", lease_seconds=60, limit=16))

    desk.embedder.refuse = give_back
    done = [one for one in run_jobs(claimed, desk.tools, Pace(), enough=lambda: False, take=held.begin) if held.end(one.job)]
    assert desk.path(done[0].job) == "a.md"
    assert desk.searchable() == {"a.md", desk.path(done[1].job)}
    assert [(job.attempts, job.job_id) for job in elsewhere] == [
        (1, ({job.job_id for job in claimed} - {one.job.job_id for one in done}).pop())
    ]


def test_what_is_not_begun_goes_back_in_time_whatever_the_one_that_is_does(desk: Desk) -> None:
    desk.ask("a.md", "b.md")
    first, second = desk.claim()
    held = Held([first, second], pool=desk.tools.pool, worker="host:1:2", lease_seconds=60)
    assert held.begin(first)
    until = time.monotonic() + 10
    with held.kept(patience_seconds=0):
        while held.begin(second) and time.monotonic() < until:
            pass
    rows = desk.connection.execute("SELECT job_id, state, attempts FROM docwell.job").fetchall()
    assert set(rows) == {(first.job_id, "queued", 0), (second.job_id, "queued", 0)}


def test_a_document_that_takes_minutes_waits_while_others_that_do_leave_no_room(desk: Desk) -> None:
    _make_large(desk, "large.txt", size=65_536)
    claimed = desk.claim()
    pace = Pace()
    pace.per_second = 1.0  # a slow model
    lane, of_others = (Lane(desk.tools.pool, processes=2) for _ in range(2))
    with of_others.place() as is_free:
        for _ in range(2):  # the second time it is known, and not parsed
            (ended,) = run_jobs(claimed, desk.tools, pace, enough=lambda: False, lane=lane)
            assert isinstance(ended.outcome, Postponed)
            assert ended.outcome.code == "others_take_long"
    assert is_free
    assert desk.embedder.calls == []
    (ended,) = run_jobs(claimed, desk.tools, pace, enough=lambda: False, lane=lane)
    assert desk.outcomes([ended]) == {"large.txt": "indexed"}
    with of_others.place() as is_free:
        assert is_free, "the place is free again"


def test_the_pace_is_that_of_the_embedder_not_of_the_largest_document(desk: Desk) -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])

    def wait(texts: Sequence[str]) -> None:
        now[0] += len(texts) / pace.most_chunks

    desk.embedder.refuse = wait
    _make_large(desk, "large.txt", size=65_536)
    list(run_jobs(desk.claim(), desk.tools, pace, enough=lambda: False))
    assert desk.embedder.calls[0] > 2 * pace.most_chunks
    assert pace.most_chunks == 32
    assert pace.per_second == pytest.approx(32)


def test_a_document_of_very_many_passages_is_written_in_portions(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "MOST_ROWS", 50)
    _make_large(desk, "large.txt", size=65_536)
    (ended,) = desk.run(desk.claim())
    assert isinstance(ended.outcome, JobReport)
    tables = ("chunk", "chunk_terms", "vector_1")
    assert {row for table in tables for row in desk.connection.execute(f"SELECT count(*) FROM docwell.{table}")} == {
        (ended.outcome.chunks,)
    }
    assert ended.outcome.chunks > 60


def test_a_document_erased_under_a_running_job_is_a_lost_lease(desk: Desk) -> None:
    desk.ask("a.md")
    claimed = desk.claim()
    desk.connection.execute("DELETE FROM docwell.document WHERE document_id = %s", (claimed[0].document_id,))
    (ended,) = desk.run(claimed)
    assert isinstance(ended.outcome, LeaseLost)
    assert isinstance(ended.job.job_id, uuid.UUID)
