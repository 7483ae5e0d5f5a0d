"""The embedded PostgreSQL survives what happens to it: kills, stale files, other users of its home, awkward paths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from infra.local.postgres import EmbeddedPostgres
from infra.local.processes import is_alive, working_in
from shared.errors import ConfigurationError
from tests.conftest import FAST

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from pathlib import Path
from infra.local.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print(server.placement.data, flush=True)
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def server(home: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(home, settings=FAST)
    yield server
    server.stop()


def _write(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (42)")


def _read(url: str) -> object:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT id FROM kept").fetchone()


def _postmaster(server: EmbeddedPostgres) -> int:
    return int((server.placement.data / "postmaster.pid").read_text().splitlines()[0])


def test_data_survive_a_stop_and_a_start(server: EmbeddedPostgres) -> None:
    server.start()
    _write(server.url_owner)
    server.stop()
    server.start()
    assert _read(server.url_owner) == (42,)


def test_it_keeps_what_it_acknowledged_and_listens_on_one_private_socket_only(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    try:
        with psycopg.connect(server.url_owner) as connection:
            settings: dict[str, str] = dict(
                connection.execute(
                    "SELECT name, setting FROM pg_settings"
                    " WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'listen_addresses', 'data_checksums')"
                ).fetchall()
            )
        assert settings == {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "data_checksums": "on",
        }
        assert server.socket_folder.stat().st_mode & 0o777 == 0o700
        assert server.placement.data.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()


def test_neither_login_is_a_superuser(postgres: EmbeddedPostgres) -> None:
    for url in (postgres.url_owner, postgres.url_reader):
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = session_user").fetchone()
        assert row == (False,)


def test_no_server_outlives_a_launcher_that_is_killed(home: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", HOLD, home], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert launcher.stdout is not None
    data = Path(launcher.stdout.readline().strip())
    assert working_in(data)
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    wait_until(lambda: not working_in(data))


def test_a_start_right_after_the_launcher_was_killed_waits_for_the_old_server(home: Path) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", HOLD, home], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert launcher.stdout is not None
    launcher.stdout.readline()
    server = EmbeddedPostgres(home)
    with psycopg.connect(server.url_owner) as connection:
        connection.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (42)")
        connection.commit()
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
        server.start()
    try:
        assert _read(server.url_owner) == (42,)
    finally:
        server.stop()


def test_a_server_that_was_killed_is_recovered_with_its_data(server: EmbeddedPostgres) -> None:
    server.start()
    _write(server.url_owner)
    data, postmaster = server.placement.data, _postmaster(server)
    os.kill(postmaster, signal.SIGKILL)
    server.stop()
    assert (data / "postmaster.pid").exists()
    server.start()
    assert _read(server.url_owner) == (42,)


def test_a_stale_pid_file_that_names_another_program_is_no_obstacle(server: EmbeddedPostgres) -> None:
    server.start()
    _write(server.url_owner)
    server.stop()
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for file in (server.placement.data / "postmaster.pid", server.socket_folder / ".s.PGSQL.5432.lock"):
            file.write_text(f"{bystander.pid}\n/somewhere\n")
        server.start()
        assert _read(server.url_owner) == (42,)
        assert is_alive(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_second_launcher_on_the_same_home_is_refused(server: EmbeddedPostgres) -> None:
    server.start()
    with pytest.raises(ConfigurationError, match="Another Docwell uses the database") as caught:
        EmbeddedPostgres(server.home).start()
    assert caught.value.code == "already_running"
    with psycopg.connect(server.url_owner) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_data_of_another_major_version_are_refused_untouched(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    version = server.placement.data / "PG_VERSION"
    version.write_text("16\n")
    with pytest.raises(ConfigurationError, match="made by PostgreSQL 16, and this Docwell brings PostgreSQL 18") as caught:
        server.start()
    assert caught.value.code == "data_version"
    version.write_text("18\n")
    server.start()


def test_a_data_folder_that_lost_its_version_is_never_overwritten(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    data = server.placement.data
    (data / "PG_VERSION").unlink()
    with pytest.raises(ConfigurationError, match="is no PostgreSQL data folder") as caught:
        server.start()
    assert caught.value.code == "data_damaged"
    assert (data / "base").is_dir()


def test_an_interrupted_first_start_leaves_nothing_that_stops_the_next(server: EmbeddedPostgres) -> None:
    server.prepare()
    server.stop()
    partial = server.placement.folder / "data.partial"
    server.placement.data.rename(partial)
    server.start()
    assert not partial.exists()


def test_a_home_with_a_long_path_puts_its_socket_where_it_fits(home: Path) -> None:
    deep = home / ("long " * 12).strip() / ("folder " * 8).strip()
    deep.parent.mkdir(parents=True, mode=0o711)
    home.chmod(0o711)
    deep.parent.chmod(0o711)
    server = EmbeddedPostgres(deep, settings=FAST)
    server.start()
    try:
        assert len(os.fsencode(server.socket_folder / ".s.PGSQL.5432")) <= 107
        with psycopg.connect(server.url_reader) as connection:
            assert connection.execute("SELECT session_user").fetchone() == ("docwell_query",)
    finally:
        server.stop()
        (server.socket_folder).rmdir()
        (server.socket_folder.parent).rmdir()


def test_a_folder_that_is_gone_is_named_rather_than_begun_anew(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.home.mkdir(mode=0o711)
    (server.home / "postgres.location").write_text(f"{tmp_path / 'elsewhere'}\n")
    with pytest.raises(ConfigurationError, match="that folder is gone") as caught:
        server.start()
    assert caught.value.code == "data_gone"
    assert not (server.home / "postgres").exists()
