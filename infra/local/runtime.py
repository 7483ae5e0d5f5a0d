"""How a command finds the Docwell that runs: `run/services.json` in the home, valid while its supervisor lives."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from infra.local.folders import is_held, storage_problem
from infra.local.logs import log_path
from shared.config import Settings
from shared.errors import ServiceUnavailable


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What runs, and where. URLs may hold passwords, so the file is for its owner alone."""

    supervisor_pid: int
    database_url: str
    query_database_url: str | None
    redis_url: str
    embedder_url: str | None
    api_url: str
    mcp_url: str
    usage_log: str = "off"
    usage_redis_url: str | None = None


def lock_path(home: Path) -> Path:
    """Held by the supervisor as long as it lives; it holds the supervisor's process id."""
    return home / "run" / "lock"


def services_path(home: Path) -> Path:
    """Written when everything is ready, removed at the stop."""
    return home / "run" / "services.json"


def state_path(home: Path) -> Path:
    """How each service fares; the supervisor keeps it up to date while it lives."""
    return home / "run" / "state.json"


def ready_path(home: Path, service: str) -> Path:
    """Left by a process that nobody can ask, when its work has begun."""
    return home / "run" / f"{service}.ready"


def leave_sign(home: Path, service: str) -> None:
    """Says that this service's work has begun; where no supervisor made the folder, nobody looks."""
    sign = ready_path(home, service)
    if sign.parent.is_dir():
        sign.touch()


def write_atomically(path: Path, content: str) -> None:
    """Replaces a file whole, readable by its owner alone.

    Raises:
        ConfigurationError: the disk is full, read-only or not ours.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise storage_problem(error, path) from error


def announce(home: Path, services: Services) -> None:
    """Writes the file that other commands read."""
    write_atomically(services_path(home), json.dumps(asdict(services), indent=2) + "\n")


def running(home: Path) -> Services | None:
    """What runs in `home`, None when nothing does or it is not ready yet.

    Raises:
        ConfigurationError: the home belongs to somebody else.
    """
    if not is_held(lock_path(home)):
        return None
    try:
        return Services(**json.loads(services_path(home).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_problem(error, services_path(home)) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceState:
    """How a service of the supervisor fares.

    `state` is `starting`, `running`, or `failing`: it crashes time and again. `restarts` are those since the start of all.
    """

    name: str
    state: str
    restarts: int
    last_exit: str | None
    log: str


def service_states(home: Path) -> list[ServiceState]:
    """The services of the Docwell that runs in `home`; none when it was not started by `docwell up`, or just begins.

    Raises:
        ConfigurationError: the home belongs to somebody else.
    """
    path = state_path(home)
    if not is_held(lock_path(home)):
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["services"]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_problem(error, path) from error
    return [
        ServiceState(
            name=name, state=one["state"], restarts=one["restarts"], last_exit=one["last_exit"], log=str(log_path(home, name))
        )
        for name, one in found.items()
    ]


def attach(settings: Settings) -> Settings:
    """The settings with what the running Docwell knows: databases, broker and embedder that are not set otherwise.

    Who names a database of his own keeps it; from a Docwell on another database only the embedder is taken. Whether usage is
    logged is decided where Docwell was started, so that it holds for clients over stdio too, unless it is set here.

    Raises:
        ServiceUnavailable: no database is set and no Docwell runs in the home; the message says how to start it.
    """
    found = running(settings.home)
    if found is None:
        if settings.database_url is None and settings.query_database_url is None:
            raise _not_running(settings.home)
        return settings
    known: dict[str, Any] = {"embedder_url": found.embedder_url}
    own = settings.database_url or settings.query_database_url
    same = own is None or own.get_secret_value() in (found.database_url, found.query_database_url)
    if same:
        known |= {
            "database_url": SecretStr(found.database_url),
            "query_database_url": SecretStr(found.query_database_url) if found.query_database_url else None,
            "redis_url": SecretStr(found.redis_url),
            "usage_redis_url": SecretStr(found.usage_redis_url) if found.usage_redis_url else None,
        }
    unset = {name: value for name, value in known.items() if getattr(settings, name) is None}
    if same and "usage_log" not in settings.model_fields_set:
        unset["usage_log"] = found.usage_log
    return settings.model_copy(update=unset)


def _not_running(home: Path) -> ServiceUnavailable:
    if is_held(lock_path(home)):
        return ServiceUnavailable(f"Docwell is starting in {home} and is not ready yet. Try again in a moment.", code="starting")
    return ServiceUnavailable(
        f"Docwell is not running in {home}. Start it with `make run` or `docwell up`, or name the home of the one that runs in"
        " DOCWELL_HOME.",
        code="not_running",
    )
