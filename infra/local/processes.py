"""Child processes that never outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from infra.local.accounts import Account

_PR_SET_PDEATHSIG = 1
_LINUX = platform.system() == "Linux"


def dies_with_parent(signal_number: int) -> Callable[[], None]:
    """A function to call in the child: it asks Linux for `signal_number` when the thread that forked it ends.

    Other systems have no such call; there a child outlives a parent that is killed without a chance to stop it.
    """
    if not _LINUX:
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os.kill(os.getpid(), signal_number)

    return ask


def step_back(nice: int) -> None:
    """Let this process, and its session, have less of the processors than others while they are short; as nice(1) counts."""
    os.nice(nice)
    # Linux shares the processors out between sessions first (sched(7), "autogroup"): a process's own value counts within one.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")


def spawn(
    argv: Sequence[str | Path],
    *,
    output: IO[bytes] | int,
    environment: Mapping[str, str],
    account: Account | None = None,
    folder: Path = Path("/"),
    death_signal: int = signal.SIGTERM,
    nice: int = 0,
) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone.

    Call it from a thread that lives as long as the child may: the kernel's death signal follows the thread, not the
    process. `account` is the system account to run under; only root may name another than its own. `folder` is the
    working directory; the default keeps no file system busy and can be entered by every account. `nice`: see `step_back`.
    """
    ask = dies_with_parent(death_signal)

    def begin() -> None:
        ask()
        if nice:
            step_back(nice)

    return subprocess.Popen(
        [os.fspath(part) for part in argv],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        # It runs after the change of user, which would clear the request. The parent forks from its main thread and
        # the function takes no lock, which is what makes preexec_fn safe here.
        preexec_fn=begin,
    )


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return not _LINUX
    return state != "Z"


def command_line(pid: int) -> list[str]:
    """The arguments of a running process, empty when it is gone or hidden from us."""
    if _LINUX:
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return [part for part in raw.decode(errors="surrogateescape").split("\0") if part]
    found = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def working_in(folder: Path) -> list[int]:
    """Processes whose working directory is `folder`: PostgreSQL's server and each of its backends work in its data folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
        except OSError:  # it ended, or belongs to somebody else
            continue
    return found
