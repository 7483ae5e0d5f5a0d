"""Files that are larger than may be taken: skipped with a reason that people see, and taken when the limit is raised."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from infra.cli import make_app
from ingest_worker.intake.watching import prepare_source
from ingest_worker.jobs import table as jobs
from ingest_worker.pipeline import Tools, run_job
from tests.conftest import Database
from tests.folders import Folder, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", max_bytes=100) as opened:
        yield opened


def _work(folder: Folder) -> list[str]:
    """Do what is due. A file that is too large is neither parsed nor embedded, so nothing that does is needed."""
    tools = Tools(settings=folder.settings, pool=folder.pool, cage=cast("Any", None), embedder=cast("Any", None))
    results = []
    while True:
        with folder.pool.connection() as connection:
            claimed = jobs.claim(connection, worker="test", lease_seconds=60)
        if not claimed:
            return results
        results.extend(run_job(job, tools).result for job in claimed)


def test_a_file_over_its_sources_limit_is_skipped_with_a_reason_that_the_list_shows(
    folder: Folder, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("large.md", "x" * 101)
    folder.sweep()
    assert _work(folder) == ["skipped"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCWELL_DATABASE_URL", database.url)
    listed = CliRunner().invoke(make_app(), ["documents", "list", "--state", "skipped", "--json"])
    (row,) = json.loads(listed.stdout)["documents"]
    assert (row["path"], row["state"], row["reason_code"]) == ("large.md", "skipped", "too_large")
    assert "has 101 bytes, the limit is 100. Raise `max_bytes` of source docs to take it." in row["reason"]
    report = folder.sweep()
    assert (report.changed, report.again) == (0, 0)


def test_a_raised_limit_takes_the_files_that_are_within_it_at_the_next_start(folder: Folder) -> None:
    folder.write("large.md", "x" * 150)
    folder.write("larger.md", "x" * 250)
    folder.sweep()
    _work(folder)
    raised = folder.source_settings.model_copy(update={"max_bytes": 200})
    prepare_source(folder.pool, raised, max_bytes=1, max_attempts=5, wake=folder.woken.append)
    assert folder.live_jobs() == {"large.md": "ingest"}
    assert folder.work() == [("large.md", "read")]


def test_without_a_limit_of_its_own_a_source_has_the_general_one(folder: Folder) -> None:
    own = folder.source_settings.model_copy(update={"max_bytes": None})
    prepare_source(folder.pool, own, max_bytes=1000, max_attempts=5, wake=folder.woken.append)
    folder.settings = folder.settings.model_copy(update={"max_bytes": 10})
    folder.write("large.md", "x" * 50)
    folder.sweep()
    assert _work(folder) == ["skipped"]
    prepare_source(folder.pool, own, max_bytes=1000, max_attempts=5, wake=folder.woken.append)
    assert folder.live_jobs() == {"large.md": "ingest"}
