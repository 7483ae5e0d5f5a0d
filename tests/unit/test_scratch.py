"""Where the tests keep their files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.scratch import LEAST_MACHINE, PREFIX, in_memory, passable_folder, remove_left_over


def test_files_are_kept_in_memory_only_where_there_is_a_folder_and_a_machine_for_it() -> None:
    here = Path(__file__).parent  # programs run from this disk
    assert in_memory(here, machine=LEAST_MACHINE) == here
    assert in_memory(here, machine=LEAST_MACHINE - 1) is None
    assert in_memory(here / "missing", machine=LEAST_MACHINE) is None


def test_a_folder_of_a_test_is_gone_afterwards() -> None:
    with passable_folder() as folder:
        (folder / "file").touch()
    assert not folder.exists()


def test_what_a_killed_run_left_is_removed_and_what_is_in_use_or_just_made_is_not(tmp_path: Path) -> None:
    later = time.time() + 61
    (left := tmp_path / f"{PREFIX}left").mkdir()
    remove_left_over(tmp_path)
    assert left.exists()
    remove_left_over(tmp_path, now=later)
    assert not left.exists()
    with passable_folder() as used:
        os.utime(used, (0, 0))
        remove_left_over(used.parent)
        assert used.exists()
