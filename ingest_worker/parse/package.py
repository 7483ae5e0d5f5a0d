"""ZIP packages (Office, OpenDocument, EPUB) with limits that are checked before anything is unpacked."""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from dataclasses import dataclass

from ingest_worker.parse.errors import Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageLimits:
    """What a package may unpack to, all members together.

    A ratio up to `ratio` is met in honest files (a sheet of repeated rows reaches 200); under `always_bytes` none is asked for.
    """

    members: int = 20_000
    member_bytes: int = 512 * 1024**2
    total_bytes: int = 1024**3
    ratio: int = 300
    always_bytes: int = 64 * 1024**2


class Package:
    """The members of a ZIP file, found by their names whatever the case, since Windows programs do not mind it."""

    def __init__(self, data: bytes, what: str, limits: PackageLimits | None = None) -> None:
        """Open the package; `what` names the format for messages (`Word document`).

        Raises:
            Unreadable: `damaged`, or `too_large` when it would unpack to more than the limits.
        """
        self._what = what
        self._limits = limits or PackageLimits()
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise Unreadable(f"It is no {what}, or it is damaged: {error}. Save it anew.", code="damaged") from error
        self._check(len(data))
        self._members = {info.filename.lstrip("/").lower(): info for info in self._zip.infolist() if not info.is_dir()}

    @property
    def names(self) -> list[str]:
        """The members' names as they are written, in the order of the package."""
        return [info.filename.lstrip("/") for info in self._members.values()]

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._members

    def read(self, name: str) -> bytes:
        """A member's bytes.

        Raises:
            Unreadable: it is missing, damaged, encrypted, or larger than it says.
        """
        info = self._members.get(_key(name))
        if info is None:
            raise Unreadable(f"The {self._what} is damaged: its part {name} is missing. Save it anew.", code="damaged")
        if info.flag_bits & 1:
            raise Unreadable(f"The {self._what} is encrypted. Store a copy without a password.", code="encrypted")
        try:
            with self._zip.open(info) as member:
                # What the directory says of a size is only said; reading stops there.
                content = member.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
            raise Unreadable(
                f"The {self._what} is damaged: its part {name} cannot be read ({error}). Save it anew.", code="damaged"
            ) from error
        if len(content) > info.file_size:
            raise Unreadable(f"The {self._what} is damaged: its part {name} is larger than it says.", code="damaged")
        return content

    def get(self, name: str) -> bytes | None:
        """A member's bytes, None when there is none of that name.

        Raises:
            Unreadable: it is damaged, encrypted, or larger than it says.
        """
        return self.read(name) if name in self else None

    def _check(self, packed: int) -> None:
        limits = self._limits
        infos = self._zip.infolist()
        if len(infos) > limits.members:
            raise Unreadable(
                f"The {self._what} holds {len(infos)} parts; at most {limits.members} are read. Split it.", code="too_large"
            )
        total = sum(info.file_size for info in infos)
        largest = max((info.file_size for info in infos), default=0)
        if total > limits.total_bytes or largest > limits.member_bytes:
            raise Unreadable(
                f"The {self._what} would unpack to {total // 1024**2} MiB; at most {limits.total_bytes // 1024**2} MiB in all and"
                f" {limits.member_bytes // 1024**2} MiB in one part are read. Split it.",
                code="too_large",
            )
        if total > limits.always_bytes and total > packed * limits.ratio:
            raise Unreadable(
                f"The {self._what} would unpack to {total // max(packed, 1)} times its size; at most {limits.ratio} are read.",
                code="too_large",
            )


def resolve(base: str, target: str) -> str:
    """The name of the member that `target` means in the member `base`; a leading `/` counts from the package's root."""
    if target.startswith("/"):
        return posixpath.normpath(target.lstrip("/"))
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), target))


def _key(name: str) -> str:
    return name.lstrip("/").lower()
