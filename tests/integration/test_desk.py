"""What people ask of a running watcher, and what it says of itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ingest_worker.catalogue.overview import SourceRow, get_source
from ingest_worker.catalogue.removal import remove_source
from ingest_worker.catalogue.source_state import request_sweep, set_paused
from ingest_worker.catalogue.sources import ensure_source
from ingest_worker.intake import events
from ingest_worker.intake.mounts import Mount
from ingest_worker.intake.watching import prepare_source, watch_sources
from shared.errors import PermanentError
from tests.conftest import Database
from tests.folders import AT_ONCE, Folder, eventually, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        yield opened


def _row(folder: Folder) -> SourceRow:
    with folder.pool.connection() as connection:
        return get_source(connection, "docs")


def _ask(folder: Folder, statement: str) -> None:
    with folder.pool.connection() as connection:
        connection.execute(statement.encode())


def test_the_watcher_says_how_it_watches_and_that_it_has_ended(folder: Folder) -> None:
    assert not _row(folder).watched
    with folder.watched():
        eventually(lambda: _row(folder).watched)
        assert (_row(folder).watch_mode, _row(folder).watch_notice) == ("native", None)
        away = folder.root.with_name("away")
        folder.root.rename(away)
        eventually(lambda: _row(folder).watch_mode is None)
        assert _row(folder).watched
        away.rename(folder.root)
        eventually(lambda: _row(folder).watch_mode == "native")
    assert (_row(folder).watched, _row(folder).watch_mode) == (False, None)


def test_a_network_file_system_is_noticed_polled_and_told(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount(folder=str(tmp_path), type="nfs4")
    monkeypatch.setattr(events, "network_mount_of", lambda _folder: mount)
    with open_folder(database.url, tmp_path / "docs", watch_mode="auto") as folder, folder.watched():
        eventually(lambda: _row(folder).watch_mode == "poll")
        notice = _row(folder).watch_notice
        assert notice is not None
        assert f"{tmp_path} is a network file system (nfs4)" in notice
        assert "every 0.2 s" in notice
        folder.write("a.md")
        eventually(lambda: folder.live_jobs().keys() == {"a.md"})
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as folder, folder.watched():
        eventually(lambda: "DOCWELL_WATCH_MODE is native" in (_row(folder).watch_notice or ""))
        assert _row(folder).watch_mode == "native"


def test_a_sweep_is_made_within_seconds_when_somebody_asks_for_it(folder: Folder) -> None:
    with folder.watched():
        before = folder.source.newest_sweep
        with folder.pool.connection() as connection:
            request_sweep(connection, "docs")
        eventually(lambda: folder.source.newest_sweep != before)
        eventually(lambda: folder.source.sweep_requested is None)


def test_a_paused_source_is_left_alone_and_catches_up_when_it_goes_on(folder: Folder) -> None:
    gone = folder.write("gone.md", age=60)
    with folder.watched() as watcher:
        eventually(folder.live_jobs)
        folder.work()
        with folder.pool.connection() as connection:
            assert set_paused(connection, "docs", paused=True)
            assert not set_paused(connection, "docs", paused=True)
        folder.write("new.md", "other text than that which goes")
        gone.unlink()
        watcher.request_sweep()
        eventually(lambda: watcher.waiting > 0)
        eventually(lambda: watcher.waiting == 0)
        assert folder.live_jobs() == {}
        with folder.pool.connection() as connection:
            set_paused(connection, "docs", paused=False)
        eventually(lambda: folder.live_jobs().keys() == {"new.md", "gone.md"})


def test_a_source_that_is_taken_out_stays_out_under_a_running_watcher_and_is_back_at_its_next_start(folder: Folder) -> None:
    folder.write("a.md", age=60)
    folder.write("sub/b.md", age=60)
    folder.write("kept out.md", age=60)
    folder.write("x.part")
    with folder.watched() as watcher:
        eventually(lambda: len(folder.live_jobs()) == 3)
        folder.work()
        _ask(folder, "UPDATE docwell.document SET state = 'excluded' WHERE path = 'kept out.md'")
        folder.write("queued.md")
        eventually(lambda: "queued.md" in folder.live_jobs())
        with folder.pool.connection() as connection:
            assert list(remove_source(connection, folder.source)) == [1, 2, 3]
        assert folder.documents() == {"kept out.md": "excluded"}
        assert folder.live_jobs() == {}
        folder.write("c.md")
        watcher.request_sweep()
        eventually(lambda: watcher.waiting > 0)
        eventually(lambda: watcher.waiting == 0)
        assert folder.documents() == {"kept out.md": "excluded"}
        assert folder.left_out() == ()
    prepare_source(folder.pool, folder.source_settings, max_bytes=1000, max_attempts=5, wake=folder.woken.append)
    assert folder.source.newest_sweep is None
    folder.sweep()
    assert folder.documents().keys() == {"a.md", "sub/b.md", "c.md", "queued.md", "kept out.md"}
    assert folder.documents()["kept out.md"] == "excluded"


def test_an_emptied_source_may_come_back_in_another_namespace_and_one_with_documents_may_not(folder: Folder) -> None:
    folder.write("a.md")
    folder.sweep()
    with folder.pool.connection() as connection:
        with pytest.raises(PermanentError, match="another type or namespace"), connection.transaction():
            ensure_source(connection, "docs", kind="folder", namespace="team", root=folder.root)
        list(remove_source(connection, folder.source))
        source = ensure_source(connection, "docs", kind="folder", namespace="team", root=folder.root)
    assert (source.namespace, source.removed_at) == ("team", None)
    folder.sweep()
    assert folder.documents().keys() == {"a.md"}


def test_every_folder_is_swept_at_the_interval_whatever_events_say(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native", watch_rescan_seconds=0.2) as folder, folder.watched():
        for _ in range(3):
            before = folder.source.newest_sweep
            eventually(lambda before=before: folder.source.newest_sweep != before)


def test_two_folders_are_swept_at_once_and_one_that_waits_holds_up_no_other(database: Database, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with open_folder(database.url, tmp_path / "docs", watch_mode="poll") as folder:
        sources: tuple[Any, ...] = (
            folder.source_settings,
            folder.source_settings.model_copy(update={"name": "other", "root": tmp_path / "other"}),
        )
        settings = folder.settings.model_copy(
            update={"inbox": tmp_path / "inbox", "sources": sources, "delete_grace_seconds": 600.0, "watch_mode": "poll"}
        )
        folder.write("a.md", age=600)
        folder.sweep()
        folder.work()
        (folder.root / "a.md").unlink()  # its sweep waits ten minutes for it to come back
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(watch_sources, settings, folder.pool, folder.woken.append, stop)
            try:
                (tmp_path / "other/b.md").write_text("text")
                eventually(lambda: "b.md" in folder.documents())
                assert folder.live_jobs().keys() == {"b.md"}
            finally:
                stop.set()
                running.result(timeout=AT_ONCE)
