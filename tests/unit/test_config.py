"""Settings: where they come from, which one wins, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from shared.config import Settings, load_settings
from shared.errors import ConfigurationError


def _load(directory: Path, toml: str | None = None, **environment: str) -> tuple[Settings, dict[str, str]]:
    if toml is not None:
        (directory / "docwell.toml").write_text(toml, encoding="utf-8")
    return load_settings(environment, directory=directory)


def test_without_anything_the_defaults_hold_and_paths_are_absolute(tmp_path: Path) -> None:
    settings, origins = _load(tmp_path)
    assert origins == {}
    assert settings.home == tmp_path / ".docwell"
    assert settings.inbox == tmp_path / "inbox"
    assert (settings.api_host, settings.api_port, settings.mcp_port) == ("127.0.0.1", 8080, 8090)
    assert settings.database_url is None


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "docwell.toml").write_text('api_port = 1\nmcp_port = 2\nhome = "from-file"\n')
    environment = {"DOCWELL_API_PORT": "11", "DOCWELL_HOME": "from-environment"}
    settings, origins = load_settings(environment, directory=tmp_path, home=Path("from-line"))
    assert (settings.api_port, settings.mcp_port, settings.home) == (11, 2, tmp_path / "from-line")
    assert origins == {"api_port": "DOCWELL_API_PORT", "mcp_port": str(tmp_path / "docwell.toml"), "home": "command line"}


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("DOCWELL_CHUNK_TOKEN", "DOCWELL_CHUNK_TOKENS"),
        ("DOCWELL_DATABSE_URL", "DOCWELL_DATABASE_URL"),
        ("DOCWELL_INBX", "DOCWELL_INBOX"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(tmp_path: Path, variable: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, **{variable: "1"})
    assert caught.value.code == "unknown_setting"
    assert variable in str(caught.value)
    assert str(caught.value).endswith(f"{nearest}.")


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"Unknown setting chunk_token in .*nearest known one is chunk_tokens"):
        _load(tmp_path, "chunk_token = 3\n")


def test_variables_of_other_programs_are_none_of_our_business(tmp_path: Path) -> None:
    assert _load(tmp_path, DOCKER_HOST="x", PATH="y")[1] == {}


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    settings, origins = _load(tmp_path, DOCWELL_REDIS_URL="", DOCWELL_API_TOKENS="")
    assert settings.redis_url is None
    assert settings.api_tokens == ()
    assert origins == {}


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("postgresql://u:p@h/d\n")
    settings, origins = _load(tmp_path, DOCWELL_DATABASE_URL_FILE=str(tmp_path / "secret"))
    assert settings.database_url == SecretStr("postgresql://u:p@h/d")
    assert origins == {"database_url": "DOCWELL_DATABASE_URL_FILE"}


def test_a_secrets_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DOCWELL_REDIS_URL_FILE names .*absent"):
        _load(tmp_path, DOCWELL_REDIS_URL_FILE=str(tmp_path / "absent"))


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ConfigurationError, match="keep one of them"):
        _load(tmp_path, DOCWELL_REDIS_URL="a", DOCWELL_REDIS_URL_FILE=str(tmp_path / "secret"))


def test_only_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Unknown setting DOCWELL_INBOX_FILE"):
        _load(tmp_path, DOCWELL_INBOX_FILE="x")


def test_a_secret_never_shows_in_what_is_printed(tmp_path: Path) -> None:
    settings, _ = _load(tmp_path, DOCWELL_DATABASE_URL="postgresql://u:hunter2@h/d", DOCWELL_API_TOKENS="hunter2,other")
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()
    assert [token.get_secret_value() for token in settings.api_tokens] == ["hunter2", "other"]


def test_a_value_that_does_not_fit_is_told_with_its_origin_and_without_the_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, DOCWELL_API_PORT="eighty", DOCWELL_CHUNK_TOKENS="3")
    assert "api_port (from DOCWELL_API_PORT)" in str(caught.value)
    assert "chunk_tokens (from DOCWELL_CHUNK_TOKENS)" in str(caught.value)
    assert "eighty" not in str(caught.value)


def test_an_overlap_of_more_than_half_a_chunk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="at most half of chunk_tokens"):
        _load(tmp_path, DOCWELL_CHUNK_TOKENS="100", DOCWELL_CHUNK_OVERLAP="51")


def test_a_configuration_that_is_named_must_be_there_and_its_paths_are_taken_from_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="which does not exist"):
        _load(tmp_path, DOCWELL_CONFIG="conf/docwell.toml")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "docwell.toml").write_text(
        'inbox = "drop"\n'
        '[[sources]]\nname = "wiki"\nroot = "pages"\nnamespace = "team"\ntags = ["a", "b"]\nreaders = ["group:eng"]\n'
    )
    settings, _ = _load(tmp_path, DOCWELL_CONFIG="conf/docwell.toml")
    assert settings.inbox == tmp_path / "conf" / "drop"
    (source,) = settings.sources
    assert (source.name, source.root, source.namespace) == ("wiki", tmp_path / "conf" / "pages", "team")
    assert (source.tags, source.readers) == (("a", "b"), ("group:eng",))


@pytest.mark.parametrize(
    "toml", ["api_port =", "\x00", 'sources = [{name = "A b", root = "x"}]', 'sources = [{name = "a", rot = "x"}]']
)
def test_a_file_that_is_no_valid_configuration_is_one_clear_error(tmp_path: Path, toml: str) -> None:
    with pytest.raises(ConfigurationError):
        _load(tmp_path, toml)


def test_settings_cannot_be_changed_once_they_are_loaded(tmp_path: Path) -> None:
    settings, _ = _load(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        settings.api_port = 1  # type: ignore[misc]


def test_names_that_are_ignored_come_from_the_environment_or_the_file_and_are_the_whole_list(tmp_path: Path) -> None:
    assert "*.part" in _load(tmp_path)[0].ignore_names
    assert ".git" in _load(tmp_path)[0].ignore_folders
    assert _load(tmp_path, DOCWELL_IGNORE_NAMES="*.bak, ~$*")[0].ignore_names == ("*.bak", "~$*")
    settings, _ = _load(tmp_path, 'ignore_names = []\nignore_folders = ["build"]\n')
    assert (settings.ignore_names, settings.ignore_folders) == ((), ("build",))


@pytest.mark.parametrize("pattern", ["drafts/*.md", "build/"])
def test_a_pattern_of_paths_is_no_name_and_the_error_says_where_it_belongs(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="docwellignore"):
        _load(tmp_path, DOCWELL_IGNORE_FOLDERS=pattern)
