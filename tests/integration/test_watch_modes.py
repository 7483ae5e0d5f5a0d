"""Polling, kernel limits, and the whole watcher process."""

from __future__ import annotations

import errno
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, Mask, WatchDescriptor

from ingest_worker.catalogue.sources import get_source
from ingest_worker.intake import events
from ingest_worker.intake.events import Hint, HintKind, Hints, observe, polled_for_limit
from ingest_worker.intake.mounts import network_mount, parse_mounts
from ingest_worker.intake.watching import watch_sources
from shared.config import FolderSettings, Settings
from shared.database import open_pool
from tests.conftest import Database
from tests.folders import AT_ONCE, GRACE, SETTLE, Folder, eventually, open_folder


def test_polling_sees_what_comes_changes_moves_and_goes(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="poll") as folder:
        (folder.root / "round").symlink_to(folder.root)
        with folder.watched() as watcher:
            assert watcher.mode == "poll"
            path = folder.write("sub/a.md", "first")
            eventually(lambda: folder.live_jobs().keys() == {"sub/a.md"})
            folder.work()
            before = folder.ids()["sub/a.md"]
            path.write_text("second version")
            eventually(lambda: folder.live_jobs().keys() == {"sub/a.md"})
            assert folder.work() == [("sub/a.md", "read")]
            path.rename(folder.root / "b.md")
            eventually(lambda: folder.ids() == {"b.md": before})
            (folder.root / "b.md").unlink()
            eventually(lambda: folder.live_jobs().keys() == {"b.md"})
            assert folder.work() == [("b.md", "deleted")]


def test_without_room_for_an_inotify_instance_the_folder_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room() -> int:
        raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(events._Inotify, "_create_inotify_fd", staticmethod(no_room))
    observation = observe(str(tmp_path), "native", poll_seconds=0.1, rescan_seconds=300, hints=Hints())
    assert observation.mode == "poll"
    assert observation.notice is not None
    assert "sudo sysctl fs.inotify.max_user_instances=" in observation.notice


def test_the_notice_of_a_limit_names_it_and_what_to_set(tmp_path: Path) -> None:
    for name in ("a", "b", "b/c"):
        (tmp_path / name).mkdir()
    said = polled_for_limit(str(tmp_path), errno.ENOSPC, 5.0).notice or ""
    assert "fs.inotify.max_user_watches" in said
    assert "4 folders" in said
    assert re.search(r"sudo sysctl fs\.inotify\.max_user_watches=\d{6,}\b", said)
    assert "fs.inotify.max_user_instances" in (polled_for_limit(str(tmp_path), errno.EMFILE, 5.0).notice or "")


def test_folders_that_could_not_be_watched_make_the_watcher_poll(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as folder, folder.watched() as watcher:
        watcher._hints.put(Hint(HintKind.LIMIT))
        eventually(lambda: watcher.mode == "poll")
        folder.write("a.md")
        eventually(lambda: folder.live_jobs().keys() == {"a.md"})


def test_lost_events_are_made_good_by_a_sweep(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as folder, folder.watched() as watcher:
        before = folder.source.newest_sweep
        observation = watcher._observation
        assert observation is not None
        overflow = InotifyEvent(WatchDescriptor(-1), Mask(InotifyConstants.IN_Q_OVERFLOW), 0, b"")
        inotify = next(iter(observation.observer.emitters))._inotify_fd  # type: ignore[attr-defined]
        inotify.handle_event(overflow)
        eventually(lambda: folder.source.newest_sweep != before)
        folder.write("a.md")
        eventually(lambda: folder.live_jobs().keys() == {"a.md"})


def test_an_observer_that_ends_is_started_anew_and_what_it_missed_is_found(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as folder, folder.watched() as watcher:
        first = watcher._observation
        assert first is not None
        first.close()
        folder.write("missed.md")
        eventually(lambda: watcher._observation is not None and watcher._observation is not first)
        eventually(lambda: folder.live_jobs().keys() == {"missed.md"})


def test_work_waits_in_memory_while_the_database_is_away(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as folder, folder.watched():
        with folder.pool.connection() as connection:  # a lock has the effect of a database that does not answer
            connection.execute("LOCK TABLE docwell.document IN ACCESS EXCLUSIVE MODE")
            folder.write("a.md")
            # pg_locks is read anew each time; pg_stat_activity would be that of the transaction's first look.
            others = eventually(
                lambda: connection.execute(
                    "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'docwell.document'::regclass"
                ).fetchall()
            )
            for (pid,) in others:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            folder.write("b.md")
        eventually(lambda: folder.live_jobs().keys() == {"a.md", "b.md"})


MOUNTS = r"""
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /mnt/team\040share nfs4 rw 0 0
//nas/scan /srv/docs/scans cifs rw 0 0
user@host: /home/u/remote fuse.sshfs rw 0 0
/dev/sdb1 /mnt/disk fuseblk rw 0 0
shadow /mnt/over nfs rw 0 0
/dev/sdc1 /mnt/over ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "type_"),
    [
        ("/home/u/docs", None),
        ("/mnt/team share/a/b", "nfs4"),
        ("/mnt/team sharing", None),
        ("/srv/docs", "cifs"),
        ("/srv/docs/scans", "cifs"),
        ("/srv/docs/scanned", None),
        ("/home/u/remote/x", "fuse.sshfs"),
        ("/mnt/disk/x", None),
        ("/mnt/over", None),
    ],
)
def test_a_network_file_system_on_or_below_the_folder_is_noticed(folder: str, type_: str | None) -> None:
    found = network_mount(parse_mounts(MOUNTS), folder)
    assert (found.type if found else None) == type_


def test_the_whole_watcher_takes_from_all_sources_and_stops_at_once(database: Database, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    settings = Settings.model_validate(
        {
            "inbox": tmp_path / "inbox",
            "watch_settle_seconds": SETTLE,
            "delete_grace_seconds": GRACE,
            "sources": (FolderSettings(name="more", root=tmp_path / "more", namespace="team"),),
        }
    )
    stop = threading.Event()
    with open_pool(database.url, name="test-watch", size=4) as pool, ThreadPoolExecutor(1) as thread:
        running = thread.submit(watch_sources, settings, pool, lambda _: None, stop)
        try:
            eventually((tmp_path / "inbox").is_dir)
            (tmp_path / "inbox/a.md").write_text("one")
            (tmp_path / "more/b.md").write_text("two")

            def taken() -> set[tuple[str, str, str]]:
                with pool.connection() as connection:
                    return set(
                        connection.execute(
                            "SELECT s.name, n.name, path FROM docwell.document d JOIN docwell.source s USING (source_id)"
                            " JOIN docwell.namespace n ON n.namespace_id = d.namespace_id"
                        ).fetchall()
                    )

            eventually(lambda: taken() == {("inbox", "default", "a.md"), ("more", "team", "b.md")})
        finally:
            stop.set()
            running.result(timeout=AT_ONCE)


def test_changed_readers_ask_for_all_documents_of_the_source_again(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs") as folder:
        folder.write("a.md")
        folder.write("caf\udce9.txt")
        folder.sweep()
        folder.work()
        assert folder.live_jobs() == {}
        settings = folder.settings.model_copy(
            update={
                "inbox": tmp_path / "inbox",
                "sources": (folder.source_settings.model_copy(update={"readers": ("group:eng",)}),),
            }
        )
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(watch_sources, settings, folder.pool, folder.woken.append, stop)
            try:
                eventually(lambda: folder.live_jobs().keys() == {"a.md", "caf%E9.txt"})
            finally:
                stop.set()
                running.result(timeout=AT_ONCE)
        with folder.pool.connection() as connection:
            source = get_source(connection, "docs")
        assert source is not None
        assert source.readers == ["group:eng"]
        assert {result for _, result in folder.work()} == {"read"}
        locators = [os.fsdecode(b"caf\xe9.txt")]
        assert (folder.root / locators[0]).exists()


def test_a_missing_inbox_that_held_documents_is_not_made_anew(database: Database, tmp_path: Path) -> None:
    with open_folder(database.url, tmp_path / "docs") as folder:
        inbox = FolderSettings(name="inbox", root=tmp_path / "inbox")
        own = Folder(root=tmp_path / "inbox", pool=folder.pool, settings=folder.settings, source_settings=inbox)
        stop = threading.Event()
        settings = folder.settings.model_copy(update={"inbox": tmp_path / "inbox", "sources": ()})

        def run_until(condition: object) -> None:
            stop.clear()
            with ThreadPoolExecutor(1) as thread:
                running = thread.submit(watch_sources, settings, folder.pool, folder.woken.append, stop)
                try:
                    eventually(condition)  # type: ignore[arg-type]
                finally:
                    stop.set()
                    running.result(timeout=AT_ONCE)

        run_until((tmp_path / "inbox").is_dir)
        own.write("a.md", age=60)
        run_until(own.live_jobs)
        own.work()
        (tmp_path / "inbox").rename(tmp_path / "unmounted")
        run_until(lambda: own.source.sweep_error)
        assert not (tmp_path / "inbox").exists()
        assert own.documents().keys() == {"a.md"}
