"""`python -m infra.docker.health NAME`: whether this container's process works; exit 0 when it does, else 1 and the reason.

A server is asked for its readiness over HTTP. The worker leaves a file when it takes jobs. Scheduler and watcher must have
spoken with PostgreSQL, from this address, within the time in which they always do.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

SECONDS = 3.0
"""Below the timeout that `compose.yaml` gives the whole check."""

_SERVERS = {
    "api": ("DOCWELL_API_PORT", "8080", "/readyz"),
    "embedder": ("DOCWELL_EMBEDDER_PORT", "8070", "/readyz"),
    "mcp": ("DOCWELL_MCP_PORT", "8090", "/readyz"),
}

# `application_name` is the name of the process's pool. The check runs beside it, so both come from one address.
_SPOKE = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity
        WHERE application_name = %(name)s AND client_addr IS NOT DISTINCT FROM inet_client_addr()
          AND state_change > now() - make_interval(secs => %(seconds)s)
    )
"""
# A watcher without work closes its connection after a while; its sweeps go on.
_SWEPT = """
    SELECT EXISTS (
        SELECT FROM docwell.source WHERE type = 'folder' AND newest_sweep > now() - make_interval(secs => %(seconds)s)
    )
"""
_SCHEDULER_SECONDS = 30.0


def trouble(name: str, environment: Mapping[str, str]) -> str | None:
    """What is wrong with the process `name` of this container, None when it works."""
    if name in _SERVERS:
        variable, port, path = _SERVERS[name]
        return _ask(f"http://127.0.0.1:{environment.get(variable) or port}{path}")
    if name == "worker":
        ready = Path(environment["DOCWELL_HOME"]) / "run" / "worker.ready"
        return None if ready.exists() else f"{ready} is not there: the worker takes no jobs yet."
    if name == "scheduler":
        return _silence("docwell-scheduler", environment, _SCHEDULER_SECONDS, _SPOKE)
    if name == "watch":
        between_sweeps = float(environment.get("DOCWELL_WATCH_RESCAN_SECONDS") or 300.0)
        return _silence("docwell-watch", environment, 2 * between_sweeps + 60, _SPOKE, _SWEPT)
    return f"There is no service {name!r}; there are {', '.join(sorted([*_SERVERS, 'scheduler', 'watch', 'worker']))}."


def _ask(url: str) -> str | None:
    # No proxy of the environment stands between us and loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            return None if answer.status == 200 else f"{url} answers {answer.status}."
    except urllib.error.HTTPError as error:
        with error:
            return f"{url} answers {error.code}: {error.read(500).decode(errors='replace')}"
    except OSError as error:
        return f"{url} does not answer: {error}."


def _silence(application: str, environment: Mapping[str, str], seconds: float, *signs_of_life: str) -> str | None:
    import psycopg

    sought = {"name": application, "seconds": seconds}
    try:
        with psycopg.connect(
            environment["DOCWELL_DATABASE_URL"],
            connect_timeout=int(SECONDS),
            application_name="docwell-health",
            options=f"-c statement_timeout={int(SECONDS * 1000)}",
            autocommit=True,
        ) as connection:
            for sign in signs_of_life:
                row = connection.execute(sign.encode(), sought).fetchone()
                if row is not None and row[0]:
                    return None
    except psycopg.Error as error:
        return f"PostgreSQL cannot be asked: {error}"
    return f"{application} has not spoken with PostgreSQL for {seconds:g} seconds."


def main() -> int:
    """Checks the service that the first argument names."""
    reason = trouble(sys.argv[1] if len(sys.argv) > 1 else "", os.environ)
    if reason is not None:
        sys.stdout.write(f"{reason}\n")  # `docker inspect` shows it
    return 0 if reason is None else 1


if __name__ == "__main__":
    sys.exit(main())
