"""Runs the ingest API until it is told to stop."""

from __future__ import annotations

import signal
import socket

import structlog
import uvicorn

from ingest_worker.api.app import make_api
from ingest_worker.api.guard import check_binding
from ingest_worker.api.waking import BackgroundWake
from ingest_worker.jobs.celery_app import make_app
from ingest_worker.jobs.wake import celery_wake
from shared.collector import leave_alone_what_is_loaded
from shared.config import Settings
from shared.credentials import any_credential
from shared.database import check_schema, open_pool, reachable
from shared.errors import ConfigurationError, PermanentError

_CONNECTIONS = 10
_WAIT_SECONDS = 5.0

_KEEP_ALIVE_SECONDS = 75
"""Longer than proxies keep an idle connection (a minute): else a request may meet one that is just being closed."""

log = structlog.get_logger(__name__)


def run_api(settings: Settings) -> None:
    """Serve in the foreground until SIGTERM or SIGINT; requests that are under way are finished, for ten seconds at most.

    Raises:
        ConfigurationError: it would serve the network without a token, or the schema is not the one that this code knows.
        PermanentError: the address is taken or not ours.
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    if settings.database_url is None:
        raise ConfigurationError("No database is set. Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
    url = settings.database_url.get_secret_value()
    with (
        listen(settings.api_host, settings.api_port) as listener,
        open_pool(url, name="docwell-api", size=_CONNECTIONS, wait_seconds=_WAIT_SECONDS) as pool,
    ):
        with reachable(), pool.connection() as connection:
            check_schema(connection)
            check_binding(settings, lambda: any_credential(connection, ("ingest", "admin")))
        wake = BackgroundWake(celery_wake(make_app(settings), most=settings.worker_concurrency or 4))
        server = uvicorn.Server(
            uvicorn.Config(
                make_api(settings, pool, wake),
                log_config=None,
                access_log=False,
                http="h11",  # httptools, which would be taken where it is installed, reads headers without an end
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                timeout_graceful_shutdown=10,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )
        # uvicorn raises the signal that stopped it once more when it is done; by then there is nothing left to stop.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        leave_alone_what_is_loaded()
        log.info("api_listening", host=settings.api_host, port=listener.getsockname()[1])
        server.run(sockets=[listener])
        wake.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on the first address of `host`; port 0 takes a free one.

    Raises:
        PermanentError: the address is taken, or not one of this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise PermanentError(
            f"The API cannot listen on {host}:{port}: {error.strerror or error}. Set DOCWELL_API_PORT or DOCWELL_API_HOST.",
            code="address_taken",
        ) from error
