"""A folder as a source like any other: for saying what would be taken. Watching and sweeping have ways of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.names import name_rules
from ingest_worker.intake.observe import Kind, Viewer, look_at_root
from ingest_worker.intake.read import Refused, read_file
from ingest_worker.intake.tally import Tally
from ingest_worker.intake.walk import walk
from ingest_worker.sources.protocol import Batch, CursorExpired, Item
from shared.config import FolderSettings, Settings
from shared.errors import PermanentError
from shared.paths import document_path

BATCH = 500


class FolderSource:
    """The files under a root that may be documents, by the rules of the watcher. A key is a file's name on disk."""

    def __init__(self, settings: FolderSettings, general: Settings) -> None:
        root = look_at_root(settings.root)
        if root.problem is not None:
            raise PermanentError(f"The folder {settings.root} cannot be read: {root.problem}.", code="root_missing")
        self._root = root.path
        self._rules = IgnoreRules(settings.root, settings.ignore, name_rules(general))
        if self._rules.problem is not None:
            raise PermanentError(self._rules.problem, code="bad_rules")
        self.tally = Tally()
        """What was left out by the newest `everything`, and why."""

    def everything(self) -> Iterator[Batch]:
        """All files, in the order of their paths. There is no cursor: a folder keeps no journal."""
        self.tally = Tally()
        found = walk(self._root, self._rules, self.tally)
        files = (_item(one.name, one.path, one.size, one.modified_ns) for one in found if one.size)
        while batch := list(islice(files, BATCH)):
            yield Batch(items=batch)

    def changes(self, cursor: str) -> Iterator[Batch]:
        """Nothing can be told: a folder keeps no journal."""
        raise CursorExpired(f"A folder has no cursor, so none is {cursor!r}.")

    def find(self, key: str) -> Item | None:
        """One file as it is now; None when it is no file, empty or ignored."""
        seen = Viewer(self._root).look(key)
        if seen.kind is not Kind.FILE or seen.signature is None or self._rules.rule_for(key) is not None:
            return None
        size, modified_ns = seen.signature.size, seen.signature.modified_ns
        return _item(key, document_path(key), size, modified_ns) if size else None

    def read(self, item: Item, *, max_bytes: int) -> bytes:
        """A file's bytes, whole and unchanged while they were read."""
        path = Path(self._root) / item.key
        if not path.resolve().is_relative_to(self._root):
            raise Refused(f"{item.path} leads out of the folder {self._root}.", code="outside_root")
        return read_file(path, max_bytes=max_bytes).data

    def close(self) -> None:
        """Nothing is open."""


def _item(name: str, path: str, size: int, modified_ns: int) -> Item:
    modified = datetime.fromtimestamp(modified_ns / 1e9, UTC)
    return Item(key=name, content=f"{size}:{modified_ns}", path=path, size=size, source_modified=modified)
