"""An ASGI application on a port of loopback, for clients that speak real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve it in a thread; the address is `http://127.0.0.1:PORT`."""
    # asyncio turns off Nagle's algorithm only where the protocol is named; with it each answer waits 40 ms to be acknowledged.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
        thread = threading.Thread(target=lambda: anyio.run(lambda: server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
