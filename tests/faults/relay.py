"""One address in front of several servers, as a load balancer has it: each connection goes to one that takes it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PATIENCE_SECONDS = 10.0


@contextmanager
def relay(ports: Sequence[int]) -> Iterator[str]:
    """The address, `127.0.0.1:PORT`. The servers take turns; one that refuses a connection is passed over."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        stopped = threading.Event()
        thread = threading.Thread(target=_accept, args=(listener, itertools.cycle(ports), len(ports), stopped))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            with contextlib.suppress(OSError):  # wakes accept()
                socket.create_connection(listener.getsockname(), 1).close()
            thread.join(10)


def _accept(listener: socket.socket, turns: Iterator[int], number: int, stopped: threading.Event) -> None:
    while True:
        client, _ = listener.accept()
        if stopped.is_set():
            client.close()
            return
        server = _connect(turns, number)
        if server is None:
            client.close()
            continue
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _connect(turns: Iterator[int], number: int) -> socket.socket | None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for _ in range(number):
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", next(turns)), 2)
        time.sleep(0.02)
    return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Until one side has ended; then both are."""
    with contextlib.suppress(OSError):
        source.settimeout(120)
        while data := source.recv(65_536):
            target.sendall(data)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()
