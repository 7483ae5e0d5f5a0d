"""Documents whose files have moved, many at once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ingest_worker.catalogue.documents import Observed
from ingest_worker.catalogue.moving import move_documents
from tests.conftest import Database
from tests.folders import Folder, eventually, open_folder


@pytest.fixture
def folder(database: Database, tmp_path: Path) -> Iterator[Folder]:
    with open_folder(database.url, tmp_path / "docs", watch_mode="native") as opened:
        for name in ("a.md", "b.md", "c.md", "d.md"):
            opened.write(name, f"the text of {name}")
        opened.sweep()
        opened.work()
        yield opened


def _move(folder: Folder, places: Mapping[str, str]) -> dict[str, str]:
    """Move documents by path; the new path of each one by its old one."""
    before = folder.ids()
    with folder.pool.connection() as connection:
        wanted = {before[old]: Observed(name=new) for old, new in places.items()}
        moved = move_documents(connection, folder.source.source_id, wanted)
    after: dict[uuid.UUID, str] = {document: path for path, document in folder.ids().items()}
    assert moved == {before[old] for old in places if after[before[old]] != old}
    return {path: after[document] for path, document in before.items()}


def test_documents_change_places_in_a_ring_and_in_a_row(folder: Folder) -> None:
    ring = {"a.md": "b.md", "b.md": "c.md", "c.md": "a.md"}
    assert _move(folder, ring) == {**ring, "d.md": "d.md"}
    row = {"a.md": "b.md", "b.md": "c.md", "c.md": "new/c.md"}
    assert _move(folder, row) == {**row, "d.md": "d.md"}


def test_a_place_that_another_document_keeps_is_not_taken_nor_is_what_depends_on_it(folder: Folder) -> None:
    assert _move(folder, {"a.md": "b.md", "b.md": "d.md", "c.md": "e.md"}) == {
        "a.md": "a.md",
        "b.md": "b.md",
        "c.md": "e.md",
        "d.md": "d.md",
    }


def test_of_two_that_want_one_place_one_gets_it(folder: Folder) -> None:
    assert _move(folder, {"a.md": "e.md", "b.md": "e.md"}) == {"a.md": "e.md", "b.md": "b.md", "c.md": "c.md", "d.md": "d.md"}


def test_a_deleted_document_gives_way_and_an_excluded_one_stays(folder: Folder) -> None:
    with folder.pool.connection() as connection:
        connection.execute("UPDATE docwell.document SET state = 'deleted' WHERE path = 'c.md'")
        connection.execute("UPDATE docwell.document SET state = 'excluded' WHERE path = 'd.md'")
    assert _move(folder, {"a.md": "c.md", "b.md": "d.md"}) == {"a.md": "c.md", "b.md": "b.md", "d.md": "d.md"}


def test_readers_of_the_index_notice_a_move_once(folder: Folder) -> None:
    def versions() -> list[int]:
        with folder.pool.connection() as connection:
            return [row[0] for row in connection.execute("SELECT version FROM docwell.audience").fetchall()]

    (before,) = versions()
    _move(folder, {"a.md": "x/a.md", "b.md": "x/b.md"})
    assert versions() == [before + 1]


def test_a_file_whose_move_nobody_saw_is_found_by_its_content_when_it_appears(folder: Folder) -> None:
    before = folder.ids()["a.md"]
    with folder.watched() as watcher:
        # As if the file had gone while events were lost: only its new place is seen.
        (folder.root / "a.md").rename(folder.root.with_name("outside.md"))
        watcher._hints.take(0.5)
        (folder.root.with_name("outside.md")).rename(folder.root / "z.md")
        eventually(lambda: folder.ids().get("z.md") == before)
        eventually(lambda: watcher.waiting == 0)
    assert folder.documents().keys() == {"b.md", "c.md", "d.md", "z.md"}


def test_a_thousand_files_that_move_together_are_known_under_their_new_paths_within_seconds(folder: Folder) -> None:
    for number in range(1000):
        os.utime(folder.write(f"old/{number:04}.md", f"text {number:04}"), (1_700_000_000, 1_700_000_000))
    folder.sweep()
    with folder.pool.connection() as connection:  # as if workers had read them
        connection.execute(
            "UPDATE docwell.document SET state = 'indexed', size = 9, modified_ns = 1700000000000000000,"
            " sha256 = sha256(convert_to('text ' || substr(path, 5, 4), 'UTF8')) WHERE path LIKE 'old/%'"
        )
        connection.execute("DELETE FROM docwell.job")
    before = folder.ids()
    folder.woken.clear()
    with folder.watched():
        (folder.root / "old").rename(folder.root / "new")
        expected = {path.replace("old/", "new/"): document for path, document in before.items()}
        eventually(lambda: folder.ids() == expected, within=20.0)
    assert folder.woken == []
