"""Where the tests keep their files."""

from __future__ import annotations

from pathlib import Path

from tests.scratch import LEAST_MACHINE, in_memory, passable_folder


def test_files_are_kept_in_memory_only_where_there_is_a_folder_and_a_machine_for_it() -> None:
    here = Path(__file__).parent  # programs run from this disk
    assert in_memory(here, machine=LEAST_MACHINE) == here
    assert in_memory(here, machine=LEAST_MACHINE - 1) is None
    assert in_memory(here / "missing", machine=LEAST_MACHINE) is None


def test_a_folder_of_a_test_is_gone_afterwards() -> None:
    with passable_folder() as folder:
        (folder / "file").touch()
    assert not folder.exists()
