"""No network for the parser's process, whatever a file makes a library try.

On Linux the kernel refuses sockets (seccomp, no privilege needed), in programs that it starts too. Elsewhere Python does, which
holds for Python code alone.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys
from typing import Final

_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EACCES
# linux/audit.h and the tables of system calls: the architecture's number, and that of socket().
_MACHINES: Final = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP: Final = 425  # opens sockets by another door
_OTHER_NUMBERS: Final = 0x40000000  # x32: the same calls under other numbers

# Instructions of classic BPF: load a word of the call's data, jump when equal or greater or equal, return.
_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16


def forbid_network() -> bool:
    """Refuse every socket but local ones, for the rest of this process's life; returns whether the kernel does it."""
    if _filter_sockets():
        return True
    sys.addaudithook(_refuse)
    return False


def _filter_sockets() -> bool:
    known = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or known is None:
        return False
    machine, number = known
    program = b"".join(
        struct.pack("<HBBI", code, if_true, if_false, value)
        for code, if_true, if_false, value in (
            (_LOAD, 0, 0, _MACHINE_AT),
            (_JUMP_EQUAL, 0, 7, machine),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_JUMP_GREATER, 5, 0, _OTHER_NUMBERS),
            (_JUMP_EQUAL, 4, 0, _IO_URING_SETUP),
            (_JUMP_EQUAL, 0, 2, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
            (_JUMP_EQUAL, 0, 1, socket.AF_UNIX),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: how many instructions, and where they are.
    described = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(described), 0, 0) == 0)


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo"):
        raise PermissionError(errno.EACCES, "The parser has no network.")
