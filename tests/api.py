"""The ingest API on a port of its own, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from pydantic import SecretStr

from ingest_worker.api.app import make_api
from ingest_worker.api.serve import listen
from shared.config import Settings
from shared.database import open_pool


@dataclass(kw_only=True)
class Api:
    """A client of a server that runs, and how many jobs it called workers for."""

    client: httpx.Client
    url: str
    wakes: list[int] = field(default_factory=list)


@contextmanager
def running_api(
    database_url: str, *, tokens: Sequence[str] = (), redis_url: str | None = None, wait_seconds: float = 15.0, **settings: Any
) -> Iterator[Api]:
    """The API in a thread of this process, on a free port of the loopback.

    `wait_seconds` is how long a request waits for a connection to the database.
    """
    chosen = Settings(
        api_tokens=tuple(SecretStr(token) for token in tokens),
        redis_url=None if redis_url is None else SecretStr(redis_url),
        **settings,
    )
    with (
        listen("127.0.0.1", 0) as listener,
        open_pool(database_url, name="test-api", wait_seconds=wait_seconds) as pool,
        httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=20, trust_env=False) as client,
    ):
        api = Api(client=client, url=str(client.base_url))
        server = uvicorn.Server(
            uvicorn.Config(
                make_api(chosen, pool, api.wakes.append), log_config=None, access_log=False, lifespan="off", loop="asyncio"
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="test-api")
        thread.start()
        try:
            yield api
        finally:
            server.should_exit = True
            thread.join(20)
