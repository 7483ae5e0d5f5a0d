"""The home: who may use it, how a command finds the Docwell that runs there, and how long its logs grow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from infra.local.folders import exclusive, is_held, prepare_home, private_folder, socket_folder
from infra.local.logs import last_lines, log_path, open_log, rotate
from infra.local.runtime import Services, announce, attach, lock_path, services_path
from shared.config import Settings
from shared.errors import ConfigurationError, ServiceUnavailable

SERVICES = Services(
    supervisor_pid=1,
    database_url="postgresql://docwell@/docwell?host=%2Fa",
    query_database_url="postgresql://docwell_query@/docwell?host=%2Fa",
    redis_url="unix:///a/redis.sock?db=0",
    embedder_url="unix:///a/embedder.sock",
    api_url="http://127.0.0.1:8080",
    mcp_url="http://127.0.0.1:8090/mcp",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return prepare_home(tmp_path / "home")


def test_a_command_without_a_running_docwell_is_told_how_to_start_it(place: Path) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        attach(Settings(home=place))
    assert str(place) in str(caught.value)
    assert "make run" in str(caught.value)


def test_a_file_whose_supervisor_is_gone_counts_as_not_running(place: Path) -> None:
    announce(place, SERVICES)
    with pytest.raises(ServiceUnavailable, match="not running"):
        attach(Settings(home=place))


def test_a_docwell_that_is_starting_is_said_to_be_starting(place: Path) -> None:
    with exclusive(lock_path(place)), pytest.raises(ServiceUnavailable, match="is starting"):
        attach(Settings(home=place))


def test_what_is_not_set_comes_from_the_running_docwell(place: Path) -> None:
    with exclusive(lock_path(place)):
        announce(place, SERVICES)
        settings = attach(Settings(home=place))
    assert settings.database_url == SecretStr(SERVICES.database_url)
    assert settings.query_database_url == SecretStr(SERVICES.query_database_url or "")
    assert settings.redis_url == SecretStr(SERVICES.redis_url)
    assert settings.embedder_url == SERVICES.embedder_url


def test_a_database_of_ones_own_is_kept_and_needs_no_running_docwell(place: Path) -> None:
    own = SecretStr("postgresql://elsewhere/docwell")
    settings = Settings(home=place, database_url=own)
    assert attach(settings) == settings
    with exclusive(lock_path(place)):
        announce(place, SERVICES)
        attached = attach(settings)
    assert (attached.database_url, attached.query_database_url, attached.redis_url) == (own, None, None)
    assert attached.embedder_url == SERVICES.embedder_url


def test_the_file_with_urls_is_for_its_owner_alone(place: Path) -> None:
    announce(place, SERVICES)
    assert services_path(place).stat().st_mode & 0o777 == 0o600


def test_a_lock_is_held_by_one_and_free_after_it(place: Path) -> None:
    lock = lock_path(place)
    with exclusive(lock) as first:
        assert first
        with exclusive(lock) as second:
            assert not second
        assert is_held(lock)
    assert not is_held(lock)


def test_a_link_in_the_place_of_a_private_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigurationError, match="must be a folder, and is none"):
        private_folder(tmp_path / "link")


def test_a_folder_that_others_may_write_to_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    private_folder(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o022 == 0


def test_a_socket_folder_is_in_the_home_while_its_path_is_short_enough(tmp_path: Path) -> None:
    assert socket_folder(tmp_path) == tmp_path / "run"
    deep = tmp_path / ("ü" * 50)
    found = socket_folder(deep)
    assert found.parent == Path("/tmp")
    assert len(os.fsencode(found)) < 60
    found.rmdir()


def test_a_home_with_a_file_in_its_way_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="a file is in the way"):
        prepare_home(tmp_path / "file")


def test_a_log_that_grew_too_long_moves_aside_while_its_writer_goes_on(place: Path) -> None:
    with open_log(place, "talker") as log:
        log.write(b"old\n" * 100)
        assert rotate(place, "talker", limit=100)
        log.write(b"new\n")
    assert log_path(place, "talker").read_bytes() == b"new\n"
    assert log_path(place, "talker").with_name("talker.log.1").read_bytes() == b"old\n" * 100
    assert not rotate(place, "talker", limit=100)


def test_the_last_lines_of_a_log_are_at_hand(place: Path) -> None:
    assert last_lines(place, "nobody", 3) == ""
    with open_log(place, "talker") as log:
        log.write(b"one\ntwo\nthree\n")
    assert last_lines(place, "talker", 2) == "two\nthree"
