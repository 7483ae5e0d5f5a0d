"""Files and folders that a person names: what is found below them, and what is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest_worker.catalogue.left_out import Why
from ingest_worker.intake.manual import find_files
from ingest_worker.intake.names import name_rules
from shared.config import Settings
from shared.errors import PermanentError


def _write(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_below_a_folder_the_same_is_left_out_as_in_a_watched_one_and_is_told(tmp_path: Path) -> None:
    outside = _write(tmp_path / "outside.md")
    folder = tmp_path / "docs"
    taken = [_write(folder / "a.md"), _write(folder / "sub/b.md")]
    _write(folder / ".docwellignore", "drafts/\n")
    for name in ("drafts/c.md", "x.part", ".git/config"):
        _write(folder / name)
    (folder / "leak.md").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    left_out: dict[str, Why] = {}
    assert list(find_files([folder], left_out=left_out)) == taken
    assert {path: why.cause.value for path, why in left_out.items()} == {
        f"{folder}/drafts/": "ignored",
        f"{folder}/x.part": "ignored",
        f"{folder}/.git/": "ignored",
        f"{folder}/leak.md": "link",
        f"{folder}/pipe": "special",
    }


def test_a_file_that_is_named_itself_is_taken_whatever_its_name(tmp_path: Path) -> None:
    named = _write(tmp_path / "x.part")
    assert list(find_files([named])) == [named]


def test_the_names_of_the_settings_apply(tmp_path: Path) -> None:
    taken = _write(tmp_path / "a.tmp")
    _write(tmp_path / "a.bak")
    names = name_rules(Settings(ignore_names=("*.bak",)))
    assert list(find_files([tmp_path], names=names)) == [taken]


def test_what_is_not_there_or_has_rules_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="does not exist"):
        list(find_files([tmp_path / "nothing"]))
    (tmp_path / ".docwellignore").mkdir()
    with pytest.raises(PermanentError, match="its rules are not known"):
        list(find_files([tmp_path]))
