"""Ports for programs that take theirs from a setting."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST, _TRIES = 15_000, 65_535, 100


def free_port() -> int:
    """A port of loopback that nothing listens on now, and that the system gives to nobody who asks for any port.

    One that the system has chosen is given to the next connection as soon as it is let go: somebody else's, while the
    program that it was chosen for still starts.
    """
    first, last = (int(word) for word in _RANGE.read_text(encoding="ascii").split())
    ports = range(_LOWEST, first) if first > _LOWEST + 1000 else range(last + 1, _HIGHEST + 1)
    # No seed: whoever runs beside this process, with the same tests, chooses others.
    for port in random.SystemRandom().sample(ports, min(_TRIES, len(ports))):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    # The system hands out nearly all there are.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
