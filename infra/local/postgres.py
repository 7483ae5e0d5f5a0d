"""The embedded PostgreSQL: its own data folder and one Unix socket, started and stopped with Docwell."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from psycopg.pq import PGconn, Ping

from infra.local import provision
from infra.local.accounts import can
from infra.local.folders import exclusive, outside_socket_folder, prepare_home, private_folder, socket_folder, storage_problem
from infra.local.logs import last_lines, open_log
from infra.local.memory import machine_memory, memory_settings
from infra.local.placement import MAJOR_VERSION, Placement, place
from infra.local.processes import command_line, dies_with_parent, is_alive, spawn, working_in
from shared.errors import ConfigurationError, ServiceUnavailable

DATABASE = "docwell"

START_SECONDS = 120.0
"""Recovery after a crash replays at most max_wal_size; on a slow disk that takes a minute."""

STOP_SECONDS = 30.0
"""A fast shutdown writes a checkpoint first."""

_POLL_SECONDS = 0.01


class EmbeddedPostgres:
    """One PostgreSQL server whose data lie in `home`.

    `settings` are server settings on top of `provision.SERVER_SETTINGS` and what the memory of the machine allows; tests use
    it to do without fsync.
    `start` must be called from the main thread (see `processes.spawn`); only one object can use a home at a time.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self._settings = {**provision.SERVER_SETTINGS, **memory_settings(machine_memory()), **(settings or {})}
        self._placement: Placement | None = None
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()

    # --- where it is

    @property
    def placement(self) -> Placement:
        """Where data and programs lie; known after `prepare`."""
        if self._placement is None:
            raise RuntimeError("prepare() comes first")
        return self._placement

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket, which only the account of PostgreSQL (and root) can enter."""
        return (self._sockets or socket_folder(self.home)) / "pg"

    def url(self, user: str, database: str = DATABASE) -> str:
        """A libpq URL over the socket; it holds no secret."""
        return f"postgresql://{user}@/{database}?host={quote(os.fspath(self.socket_folder), safe='')}"

    @property
    def url_owner(self) -> str:
        """For the processes that write, and for migrations: the role `docwell`, which is no superuser."""
        return self.url(provision.OWNER)

    @property
    def url_reader(self) -> str:
        """For the query server: the role `docwell_query`, which only what migrations grant it can read."""
        return self.url(provision.READER)

    @property
    def superuser_conninfo(self) -> str:
        """For the launcher alone."""
        return f"host='{_escaped(self.socket_folder)}' user={provision.SUPERUSER} connect_timeout=10"

    # --- life

    def start(self) -> None:
        """Starts the server on its data, which are made at the first start, and waits until it takes connections.

        Raises:
            ConfigurationError: the data or the folder cannot be used; the message says why and what to do.
            ServiceUnavailable: the server did not come up.
        """
        try:
            self.prepare()
            with open_log(self.home, "postgres") as log:
                self._process = spawn(
                    self.argv,
                    output=log,
                    environment=self.environment,
                    account=self.placement.account,
                    death_signal=signal.SIGINT,
                )
            self._wait_until_ready(self._process)
            self.provision()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the server: fast, then by force. Committed data survive either."""
        process, self._process = self._process, None
        if process is not None:
            for number, seconds in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
                process.send_signal(number)
                try:
                    process.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    continue
        self._held.close()

    def prepare(self) -> None:
        """Everything before the start: takes the home, makes the data if there are none, clears what a crash left."""
        prepare_home(self.home)
        if not self._held.enter_context(exclusive(self.home / "run" / "postgres.lock")):
            raise ConfigurationError(
                f"Another Docwell uses the database in {self.home}. Stop it, or set DOCWELL_HOME to another folder.",
                code="already_running",
            )
        self._placement = place(self.home)
        self._sockets = self._reachable_sockets(self._placement)
        self._make_data()
        self.recover()

    def recover(self) -> None:
        """Ends a server that a killed Docwell left on these data, and removes its stale lock files."""
        data = self.placement.data
        _end_strays(data)
        for lock in (data / "postmaster.pid", self.socket_folder / ".s.PGSQL.5432.lock", self.socket_folder / ".s.PGSQL.5432"):
            lock.unlink(missing_ok=True)

    def provision(self) -> None:
        """Makes the roles, the database and the extension when they are missing; the server must be ready."""
        provision.provision(self.superuser_conninfo, DATABASE)

    def is_ready(self) -> bool:
        """Whether the server takes connections."""
        return PGconn.ping(self.superuser_conninfo.encode()) == Ping.OK

    def explain(self, output: str) -> str | None:
        """What PostgreSQL's last words mean for a person, when it is something known."""
        folder = self.placement.folder
        if "No space left on device" in output or "Disk quota exceeded" in output:
            return f"The disk that holds {folder} is full: free some space."
        if "Read-only file system" in output:
            return f"{folder} is on a read-only file system: set DOCWELL_HOME to a folder that can be written to."
        return None

    @property
    def argv(self) -> list[str]:
        """The server's command."""
        settings = {**self._settings, "unix_socket_directories": _quoted_list(self.socket_folder)}
        if _shared_memory_is_small():
            settings["dynamic_shared_memory_type"] = "mmap"
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [os.fspath(self.placement.programs / "bin" / "postgres"), "-D", os.fspath(self.placement.data), *options]

    @property
    def environment(self) -> dict[str, str]:
        """The server's whole environment: none of the caller's settings and secrets."""
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "LD_LIBRARY_PATH": os.fspath(self.placement.programs / "lib")}

    # --- steps

    def _reachable_sockets(self, placement: Placement) -> Path:
        for choose in (socket_folder, outside_socket_folder):
            base = choose(self.home)
            folder = private_folder(base / "pg", uid=placement.uid, mode=0o700)
            if placement.account is None or can(placement.account, "x", folder):
                return base
        raise ConfigurationError(
            f"{placement.account} cannot enter {folder}, where PostgreSQL's socket has to be.", code="socket"
        )

    def _make_data(self) -> None:
        data = self.placement.data
        try:
            major = (data / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            if data.exists():
                raise ConfigurationError(
                    f"{data} exists, and is no PostgreSQL data folder (PG_VERSION is missing). Restore it from a copy,"
                    " or move it away to begin with an empty database.",
                    code="data_damaged",
                ) from None
            self._initialise()
            return
        except OSError as error:
            raise storage_problem(error, data) from error
        if major != str(MAJOR_VERSION):
            raise ConfigurationError(
                f"The data in {data} were made by PostgreSQL {major}, and this Docwell brings PostgreSQL {MAJOR_VERSION}, which"
                " cannot read them. Use the Docwell that made them, or move the folder away to begin with an empty database.",
                code="data_version",
            )

    def _initialise(self) -> None:
        """Makes the data beside their place and moves them there whole, so that an interruption leaves nothing half."""
        partial = self.placement.folder / "data.partial"
        if partial.exists():
            shutil.rmtree(partial)
        account = self.placement.account
        made = subprocess.run(
            [
                self.placement.programs / "bin" / "initdb",
                f"--pgdata={partial}",
                f"--username={provision.SUPERUSER}",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--auth-local=trust",
                "--auth-host=reject",
                *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
            ],
            cwd="/",
            env=self.environment,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            preexec_fn=dies_with_parent(signal.SIGTERM),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            why = self.explain(made.stderr) or f"PostgreSQL said: {' '.join(made.stderr.split())}"
            raise ConfigurationError(f"The database could not be made. {why}", code="initdb")
        partial.rename(self.placement.data)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "stopped at once" if ended else f"did not become ready in {START_SECONDS:.0f} s"
                lines = last_lines(self.home, "postgres", 5)
                why = self.explain(last_lines(self.home, "postgres", 40)) or f"PostgreSQL said: {' '.join(lines.split())}"
                raise ServiceUnavailable(f"The embedded PostgreSQL {what}. {why}", code="postgres_start")
            time.sleep(_POLL_SECONDS)


def _end_strays(data: Path) -> None:
    """Waits for a server that works in `data` and belongs to no living Docwell, and ends it when it does not end by itself."""
    for number, seconds in ((None, 2.0), (signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        strays = _strays(data)
        if number is not None:
            for pid in strays if number != signal.SIGINT else strays[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while strays := _strays(data):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        if not strays:
            return
    raise ConfigurationError(
        f"A PostgreSQL server that this Docwell did not start works on {data} and cannot be stopped (process {strays[0]})."
        " Stop it and start again.",
        code="stray_server",
    )


def _strays(data: Path) -> list[int]:
    """The server that the data folder's pid file names, if it is one, then its backends."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        pid = int((data / "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
        # A number alone proves nothing: after a restart of the machine another program may have it.
        if is_alive(pid) and os.fspath(data) in command_line(pid):
            found.append(pid)
    return found + [pid for pid in working_in(data) if pid not in found and is_alive(pid) and _is_postgres(pid)]


def _is_postgres(pid: int) -> bool:
    arguments = command_line(pid)
    return bool(arguments) and "postgres" in arguments[0]


def _quoted_list(folder: Path) -> str:
    """A folder as the one member of a list setting, where spaces and commas need quotes."""
    return '"' + os.fspath(folder).replace('"', '""') + '"'


def _escaped(path: Path) -> str:
    return os.fspath(path).replace("\\", "\\\\").replace("'", "\\'")


def _shared_memory_is_small() -> bool:
    """Containers often have 64 MB of /dev/shm, too little for a parallel index build."""
    try:
        usage = os.statvfs("/dev/shm")  # noqa: S108 (only its size is read)
    except OSError:
        return False
    return usage.f_frsize * usage.f_blocks < 512 * 1024**2
