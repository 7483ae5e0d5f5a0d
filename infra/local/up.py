"""`docwell up`: everything on one machine, from an empty folder to a ready banner, in the foreground."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from infra.local.banner import ready_lines, show
from infra.local.doors import refuse_open_doors
from infra.local.folders import exclusive, own_sockets, prepare_home, storage_problem
from infra.local.logs import log_path
from infra.local.postgres import START_SECONDS, STOP_SECONDS, EmbeddedPostgres
from infra.local.redis import EmbeddedRedis
from infra.local.runtime import Services, announce, lock_path, ready_path, services_path
from infra.local.supervisor import Service, Stopped, Supervisor
from infra.migrate import migrate
from infra.privilege import environment_for, settings_for
from shared.config import Settings
from shared.errors import ConfigurationError
from shared.usage import require_address

MINIMUM_FREE_BYTES = 200 * 1024**2

READY_SECONDS = 120.0
"""For the first start on a slow machine, with the model still outside of the page cache."""

_WORKER_NICE = 3
"""Whoever searches or delivers waits; nobody waits for a worker in the same way. Half of what others get is little enough: ten
steps are a tenth, and on a busy machine nothing was indexed any more."""

_REQUEST_SECONDS = 2.0


def run_up(settings: Settings, *, verbose: bool = False) -> int:
    """Starts everything, shows the banner, and stays until a stop signal comes; answers the exit status, 1 when a service was
    crashing time and again at the end.

    `settings` has an absolute home and inbox. A database or broker that is set is used, else an embedded one is started.

    Raises:
        ConfigurationError: a port, the home or the data cannot be used, another Docwell runs in the home, or others could reach
            a server that asks nobody for a token.
        ServiceUnavailable: a service did not become ready.
    """
    begun = time.monotonic()
    prepare_home(settings.home)
    with _alone(settings.home):
        settings = _check_ground(settings)
        services_path(settings.home).unlink(missing_ok=True)
        supervisor = Supervisor(settings.home, _say, verbose=verbose)
        with supervisor.signals(), contextlib.ExitStack() as held:
            postgres = EmbeddedPostgres(settings.home)
            held.callback(postgres.stop)  # gives its lock back, after the supervisor has ended the server
            held.callback(supervisor.stop)
            held.callback(services_path(settings.home).unlink, missing_ok=True)
            try:
                settings = _launch_embedder(settings, supervisor)
                settings = _start_stores(settings, supervisor, postgres)
                refuse_open_doors(settings, _plain(settings.database_url) or "")
                _start_processes(settings, supervisor)
                _welcome(settings, time.monotonic() - begun)
                failing = supervisor.run()
                _say("Stopping.")
                for name in failing:
                    _say(f"{name} kept crashing: see {log_path(settings.home, name)}.")
                if failing:
                    return 1
            except Stopped:
                _say("Stopping before everything was ready.")
                return 1
    return 0


def _say(sentence: str) -> None:
    sys.stderr.write(f"docwell: {sentence}\n")
    sys.stderr.flush()


# --- before anything starts


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    lock = lock_path(home)
    with exclusive(lock) as is_ours:
        if not is_ours:
            pid = lock.read_text(encoding="ascii", errors="replace").strip() or "unknown"
            raise ConfigurationError(
                f"Docwell already runs in {home} (pid {pid}). Use that one, stop it, or set DOCWELL_HOME to another folder.",
                code="already_running",
            )
        lock.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield


def _check_ground(settings: Settings) -> Settings:
    free = shutil.disk_usage(settings.home).free
    if free < MINIMUM_FREE_BYTES:
        raise ConfigurationError(
            f"Only {free // 1024**2} MB are free where {settings.home} is; Docwell needs {MINIMUM_FREE_BYTES // 1024**2} MB."
            " Free some space, or set DOCWELL_HOME to another disk.",
            code="disk_full",
        )
    try:
        settings.inbox.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_problem(error, settings.inbox) from error
    if settings.redis_url is not None:  # else it is our own, which has the user for it
        require_address(settings)
    ports = {
        "api_port": _free_port(settings.api_host, settings.api_port, "DOCWELL_API"),
        "mcp_port": _free_port(settings.mcp_host, settings.mcp_port, "DOCWELL_MCP"),
    }
    if ports["api_port"] == ports["mcp_port"] and settings.api_host == settings.mcp_host:
        raise ConfigurationError(f"DOCWELL_API_PORT and DOCWELL_MCP_PORT are both {ports['api_port']}: change one of them.")
    return settings.model_copy(update=ports)


def _free_port(host: str, port: int, prefix: str) -> int:
    """`port` when it can be listened on, or any free one for 0."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except socket.gaierror as error:
        raise ConfigurationError(f"{prefix}_HOST is {host!r}, which is no address of this machine: {error.strerror}.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"is used by another program. Stop that one, or set {prefix}_PORT to a free port"
        elif error.errno == errno.EACCES:
            what = f"is reserved for root. Set {prefix}_PORT to one above 1023"
        else:
            what = f"cannot be listened on ({error.strerror}). Check {prefix}_HOST and {prefix}_PORT"
        raise ConfigurationError(f"Port {port} on {host} {what}.", code="port") from error


# --- what holds the data and the model


def _launch_embedder(settings: Settings, supervisor: Supervisor) -> Settings:
    """Its model loads while the database starts; the first `start` waits for both."""
    if settings.embedding_provider != "local" or settings.embedder_url is not None:
        return settings
    embedder = own_sockets(settings.home) / "embedder.sock"
    embedder.unlink(missing_ok=True)
    settings = settings.model_copy(update={"embedder_url": f"unix://{quote(os.fspath(embedder))}"})
    supervisor.launch(docwell_service(settings, "embedder", ready=_listens(embedder), tier=0))
    return settings


def _start_stores(settings: Settings, supervisor: Supervisor, postgres: EmbeddedPostgres) -> Settings:
    found: dict[str, SecretStr] = {}
    if settings.database_url is None:
        postgres.prepare()
        supervisor.launch(postgres_service(postgres))
        found["database_url"] = SecretStr(postgres.url_owner)
        if settings.query_database_url is None:
            found["query_database_url"] = SecretStr(postgres.url_reader)
    if settings.redis_url is None:
        redis = EmbeddedRedis(settings.home)
        supervisor.launch(redis_service(redis))
        found["redis_url"] = SecretStr(redis.url)
        if settings.usage_redis_url is None:
            found["usage_redis_url"] = SecretStr(redis.usage_url)
    supervisor.wait()
    if settings.database_url is None:
        postgres.provision()
    settings = settings.model_copy(update=found)
    applied = migrate(_plain(settings.database_url) or "", _plain(settings.query_database_url))
    if applied:
        _say(f"The database is up to date: {len(applied)} migration{'s' if len(applied) > 1 else ''} applied.")
    return settings


def postgres_service(postgres: EmbeddedPostgres) -> Service:
    """The embedded PostgreSQL, prepared, for the supervisor."""
    return Service(
        name="postgres",
        argv=postgres.argv,
        environment=postgres.environment,
        ready=postgres.is_ready,
        before=postgres.recover,
        explain=postgres.explain,
        account=postgres.placement.account,
        stop_signal=signal.SIGINT,  # a fast shutdown: sessions end, a checkpoint is written
        stop_seconds=STOP_SECONDS,
        start_seconds=START_SECONDS,
        death_signal=signal.SIGINT,
    )


def redis_service(redis: EmbeddedRedis) -> Service:
    """The embedded Redis for the supervisor."""
    return Service(name="redis", argv=redis.argv, environment=redis.environment, ready=redis.is_ready, before=redis.recover)


# --- Docwell's own processes


def _start_processes(settings: Settings, supervisor: Supervisor) -> None:
    supervisor.start(
        docwell_service(settings, "mcp", "--transport", "http", ready=_answers(f"{mcp_url(settings)[:-4]}/readyz")),
        docwell_service(settings, "api", ready=_answers(f"{api_url(settings)}/readyz")),
        # SIGQUIT: Celery does not wait for the jobs that run; the worker hands them back, and they lose no attempt.
        docwell_service(settings, "worker", leaves_sign=True, stop_signal=signal.SIGQUIT, nice=_WORKER_NICE),
        docwell_service(settings, "watch", leaves_sign=True),
        docwell_service(settings, "scheduler", leaves_sign=True),
    )
    announce(
        settings.home,
        Services(
            supervisor_pid=os.getpid(),
            database_url=_plain(settings.database_url) or "",
            query_database_url=_plain(settings.query_database_url),
            redis_url=_plain(settings.redis_url) or "",
            embedder_url=settings.embedder_url,
            api_url=api_url(settings),
            mcp_url=mcp_url(settings),
            usage_log=settings.usage_log,
            usage_redis_url=_plain(settings.usage_redis_url),
        ),
    )


def docwell_service(
    settings: Settings,
    name: str,
    *options: str,
    ready: Callable[[], bool] | None = None,
    leaves_sign: bool = False,
    tier: int = 1,
    stop_signal: int = signal.SIGTERM,
    nice: int = 0,
) -> Service:
    """One of Docwell's own processes. Secrets go through its environment, never through its arguments, and only its own do.

    With `leaves_sign` it is ready when it has left the file of `ready_path`; one of an earlier start counts for nothing.
    """
    sign = ready_path(settings.home, name)
    return Service(
        name=name,
        # -P: a folder named like one of our packages in the working directory must not take its place.
        argv=[sys.executable, "-P", "-m", "infra.cli", name, *options],
        environment=process_environment(settings, os.environ, service=name),
        tier=tier,
        folder=Path.cwd(),  # relative paths in the environment keep their meaning
        ready=sign.exists if leaves_sign else ready,
        before=partial(sign.unlink, missing_ok=True) if leaves_sign else None,
        stop_signal=stop_signal,
        stop_seconds=10.0,
        start_seconds=READY_SECONDS,
        # Nothing of it is worth waiting for when its supervisor is gone: what counts is in PostgreSQL.
        death_signal=signal.SIGKILL,
        nice=nice,
    )


def process_environment(settings: Settings, base: Mapping[str, str], *, service: str) -> dict[str, str]:
    """The environment of a child: ours without the secrets that are not its own, with everything that was decided here spelled
    out. See `infra.privilege`."""
    own = settings_for(service, settings)
    decided = {
        "DOCWELL_HOME": os.fspath(settings.home),
        "DOCWELL_INBOX": os.fspath(settings.inbox),
        "DOCWELL_DATABASE_URL": _plain(own.database_url),
        "DOCWELL_QUERY_DATABASE_URL": _plain(own.query_database_url),
        "DOCWELL_REDIS_URL": _plain(own.redis_url),
        "DOCWELL_EMBEDDER_URL": settings.embedder_url,
        "DOCWELL_API_PORT": str(settings.api_port),
        "DOCWELL_MCP_PORT": str(settings.mcp_port),
        "DOCWELL_USAGE_REDIS_URL": _plain(own.usage_redis_url),
    }
    environment = environment_for(service, base, settings)
    for name, value in decided.items():
        if value is not None:
            environment[name] = value
            environment.pop(f"{name}_FILE", None)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def api_url(settings: Settings) -> str:
    """Where the ingest API answers on this machine."""
    return f"http://{_reachable(settings.api_host)}:{settings.api_port}"


def mcp_url(settings: Settings) -> str:
    """Where the MCP server answers on this machine."""
    return f"http://{_reachable(settings.mcp_host)}:{settings.mcp_port}/mcp"


def _reachable(host: str) -> str:
    """A host to connect to: what listens everywhere is reached over loopback."""
    if host in ("0.0.0.0", ""):  # noqa: S104 (compared, not bound)
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host


def _answers(url: str) -> Callable[[], bool]:
    # The standard library's client: httpx would load the system's certificates at each of many looks.
    where = urlsplit(url)

    def ready() -> bool:
        link = HTTPConnection(where.hostname or "", where.port, timeout=_REQUEST_SECONDS)
        try:
            link.request("GET", where.path)
            return link.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            link.close()

    return ready


def _listens(path: Path) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(_REQUEST_SECONDS)
                link.connect(os.fspath(path))
        except OSError:
            return False
        return True

    return ready


def _welcome(settings: Settings, seconds: float) -> None:
    show(ready_lines(settings, api_url=api_url(settings), mcp_url=mcp_url(settings), seconds=seconds))


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
