"""A package of another maker, installed for one test as pip would leave it: on the path, with its metadata."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import example_source

KIND = "kept-notes"
"""The type of source that it offers."""


def install_notes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install `tests/example_source.py` as the package `kept_notes`."""
    package, metadata = folder / "kept_notes", folder / "kept_notes-1.0.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(example_source.__file__, package / "source.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kept-notes\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[docwell.sources]\n{KIND} = kept_notes.source:open_source\n")
    monkeypatch.syspath_prepend(str(folder))
