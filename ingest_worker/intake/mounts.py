"""Which file system a folder lies on, and whether its kernel can tell us of changes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")

# Changes made by other machines give no events here.
_NETWORK = {
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "davfs",
    "drvfs",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "prl_fs",
    "smb2",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
}
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted file system: where, and of which type."""

    folder: str
    type: str

    @property
    def is_network(self) -> bool:
        """Whether others may change it behind our kernel's back."""
        return self.type in _NETWORK or self.type.startswith("fuse.")


def parse_mounts(text: str) -> list[Mount]:
    """The lines of `/proc/self/mounts` (see fstab(5)); blanks in a path are written as `\\040`."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 3:
            folder = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1])
            mounts.append(Mount(folder=folder, type=fields[2]))
    return mounts


def network_mount(mounts: list[Mount], folder: str) -> Mount | None:
    """The network file system that an absolute folder lies on or has below it, or None."""

    def holds(outer: str, inner: str) -> bool:
        return inner == outer or inner.startswith(outer.rstrip("/") + "/")

    visible = {mount.folder: mount for mount in mounts}  # the last mount on a place hides those before it
    above = max(
        (mount for mount in visible.values() if holds(mount.folder, folder)), key=lambda mount: len(mount.folder), default=None
    )
    if above is not None and above.is_network:
        return above
    return next((mount for mount in visible.values() if mount.is_network and holds(folder, mount.folder)), None)


def network_mount_of(folder: str) -> Mount | None:
    """The network file system of a folder on this machine; None where the system does not say (other than Linux)."""
    try:
        text = os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        return None
    return network_mount(parse_mounts(text), folder)
