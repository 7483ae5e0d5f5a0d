from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import socket, subprocess, sys
from ingest_worker.parse import sandbox
assert {forbid}
for family in ("AF_INET", "AF_INET6"):
    try:
        found = socket.socket(getattr(socket, family), socket.SOCK_STREAM)
        found.settimeout(1)
        found.connect(("127.0.0.1" if family == "AF_INET" else "::1", 9))
    except PermissionError:
        print("refused")
try:
    socket.getaddrinfo("localhost.invalid", 80)
except (PermissionError, socket.gaierror):
    print("refused")
socket.socketpair(socket.AF_UNIX)
print("local")
"""


def _run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("forbid", ["sandbox.forbid_network() in (True, False)", "sys.addaudithook(sandbox._refuse) is None"])
def test_sockets_to_elsewhere_are_refused_and_local_ones_are_not(forbid: str) -> None:
    assert _run(_PROGRAM.format(forbid=forbid)) == ["refused", "refused", "refused", "local"]


def test_programs_that_are_started_have_no_network_either() -> None:
    inner = "import socket\ntry:\n socket.socket()\nexcept PermissionError:\n print('refused')"
    program = (
        "import subprocess, sys\nfrom ingest_worker.parse import sandbox\nassert sandbox.forbid_network()\n"
        f"subprocess.run([sys.executable, '-c', {inner!r}])"
    )
    assert _run(program) == ["refused"]
