"""What was read from a source over the network, through the real parser and model to what is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli import make_app
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools, run_job
from ingest_worker.sources.running import following, remote_sources
from shared.config import load_settings
from shared.database import open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from tests.conftest import Database
from tests.folders import eventually
from tests.installing import KIND, install_notes
from tests.notes_server import TOKEN, Notes, serve_notes
from tests.remotes import Followed, follow


@pytest.fixture
def notes() -> Iterator[Notes]:
    with serve_notes() as served:
        yield served


@pytest.fixture
def followed(database: Database, notes: Notes) -> Iterator[Followed]:
    with follow(database.url, notes) as opened:
        yield opened


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder(bundled_model_dir())


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


def _work(followed: Followed, embedder: LocalEmbedder, cage: ParserCage) -> list[JobReport]:
    tools = Tools(settings=followed.general, pool=followed.pool, cage=cage, embedder=lambda: embedder)
    done: list[JobReport] = []
    while True:
        with followed.pool.connection() as connection:
            claimed = jobs.claim(connection, worker="test", lease_seconds=60)
        if not claimed:
            return done
        done += [run_job(job, tools) for job in claimed]


def _served(followed: Followed) -> list[tuple[str, str, str]]:
    return followed.rows(
        "SELECT d.path, c.section, d.url FROM docwell.document d"
        " JOIN docwell.version_chunk vc ON vc.version_id = d.served_version_id"
        " JOIN docwell.chunk c ON c.audience_id = vc.audience_id AND c.chunk_id = vc.chunk_id ORDER BY d.path"
    )


def test_passages_stand_under_what_their_page_stands_under_and_a_move_embeds_nothing(
    followed: Followed, embedder: LocalEmbedder, cage: ParserCage
) -> None:
    text = "# Invoices\n\nInvoices are cancelled within thirty days.\n"
    followed.notes.write("7", text, "HB/invoices.md", heading=("Handbook", "Billing"))
    followed.settle()
    [report] = _work(followed, embedder, cage)
    assert (report.result, report.embedded) == ("indexed", 1)
    url = f"{followed.notes.url}/notes/7"
    assert _served(followed) == [("HB/invoices.md", "Handbook > Billing > Invoices", url)]
    followed.notes.change("7", path="Archive/invoices.md", tags=("old",))
    followed.settle(200)
    [report] = _work(followed, embedder, cage)
    assert (report.result, report.embedded) == ("unchanged", 0)
    assert _served(followed) == [("Archive/invoices.md", "Handbook > Billing > Invoices", url)]
    followed.notes.change("7", heading=("Archive",))
    followed.settle(200)
    [report] = _work(followed, embedder, cage)
    assert report.result == "indexed"
    assert _served(followed) == [("Archive/invoices.md", "Archive > Invoices", url)]
    followed.notes.delete("7")
    followed.settle(200)
    assert _served(followed) == []


def test_a_package_of_another_maker_is_added_followed_and_indexed(
    database: Database,
    notes: Notes,
    embedder: LocalEmbedder,
    cage: ParserCage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_notes(tmp_path / "site", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    monkeypatch.setenv("DOCWELL_REDIS_URL", f"unix://{tmp_path}/none.sock")
    (tmp_path / "token").write_text(TOKEN)
    notes.write("a", "# Cranes\n\nCranes fly south.", "birds/cranes.md")
    said = ["--set", f"url={notes.url}", "--set", "token_file=token", "--set", "permissions=false"]
    added = CliRunner().invoke(make_app(), ["sources", "add", "mine", "--type", KIND, *said])
    assert added.exit_code == 0, (added.output, added.exception)
    settings, _ = load_settings()
    woken: list[int] = []
    with open_pool(database.url, name="test-remote", size=6) as pool:
        with following(remote_sources(settings), settings, pool, woken.append):
            eventually(lambda: woken)
        tools = Tools(settings=settings, pool=pool, cage=cage, embedder=lambda: embedder)
        with pool.connection() as connection:
            [job] = jobs.claim(connection, worker="test", lease_seconds=60)
        assert run_job(job, tools).result == "indexed"
        with pool.connection() as connection:
            rows = connection.execute("SELECT path, searchable, url FROM docwell.document").fetchall()
    assert rows == [("birds/cranes.md", True, f"{notes.url}/notes/a")]
