"""The installation's own judgement: which Python fits, whether what is there can be used, what pip's failures mean."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from infra import bootstrap


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a finished installation, as far as its traces go."""
    root = tmp_path / "a project"
    bin_ = root / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (root / "requirements").mkdir()
    for lock in ("install", "dev"):
        (root / "requirements" / f"{lock}.txt").write_text(f"{lock}==1\n")
    (root / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(bootstrap, "PROJECT", root)
    monkeypatch.setattr(bootstrap, "VENV", root / ".venv")
    monkeypatch.setattr(bootstrap, "STAMP", root / ".venv" / "stamp.json")
    monkeypatch.setattr(bootstrap, "UNFINISHED", root / ".venv" / "unfinished")
    monkeypatch.delenv("PYTHON", raising=False)
    (bin_ / "python").symlink_to(sys.executable)
    (bin_ / "docwell").write_text("")
    (bin_ / "pip").write_text(f"#!/bin/sh\n'''exec' \"{bin_}/python\"\n")
    (root / ".venv" / "pyvenv.cfg").write_text(f"command = python3 -m venv {root}/.venv\n")
    _stamp("install")
    return root


def _stamp(lock: str) -> None:
    bootstrap.STAMP.write_text(json.dumps({"lock": lock, "digest": bootstrap.digest(lock)}))


def test_a_finished_installation_is_left_alone(project: Path) -> None:
    assert bootstrap.is_installed("install")
    assert not bootstrap.is_installed("dev")


def test_the_set_with_the_tools_holds_the_other_too(project: Path) -> None:
    _stamp("dev")
    assert bootstrap.is_installed("install")
    assert bootstrap.is_installed("dev")


@pytest.mark.parametrize("changed", ["requirements/install.txt", "pyproject.toml"])
def test_a_changed_lock_or_project_is_installed_anew(project: Path, changed: str) -> None:
    (project / changed).write_text("changed\n")
    assert not bootstrap.is_installed("install")
    assert bootstrap.venv_problem() is None


def test_an_interrupted_installation_is_made_anew(project: Path) -> None:
    bootstrap.UNFINISHED.write_text("")
    assert not bootstrap.is_installed("install")
    assert bootstrap.venv_problem() == "an installation was interrupted"


def test_an_environment_that_was_moved_is_made_anew(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = project.with_name("moved")
    project.rename(moved)
    monkeypatch.setattr(bootstrap, "VENV", moved / ".venv")
    assert bootstrap.venv_problem() == "it was made for another folder"


def test_an_environment_whose_python_went_away_is_made_anew(project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert bootstrap.venv_problem() == "its Python is gone"


def test_a_python_that_does_not_fit_is_named_with_what_is_needed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHON", "/bin/true")
    with pytest.raises(SystemExit):
        bootstrap.find_python()
    said = capsys.readouterr().err
    assert "Docwell needs Python 3.11 or 3.12" in said
    assert "/bin/true does not run" in said


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "The disk is full"),
        ("WARNING: NewConnectionError ...\nERROR: No matching distribution found for amqp==5.4.2", "could not be downloaded"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "is not the one that was locked"),
        ("ERROR: something else", "pip failed. Its last words:\nERROR: something else"),
    ],
)
def test_pips_failures_are_told_in_a_sentence(said: str, means: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bootstrap.explain_pip(said)
    assert means in capsys.readouterr().err


def test_a_lock_is_cut_into_packages_with_their_hashes() -> None:
    hashes = " \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    text = f"# a comment\none==1{hashes}two==2 ; python_version < '3.12'{hashes}"
    first, second = bootstrap.parse_lock(text)
    assert first.startswith("one==1")
    assert first.count("--hash") == 2
    assert second.startswith("two==2")


def test_every_lock_is_there_hashed_and_names_no_index() -> None:
    folder = Path(bootstrap.__file__).parents[1] / "requirements"
    for lock in bootstrap.LOCKS:
        text = (folder / f"{lock}.txt").read_text()
        assert "://" not in text
        assert all("--hash=sha256:" in block for block in bootstrap.parse_lock(text))
