"""Workers that are killed, deaf or cut off: their jobs go on, and a poisoned one ends with its cause."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
from celery import Celery

from infra.local.redis import EmbeddedRedis
from ingest_worker.jobs.broker import Broker
from ingest_worker.jobs.celery_app import make_app
from ingest_worker.jobs.identity import is_gone, neighbours, worker_name
from ingest_worker.jobs.keeper import EXIT_STATUS, Deafness
from ingest_worker.jobs.wake import celery_wake
from ingest_worker.jobs.worker import Worker
from shared.config import Settings, load_settings
from tests.conftest import Database, passable_folder
from tests.faults.working import ROOT, HeldEmbedder, Works, held_embedder, open_works
from tests.folders import eventually

SOON = 20.0
"""Seconds within which something happens on a loaded machine that takes one on an idle one; leases here run for 600."""


@pytest.fixture
def embedder() -> Iterator[HeldEmbedder]:
    with held_embedder() as found:
        yield found


@pytest.fixture
def works(database: Database, tmp_path: Path, redis_url: str, embedder: HeldEmbedder) -> Iterator[Works]:
    with open_works(database, tmp_path, redis_url, embedder) as found:
        yield found


@dataclass(frozen=True, kw_only=True)
class Lasting:
    """A worker that outlives what is done to it here, with a Redis that may be broken."""

    works: Works
    embedder: HeldEmbedder
    redis: EmbeddedRedis


@pytest.fixture(scope="module")
def lasting(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lasting]:
    folder = tmp_path_factory.mktemp("lasting")
    with passable_folder() as home, held_embedder() as embedder:
        server = EmbeddedRedis(home / "home")
        server.start()
        try:
            with open_works(module_database, folder, server.url, embedder) as works, works.worker():
                yield Lasting(works=works, embedder=embedder, redis=server)
        finally:
            server.stop()


@pytest.fixture
def own_redis() -> Iterator[EmbeddedRedis]:
    """A Redis that this test may break."""
    with passable_folder() as folder:
        server = EmbeddedRedis(folder / "home")
        server.start()
        try:
            yield server
        finally:
            server.stop()


def test_work_goes_on_while_redis_is_away_and_when_nobody_was_woken(lasting: Lasting) -> None:
    works = lasting.works
    works.ask(unwoken="nobody was told of this")
    eventually(lambda: works.states()["unwoken.md"] == "indexed", within=SOON)
    lasting.redis.stop()
    works.ask(during="Redis is away")
    eventually(lambda: works.states()["during.md"] == "indexed", within=SOON)
    lasting.redis.start()


def test_the_job_of_a_process_that_is_killed_is_taken_back_at_once_and_names_the_signal(lasting: Lasting) -> None:
    works = lasting.works
    lasting.embedder.hold()
    works.ask(killed="its process dies")
    eventually(lasting.embedder.asked.is_set)
    os.kill(works.child_of("killed"), signal.SIGKILL)
    eventually(lambda: works.job("killed")["state"] == "retrying", within=SOON)
    job = works.job("killed")
    assert (job["attempts"], job["error_code"], job["document"]) == (1, "worker_lost", "queued")
    assert "SIGKILL" in job["last_error"]
    lasting.embedder.gate.set()
    eventually(lambda: works.hurry() or works.states()["killed.md"] == "indexed", within=SOON)


def test_a_job_that_the_database_left_in_the_middle_does_not_wait_for_its_lease(lasting: Lasting) -> None:
    works = lasting.works
    lasting.embedder.hold()
    works.ask(cut="its connection goes")
    eventually(lasting.embedder.asked.is_set)
    works.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'docwell-worker' AND datname = current_database()"
    )
    lasting.embedder.gate.set()
    eventually(lambda: works.hurry() or works.states()["cut.md"] == "indexed", within=SOON)
    assert works.job("cut")["attempts"] == 2


def test_a_document_that_kills_its_worker_each_time_is_dead_with_its_cause_and_takes_no_other_along(
    database: Database, tmp_path: Path, redis_url: str, embedder: HeldEmbedder
) -> None:
    others = [f"innocent{number}" for number in range(8)]
    with open_works(database, tmp_path, redis_url, embedder, DOCWELL_WORKER_CONCURRENCY="2") as works:
        works.attempts = 3
        embedder.on_text = lambda text: os.kill(works.child_of("poison"), signal.SIGSEGV) if "poison" in text else None
        works.ask(poison="this is poison", **{name: f"{name} does no harm" for name in others})
        with works.worker():
            eventually(lambda: works.hurry() or works.job("poison")["state"] == "dead", within=3 * SOON)
            eventually(lambda: works.hurry() or all(works.states()[f"{name}.md"] == "indexed" for name in others), within=SOON)
        job = works.job("poison")
        assert (job["attempts"], job["document"]) == (3, "failed")
        assert "SIGSEGV" in job["last_error"]
        assert {works.job(name)["state"] for name in others} == {"succeeded"}


def test_what_a_worker_held_that_was_killed_whole_goes_on_when_the_next_one_starts(works: Works, embedder: HeldEmbedder) -> None:
    embedder.hold()
    with works.worker() as first:
        works.ask(a="some text")
        eventually(embedder.asked.is_set)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert works.job("a")["state"] == "running"
    embedder.gate.set()
    with works.worker():
        eventually(lambda: works.hurry() or works.states()["a.md"] == "indexed", within=SOON)
        assert works.job("a")["attempts"] == 2


def test_a_stopped_worker_hands_its_job_back_and_no_attempt_is_counted(works: Works, embedder: HeldEmbedder) -> None:
    embedder.hold()
    with works.worker() as process:
        works.ask(a="some text")
        eventually(embedder.asked.is_set, within=SOON)
        process.send_signal(signal.SIGQUIT)
        process.wait(SOON)
        job = works.job("a")
        assert (job["state"], job["attempts"], job["document"]) == ("queued", 0, "queued")


# What is away, and is no document's fault


@pytest.fixture
def alone(works: Works) -> Iterator[Worker]:
    """A worker in this process, which nobody wakes."""
    with closing(Worker(load_settings(works.environment)[0])) as worker:
        yield worker


def test_an_outage_of_the_embedder_costs_no_document_an_attempt_however_often_it_is_met(
    works: Works, embedder: HeldEmbedder, alone: Worker
) -> None:
    # A pause that it asked for itself would be kept when it is back.
    embedder.status, embedder.limits = 503, lambda _texts: True
    works.ask(a="some text", b="some other text")
    for _ in range(6):
        assert alone.work() == 2
        works.hurry()
    job = works.job("a")
    assert (job["state"], job["attempts"], job["error_code"], job["document"]) == ("queued", 0, "embedding_unavailable", "queued")
    embedder.limits = lambda _texts: False
    assert alone.work() == 2
    assert works.states() == {"a.md": "indexed", "b.md": "indexed"}


def test_a_document_whose_text_alone_is_not_embedded_ends_dead_and_the_others_are_indexed(
    works: Works, embedder: HeldEmbedder, alone: Worker
) -> None:
    # No rate limit, which would be meant for everybody.
    embedder.status, embedder.limits = 503, lambda texts: any("poison" in text for text in texts)
    works.ask(a="some text", poison="this is poison", b="some other text")
    for _ in range(5):
        alone.work()
        works.hurry()
    assert works.states() == {"a.md": "indexed", "poison.md": "failed", "b.md": "indexed"}
    assert (works.job("poison")["state"], works.job("poison")["attempts"]) == ("dead", 5)


def test_jobs_of_a_folder_that_is_not_mounted_wait_for_it(works: Works, alone: Worker) -> None:
    works.ask(a="some text")
    (works.folder / "inbox").rename(works.folder / "elsewhere")
    for _ in range(6):
        assert alone.work() == 1
        works.hurry()
    assert (works.job("a")["attempts"], works.job("a")["error_code"]) == (0, "root_missing")
    (works.folder / "elsewhere").rename(works.folder / "inbox")
    alone.work()
    assert works.states() == {"a.md": "indexed"}


# A consumer that is up and takes nothing


def test_messages_that_wait_while_a_worker_with_time_takes_none_mean_that_it_is_deaf() -> None:
    deafness = Deafness(patience=30)
    assert not deafness.look(0, waiting=2, taken=7, busy=False)
    assert not deafness.look(1, waiting=2, taken=7, busy=False)
    assert not deafness.look(30, waiting=2, taken=7, busy=False)
    assert deafness.look(31, waiting=2, taken=7, busy=False)


@pytest.mark.parametrize(
    "sign",
    [
        {"waiting": 0, "taken": 7, "busy": False},
        {"waiting": None, "taken": 7, "busy": False},
        {"waiting": 2, "taken": 8, "busy": False},
        {"waiting": 2, "taken": 7, "busy": True},
    ],
    ids=["nothing waits", "Redis is away", "it took one", "it is busy"],
)
def test_any_sign_of_life_begins_the_patience_anew(sign: dict[str, int | None]) -> None:
    deafness = Deafness(patience=30)
    deafness.look(0, waiting=2, taken=7, busy=False)
    deafness.look(1, waiting=2, taken=7, busy=False)
    assert not deafness.look(40, **sign)  # type: ignore[arg-type]
    assert not deafness.look(41, waiting=2, taken=8, busy=False)
    assert not deafness.look(60, waiting=2, taken=8, busy=False)


def test_a_deaf_worker_ends_itself_and_hands_its_jobs_back(works: Works) -> None:
    works.ask(a="some text")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults.deaf"],
        env=works.environment,
        cwd=ROOT,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == EXIT_STATUS, ended.stderr
    assert "consumer_deaf" in ended.stdout + ended.stderr
    job = works.job("a")
    assert (job["state"], job["attempts"]) == ("queued", 0)


# Those who wake


@pytest.fixture
def app(own_redis: EmbeddedRedis) -> Iterator[Celery]:
    with make_app(Settings(redis_url=own_redis.url)) as found:  # type: ignore[arg-type]
        yield found


def test_messages_do_not_pile_up_while_no_worker_takes_them(app: Celery) -> None:
    wake = celery_wake(app, most=4)
    for _ in range(50):
        wake(1000)
    broker = Broker(app)
    assert broker.waiting() == 4
    broker.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["is away", "hangs"])
def test_who_wakes_never_waits_long_for_a_redis_that(how: signal.Signals, own_redis: EmbeddedRedis, app: Celery) -> None:
    wake = celery_wake(app, most=4)
    wake(1)
    pid = int(own_redis.socket.with_name("redis.pid").read_text())
    os.kill(pid, how)
    with structlog.testing.capture_logs() as said:
        began = time.monotonic()
        for _ in range(20):
            wake(1)
        assert time.monotonic() - began < 5
    assert [one["event"] for one in said] == ["broker_unreachable"]
    if how is signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)


# Who is who


def test_only_a_neighbour_whose_main_process_is_no_more_counts_as_gone(database: Database) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_gone(worker_name(ended.pid, 17))
    assert not is_gone(worker_name(os.getppid(), 17))
    assert is_gone(worker_name(os.getpid(), 17)), "of a former life: this one has no children yet"
    assert not is_gone(f"elsewhere:4026531836:{ended.pid}:17")
    assert worker_name(5).startswith(neighbours())


# What a file can do to the parser


@pytest.mark.parametrize(
    ("settings", "file", "data", "code", "said"),
    [
        ({"DOCWELL_PARSE_TIMEOUT_SECONDS": "1"}, "slow", b"lorem ipsum dolor " * 1_000_000, "parser_timeout", "Split it"),
        ({"DOCWELL_PARSE_MEMORY_BYTES": str(400 * 1024**2)}, "large", b"lorem ipsum " * 1_600_000, "parser_memory", "400 MiB"),
    ],
    ids=["time", "memory"],
)
def test_a_file_beyond_a_limit_is_dead_with_the_limit_named_and_the_next_one_is_read(
    database: Database,
    tmp_path: Path,
    redis_url: str,
    embedder: HeldEmbedder,
    settings: dict[str, str],
    file: str,
    data: bytes,
    code: str,
    said: str,
) -> None:
    with open_works(database, tmp_path, redis_url, embedder, **settings) as works:
        works.ask(**{file: data.decode(), "next": "a small one"})
        with closing(Worker(load_settings(works.environment)[0])) as worker:
            assert worker.work() == 2
        job = works.job(file)
        assert (job["state"], job["attempts"], job["error_code"], job["document"]) == ("dead", 1, code, "failed")
        assert said in job["last_error"]
        assert works.states()["next.md"] == "indexed"
