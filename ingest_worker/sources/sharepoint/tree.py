"""The folders of a drive: where things stand, and how a folder that moved is told from one that did not. Pure.

A delta query gives no paths and no descendants of a folder that was renamed or moved, and lists the parents of everything that
changed (learn.microsoft.com/graph/api/driveitem-delta, Remarks). So what was known of each folder is kept with the cursor: twelve
bytes a folder, from which it is told whether a folder that comes again is as before.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_ID_BYTES = 8
_STATE_BYTES = 4
_ROW_BYTES = _ID_BYTES + _STATE_BYTES

_DEEPEST = 500
"""Folders above a thing: SharePoint's paths have at most 400 characters. More means that the answers are circular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder or notebook. `inherits`: its permissions are its parent's; False also when that is not known."""

    parent: str | None
    name: str
    inherits: bool = False


@dataclass(slots=True)
class Tree:
    """The folders that were seen, by id. `parent` None: the drive's root."""

    folders: dict[str, Folder] = field(default_factory=dict)

    def path(self, parent: str | None, name: str) -> str | None:
        """The path below the root; None when a folder above is not known."""
        parts = [name]
        for folder in self.above(parent):
            if folder is None:
                return None
            if folder.parent is not None:
                parts.append(folder.name)
        return unicodedata.normalize("NFC", "/".join(reversed(parts)))

    def above(self, folder_id: str | None) -> Iterator[Folder | None]:
        """The folders from this one up to the root; None comes last when one is not known."""
        for _ in range(_DEEPEST):
            if folder_id is None:
                return
            folder = self.folders.get(folder_id)
            yield folder
            if folder is None:
                return
            folder_id = folder.parent
        yield None

    def missing(self, folder_id: str | None) -> str | None:
        """The nearest folder above, this one included, that is not known."""
        for _ in range(_DEEPEST):
            if folder_id is None:
                return None
            folder = self.folders.get(folder_id)
            if folder is None:
                return folder_id
            folder_id = folder.parent
        return None

    def owner(self, folder_id: str) -> str:
        """The nearest folder, upwards from this one, whose permissions are not its parent's."""
        for _ in range(_DEEPEST):
            folder = self.folders.get(folder_id)
            if folder is None or not folder.inherits or folder.parent is None:
                return folder_id
            folder_id = folder.parent
        return folder_id

    def is_below(self, folder_id: str | None, tops: set[str]) -> bool:
        """Whether one of `tops` is above this folder, itself not included."""
        folder = None if folder_id is None else self.folders.get(folder_id)
        for _ in range(_DEEPEST):
            if folder is None or folder.parent is None:
                return False
            if folder.parent in tops:
                return True
            folder = self.folders.get(folder.parent)
        return False


@dataclass(slots=True)
class Known:
    """What was known of folders when a cursor was made: a short hash of each one's state, and whether anything stood in it."""

    states: dict[bytes, int] = field(default_factory=dict)
    filled: set[bytes] = field(default_factory=set)

    def note(self, folder_id: str, folder: Folder, readers: Sequence[str] | None) -> bool:
        """Keep the state of a folder; True when it is not as it was (a folder that was not known is not)."""
        key, state = _key(folder_id), _state(folder, readers)
        before = self.states.get(key)
        self.states[key] = state
        return before != state

    def note_child(self, folder_id: str) -> None:
        """Something stands in this folder."""
        self.filled.add(_key(folder_id))

    def forget(self, folder_id: str) -> bool:
        """The folder is gone; True when something may have stood in it."""
        key = _key(folder_id)
        self.states.pop(key, None)
        if key not in self.filled:
            return False
        self.filled.discard(key)
        return True

    def __contains__(self, folder_id: str) -> bool:
        return _key(folder_id) in self.states

    def to_text(self) -> str:
        """As text: sixteen characters a folder."""
        rows = b"".join(
            key + (state | (key in self.filled)).to_bytes(_STATE_BYTES, "big") for key, state in sorted(self.states.items())
        )
        return base64.b64encode(rows).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> Known:
        """Read it again.

        Raises:
            ValueError: it is no such text.
        """
        try:
            rows = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
        if len(rows) % _ROW_BYTES:
            raise ValueError("its length does not fit")
        known = cls()
        for start in range(0, len(rows), _ROW_BYTES):
            key = rows[start : start + _ID_BYTES]
            state = int.from_bytes(rows[start + _ID_BYTES : start + _ROW_BYTES], "big")
            known.states[key] = state & ~1
            if state & 1:
                known.filled.add(key)
        return known


def _key(folder_id: str) -> bytes:
    return hashlib.blake2b(folder_id.encode(), digest_size=_ID_BYTES).digest()


def _state(folder: Folder, readers: Sequence[str] | None) -> int:
    text = "\0".join((folder.parent or "", folder.name, *("-" if readers is None else readers)))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_STATE_BYTES).digest()
    return int.from_bytes(digest, "big") & ~1


def parent_of(item: Mapping[str, object]) -> str | None:
    """The id of the folder that an item of Graph says it stands in."""
    reference = item.get("parentReference")
    parent = reference.get("id") if isinstance(reference, Mapping) else None
    return parent if isinstance(parent, str) and parent else None
