"""A folder as a source: the same protocol, by the rules of the watcher."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest_worker.intake.observe import file_look
from ingest_worker.intake.read import Gone, Refused, read_file
from ingest_worker.sources.folder import FolderSource
from ingest_worker.sources.protocol import CursorExpired, Source
from shared.config import FolderSettings, Settings
from shared.errors import PermanentError


def _open(root: Path, *ignore: str) -> FolderSource:
    return FolderSource(FolderSettings(name="docs", root=root, ignore=ignore), Settings())


def test_it_gives_what_the_watcher_would_take_and_says_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir()
    for name, text in {"b.md": "of b", "a.md": "of a", "drafts/c.md": "x", "d.tmp": "x", "empty.md": ""}.items():
        (tmp_path / name).write_text(text)
    source = _open(tmp_path, "drafts/**")
    assert isinstance(source, Source)
    [batch] = source.everything()
    assert [(item.key, item.path, item.size) for item in batch.items] == [("a.md", "a.md", 4), ("b.md", "b.md", 4)]
    assert [source.read(item, max_bytes=100) for item in batch.items] == [b"of a", b"of b"]
    assert source.find("a.md") == batch.items[0]
    assert [source.find(key) for key in ("drafts/c.md", "d.tmp", "empty.md", "none.md", "drafts")] == [None] * 5
    assert source.tally.total > 0
    with pytest.raises(CursorExpired):
        list(source.changes("x") or [])


def test_what_it_may_not_read_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    root.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (root / "a.md").write_text("text")
    source = _open(root)
    [batch] = source.everything()
    [item] = batch.items
    with pytest.raises(Refused, match="the limit is 2"):
        source.read(item, max_bytes=2)
    (root / "a.md").unlink()
    with pytest.raises(Gone):
        source.read(item, max_bytes=100)
    (root / "a.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(Refused, match="leads out"):
        source.read(item, max_bytes=100)


@pytest.mark.parametrize("year", [2300, 2440])
def test_a_file_of_a_time_that_cannot_be_stored_is_taken_with_one_that_can(tmp_path: Path, year: int) -> None:
    """ext4 holds times up to 2446, and a bigint of nanoseconds ends in 2262; what looks and what reads have to agree."""
    file, then = tmp_path / "a.md", (year - 1970) * 31_556_952 * 10**9
    file.write_text("text")
    os.utime(file, ns=(then, then))
    [batch] = _open(tmp_path).everything()
    content, look = read_file(file, max_bytes=100), file_look(file.stat())
    assert look.signature is not None
    assert content.modified_ns == look.signature.modified_ns == min(file.stat().st_mtime_ns, 2**63 - 1)
    assert [item.source_modified for item in batch.items] == [content.modified]


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot be read"):
        _open(tmp_path / "nowhere")
