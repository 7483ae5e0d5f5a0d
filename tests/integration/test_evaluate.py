"""`docwell eval` as people and gates run it: on the live corpus, and with a corpus of a set's own that leaves no trace."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from psycopg import Connection
from typer.testing import CliRunner, Result

from infra.cli import make_app
from infra.evaluate.loading import MARK, Loader, remove_leftovers
from ingest_worker.batch import Pace, run_jobs
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import Tools
from query_server.evaluate.sets import CorpusDocument
from shared.config import Settings, load_settings
from shared.database import connect, open_pool
from shared.embedding.service import EmbedderService
from shared.errors import PermanentError, ServiceUnavailable
from tests.asking import DIMENSION, MODEL, WordEmbedder, add
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk

Run = Callable[..., Result]
Owner = Callable[[], AbstractContextManager[Connection[Any]]]


def _until(condition: Callable[[], object], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def embedder_url() -> Iterator[str]:
    """An embedder process's service with the embedder that knows words."""
    service = EmbedderService(WordEmbedder)
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        _until(lambda: server.started)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        _until(lambda: httpx.get(f"{url}/readyz").is_success)
        yield url
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture
def environment(database: Database, embedder_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "DOCWELL_DATABASE_URL": database.url,
        "DOCWELL_QUERY_DATABASE_URL": database.reader_url,
        "DOCWELL_REDIS_URL": f"unix://{tmp_path}/none.sock",
        "DOCWELL_EMBEDDER_URL": embedder_url,
        "DOCWELL_HOME": str(tmp_path / "home"),
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`docwell …` in an empty folder, on this test's database and a broker that is away."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return lambda *arguments: CliRunner().invoke(make_app(), list(map(str, arguments)))


@contextmanager
def working(database: Database, cage: ParserCage) -> Iterator[None]:
    """A worker: it runs what is due, until the block ends."""
    ends = threading.Event()

    def work() -> None:
        with open_pool(database.url, name="test") as pool, connect(database.url, autocommit=True) as connection:
            tools = Tools(settings=Settings(), pool=pool, cage=cage, embedder=WordEmbedder)
            while not ends.wait(0.02):
                for _ in run_jobs(
                    jobs.claim(connection, worker="test", lease_seconds=60, limit=16), tools, Pace(), enough=ends.is_set
                ):
                    pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture
def live(corpus: Corpus, tmp_path: Path) -> Path:
    """A live corpus of two documents, and a set about it."""
    add(corpus, "docs/billing.md", text_chunk("Refunds are paid within five days.", section=("Billing", "Refunds")))
    add(corpus, "docs/travel.md", text_chunk("Trains come before flights.", section=("Travel",)))
    (tmp_path / "mine.yaml").write_text(
        "queries:\n"
        "  - query: how fast are refunds paid?\n    path: docs/billing.md\n    section: refunds\n    category: money\n"
        "  - query: trains or flights\n    path: travel.md\n    category: trips\n"
        "  - query: trains before flights come where\n    path: docs/billing.md\n    category: wrong on purpose\n"
        "  - query: boiling mercury\n    category: off topic\n",
        encoding="utf-8",
    )
    return tmp_path / "mine.yaml"


def test_a_live_set_is_measured_and_written_down(run: Run, live: Path, tmp_path: Path) -> None:
    done = run("eval", live, "--compare", "--out", "out", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    printed = json.loads(done.stdout)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert printed == {**summary, "out": "out"}
    assert (summary["set"], summary["questions"], summary["unanswerable"]) == ("mine", 4, 1)
    assert summary["hit@5"] == summary["legs"]["semantic"]["hit@5"] == pytest.approx(1.0)
    assert summary["mrr"] == pytest.approx((1 + 1 + 1 / 2) / 3)
    assert set(summary["legs"]) == {"keyword", "semantic"}
    rows = {row["query"]: row for row in json.loads((tmp_path / "out" / "per-query.json").read_text())["queries"]}
    wrong = rows["trains before flights come where"]
    assert (wrong["hybrid"]["rank"], wrong["instead"]["document"], wrong["category"]) == (2, "docs/travel.md", "wrong on purpose")
    assert wrong["hybrid"]["metrics"]["mrr"] == 0.5
    assert (tmp_path / "out" / "report.md").read_text().startswith("# Evaluation of mine")
    assert (tmp_path / "out" / "hits.svg").read_text().startswith("<svg")


def test_the_gate_decides_the_exit_code(run: Run, live: Path) -> None:
    assert run("eval", live, "--min-hit-rate", "1.0").exit_code == 0
    live.write_text(live.read_text().replace("docs/billing.md\n    category: wrong", "docs/none.md\n    category: wrong"))
    failed = run("eval", live, "--min-hit-rate", "0.7")
    assert failed.exit_code == 1
    assert "hit@5 is 0.6667, below the gate of 0.7" in failed.stderr
    assert run("eval", live, "--min-hit-rate", "0.6").exit_code == 0


def test_a_run_is_held_against_another_one(run: Run, live: Path, tmp_path: Path, corpus: Corpus) -> None:
    assert run("eval", live, "--out", "before").exit_code == 0
    add(corpus, "docs/trips.md", text_chunk("Trains or flights? Trains, or flights."))
    done = run("eval", live, "--out", "after", "--against", "before")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "95 % interval" in done.stdout
    against = json.loads((tmp_path / "after" / "summary.json").read_text())["against"]
    assert against["n"] == 3
    assert against["metrics"]["mrr"]["difference"] < 0
    assert "trains or flights" in (tmp_path / "after" / "report.md").read_text().partition("Worse by ndcg@10")[2]


def test_what_cannot_be_measured_is_wrong_usage_or_says_why(run: Run, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("- qurey: x\n")
    wrong = run("eval", "bad.yaml")
    assert wrong.exit_code == 2
    assert "`query`" in wrong.stderr
    (tmp_path / "broken.yaml").write_text("- {query: why?, path: x}\n  - [")
    assert run("eval", "broken.yaml").exit_code == 2
    assert run("eval", "none.yaml").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert "corpus.jsonl cannot be read" in run("eval", "empty").stderr
    (tmp_path / "off.yaml").write_text("- query: x\n")
    assert run("eval", "off.yaml", "--min-hit-rate", "0.5").exit_code == 2
    assert run("eval", "off.yaml", "--hyde").exit_code == 2
    assert run("eval", "off.yaml", "--against", "none").exit_code == 2
    assert run("eval", "off.yaml", "--out", "off.yaml/results").exit_code == 2
    empty = run("eval", "off.yaml")
    assert isinstance(empty.exception, PermanentError)
    assert "Nothing is indexed" in str(empty.exception)


def test_what_init_lays_down_passes_its_own_gate(
    run: Run, corpus: Corpus, database: Database, cage: ParserCage, tmp_path: Path
) -> None:
    assert run("init", "new").exit_code == 0
    with working(database, cage):
        assert run("ingest", "new/inbox").exit_code == 0
    done = run("eval", "new/eval.yaml", "--min-hit-rate", "1", "--out", "out")
    assert done.exit_code == 0, (done.output, done.exception)
    found, _ = load_settings({}, directory=tmp_path / "new")
    assert (found.home, found.inbox) == (tmp_path / "new" / ".docwell", tmp_path / "new" / "inbox")
    again = run("init", "new")
    assert isinstance(again.exception, PermanentError)
    assert "nothing is written over" in str(again.exception)


# --- a corpus of its own


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "salt"
    folder.mkdir()
    corpus = [{"id": f"d{number}", "title": f"Part {number}", "text": f"The word{number} stands here."} for number in range(12)]
    queries = [{"id": f"q{number}", "text": f"word{number}", "answers": ["It stands here."]} for number in range(12)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{number}\td{number}\t1\n" for number in range(12))
    )
    return folder


TRACES = ("namespace", "audience", "document", "version", "version_chunk", "chunk", "chunk_terms", "job", "pushed_content")


def _traces(corpus: Corpus) -> dict[str, int]:
    return {name: corpus.count(name) for name in (*TRACES, corpus.vectors)}


def test_a_sets_own_corpus_is_loaded_asked_and_gone(
    run: Run, own: Path, corpus: Corpus, database: Database, cage: ParserCage, tmp_path: Path
) -> None:
    add(corpus, "mine.md", text_chunk("The word3 stands in a document of my own."))
    before = _traces(corpus)
    with working(database, cage):
        done = run("eval", own, "--compare", "--hyde", "--out", "out")
    assert done.exit_code == 0, (done.output, done.exception)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["documents"], summary["documents_without_text"], summary["hit@5"]) == (12, 0, 1.0)
    assert summary["namespace"].startswith("eval-salt-")
    assert summary["hyde"]["questions"] == 12
    [row] = [one for one in json.loads((tmp_path / "out" / "per-query.json").read_text())["queries"] if one["id"] == "q3"]
    assert row["hybrid"]["top"][0]["document"] == "d3"
    assert _traces(corpus) == before


def test_a_corpus_that_is_kept_is_asked_again_without_loading(
    run: Run, own: Path, corpus: Corpus, database: Database, cage: ParserCage, tmp_path: Path
) -> None:
    with working(database, cage):
        assert run("eval", own, "--keep", "--out", "first").exit_code == 0
    namespace = json.loads((tmp_path / "first" / "summary.json").read_text())["namespace"]
    assert remove_leftovers(corpus.connection) == []
    done = run("eval", own, "--namespace", namespace, "--out", "second", "--sample", "5")
    assert done.exit_code == 0, (done.output, done.exception)
    second = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert (second["questions"], second["hit@5"], second["sample"]) == (5, 1.0, {"of": 12, "seed": 0})


DOCUMENTS = [CorpusDocument(id=f"d{number}", text=f"text {number}") for number in range(3)]


def _nobody(_due: int) -> None:
    pass


@pytest.fixture
def owner(database: Database) -> Owner:
    return lambda: connect(database.url, autocommit=True)


def test_without_a_worker_it_says_so_and_leaves_nothing(corpus: Corpus, owner: Owner) -> None:
    ticks = iter(range(1000))
    loader = Loader(owner, _nobody, clock=lambda: next(ticks), sleep=lambda _: None)
    before = _traces(corpus)
    with pytest.raises(ServiceUnavailable, match="No worker takes the set's documents"), loader.loaded("salt", DOCUMENTS):
        pytest.fail("nothing was loaded")
    assert _traces(corpus) == before


def test_a_corpus_of_which_nothing_can_be_read_is_no_corpus(
    corpus: Corpus, owner: Owner, database: Database, cage: ParserCage
) -> None:
    before = _traces(corpus)
    with (
        working(database, cage),
        pytest.raises(PermanentError, match="Nothing of the set's corpus could be taken in"),
        Loader(owner, _nobody).loaded("salt", [CorpusDocument(id="d", text="  \n")]),
    ):
        pytest.fail("nothing was loaded")
    assert _traces(corpus) == before


def test_what_is_interrupted_while_it_is_asked_leaves_nothing(
    corpus: Corpus, owner: Owner, database: Database, cage: ParserCage
) -> None:
    before = _traces(corpus)

    def interrupt(chunks: int) -> None:
        assert corpus.count("chunk") == chunks == 3
        raise KeyboardInterrupt

    loader = Loader(owner, _nobody)
    with working(database, cage), pytest.raises(KeyboardInterrupt), loader.loaded("salt", DOCUMENTS) as loaded:
        interrupt(loaded.chunks)
    assert _traces(corpus) == before


def _marked(connection: Connection[Any]) -> list[str]:
    rows = connection.execute("SELECT name FROM docwell.namespace WHERE description = %s", (MARK,)).fetchall()
    return [row[0] for row in rows]


def test_a_terminated_command_removes_what_it_loaded(own: Path, corpus: Corpus, environment: dict[str, str]) -> None:
    before = _traces(corpus)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "eval", str(own)], env=clean | environment, stderr=subprocess.PIPE, text=True
    )
    try:
        _until(lambda: corpus.count("job") == 12)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert _traces(corpus) == before


def test_an_interrupt_in_the_middle_of_a_statement_leaves_nothing_either(
    own: Path, corpus: Corpus, owner: Owner, environment: dict[str, str]
) -> None:
    before = _traces(corpus)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with owner() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE docwell.pushed_content IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen(
            [sys.executable, "-m", "infra.cli", "eval", str(own)],
            env=clean | environment,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background of a shell has interrupts ignored, and so would this.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        try:
            _until(lambda: corpus.connection.execute(waiting).fetchone() == (1,))
            process.send_signal(signal.SIGINT)
            _until(lambda: corpus.connection.execute(waiting).fetchone() != (1,) or process.poll() is not None)
            other.execute("ROLLBACK")
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert _traces(corpus) == before


def test_what_a_killed_run_left_goes_with_the_next_one_and_what_is_in_use_stays(
    own: Path, corpus: Corpus, database: Database, environment: dict[str, str]
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    process = subprocess.Popen([sys.executable, "-m", "infra.cli", "eval", str(own)], env=clean | environment)
    try:
        _until(lambda: corpus.count("job") == 12)
        [left] = _marked(corpus.connection)
        assert remove_leftovers(corpus.connection) == [], "it is in use"
    finally:
        process.kill()
        process.wait()
    own_namespace = corpus.connection.execute("SELECT docwell.namespace.name FROM docwell.namespace").fetchall()
    assert (left,) in own_namespace
    _until(lambda: left in remove_leftovers(corpus.connection))
    assert corpus.count("document") == 0
    assert _marked(corpus.connection) == []


def test_without_a_running_docwell_it_is_3(own: Path, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCWELL_")}
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "eval", str(own)],
        env=clean | {"DOCWELL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "make run" in done.stderr
    assert done.stdout == ""
