"""The names of workers: machine, process-id namespace, main process, child. By them the jobs of the dead are found."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def neighbours() -> str:
    """How the names of all workers begin whose main process this one could see.

    Process ids mean something within one machine, and within one namespace of it: containers may share the name of their host.
    """
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        namespace = "0"
    return f"{socket.gethostname()}:{namespace}:"


def worker_name(*pids: int) -> str:
    """The name of a worker by its main process, and of one of its processes by that and its own."""
    return neighbours() + ":".join(map(str, pids))


def is_gone(worker: str) -> bool:
    """Whether the worker of this name, one of our neighbours, is no more. Ask before this process has children of its own."""
    main = worker.removeprefix(neighbours()).partition(":")[0]
    if not main.isdigit():
        return False
    if int(main) == os.getpid():  # a former life: in a container every main process is number 1
        return True
    try:
        os.kill(int(main), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
