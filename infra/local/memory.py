"""How much memory the embedded PostgreSQL may take."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_MIB = 1024**2
LEAST_BUFFERS, MOST_BUFFERS = 256 * _MIB, 1024 * _MIB


def memory_settings(memory: int) -> dict[str, str]:
    """What PostgreSQL may keep in memory on a machine of `memory` bytes: a sixteenth of them, 256 MiB at least and 1 GiB at most.

    It takes only what it uses. With 256 MiB a search among 100,000 passages read half of its pages from the system's cache, which
    took a fifth of its time.
    """
    buffers = min(max(memory // 16, LEAST_BUFFERS), MOST_BUFFERS)
    return {"shared_buffers": f"{buffers // _MIB}MB", "effective_cache_size": f"{max(memory // 3, 2 * buffers) // _MIB}MB"}


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container that this process is in; 0 where nobody says."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(limit.read_text(encoding="ascii")))
    return memory
