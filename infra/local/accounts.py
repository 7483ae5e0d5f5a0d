"""The system account that the embedded PostgreSQL runs under: our own, or an unprivileged one when we are root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigurationError

NAME = "docwell"


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A system account by its numbers."""

    uid: int
    gid: int
    name: str

    @classmethod
    def of(cls, uid: int) -> Account:
        """The account with this number, which may have no name."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid=uid, gid=uid, name=str(uid))
        return cls(uid=uid, gid=entry.pw_gid, name=entry.pw_name)


def unprivileged() -> Account:
    """The system account `docwell`, made when it is missing. Only root calls this.

    Raises:
        ConfigurationError: it is missing and cannot be made.
    """
    try:
        return Account.of(pwd.getpwnam(NAME).pw_uid)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    problem = "there is no useradd on this system"
    if useradd is not None:
        made = subprocess.run(
            [
                useradd,
                "--system",
                "--user-group",
                "--no-create-home",
                "--home-dir=/nonexistent",
                "--shell=/usr/sbin/nologin",
                NAME,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        problem = made.stderr.strip().rstrip(".")
    try:  # also when another process made it a moment before us
        return Account.of(pwd.getpwnam(NAME).pw_uid)
    except KeyError:
        raise ConfigurationError(
            f"PostgreSQL does not run as root, and the system account {NAME!r} cannot be made ({problem})."
            f" Make it by hand, run Docwell as an ordinary user, or set DOCWELL_DATABASE_URL.",
            code="account_missing",
        ) from None


def can(account: Account | None, test: str, path: Path) -> bool:
    """Whether `account` passes `test`, one of test(1)'s letters (`x`: may enter or run), on `path`.

    It is tried rather than computed from mode bits, since access lists and mount options count too.
    """
    if account is None:
        return os.access(path, {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}[test])
    tried = subprocess.run(
        ["/bin/sh", "-c", f'test -{test} "$1"', "sh", os.fspath(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
    )
    return tried.returncode == 0
