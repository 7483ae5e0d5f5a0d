"""People at work in a library, by chance from a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from tests.graph_drives import Json, StandInDrive, group, owner

READERS: list[list[Json]] = [
    [owner("ann@contoso.com")],
    [owner("ben@contoso.com"), group("99999999-0000-0000-0000-000000000001")],
    [group("99999999-0000-0000-0000-000000000002")],
    [],
]


class People:
    """Edit the drives, one step after the other; what a drive refuses, nobody did."""

    def __init__(self, drives: list[StandInDrive], seed: int) -> None:
        self._drives = drives
        self._random = random.Random(seed)
        self._names = 0

    def work(self, steps: int) -> None:
        """So many edits."""
        kinds: list[tuple[int, Callable[[StandInDrive], None]]] = [
            (5, self._new_file),
            (2, self._new_folder),
            (4, self._write),
            (2, self._rename),
            (3, self._move),
            (2, self._delete),
            (2, self._restore),
            (3, self._share),
        ]
        chosen = self._random.choices([kind for _, kind in kinds], weights=[weight for weight, _ in kinds], k=steps)
        for kind in chosen:
            with contextlib.suppress(ValueError, IndexError):
                kind(self._random.choice(self._drives))

    def _name(self) -> str:
        self._names += 1
        return f"{self._random.choice(['notes', 'Bericht', 'レポート', 'a b'])} {self._names}"

    def _pick(self, drive: StandInDrive, *kinds: str) -> str:
        return self._random.choice([one.item_id for one in drive.things.values() if one.kind in kinds])

    def _text(self) -> bytes:
        return b"# About %d\n\nText %d.\n" % (self._names, self._random.randrange(10**9))

    def _new_file(self, drive: StandInDrive) -> None:
        shared = self._random.choice(READERS) if self._random.random() < 0.2 else None
        drive.file(f"{self._name()}.md", self._text(), self._pick(drive, "root", "folder"), permissions=shared)

    def _new_folder(self, drive: StandInDrive) -> None:
        drive.folder(self._name(), self._pick(drive, "root", "folder"))

    def _write(self, drive: StandInDrive) -> None:
        drive.write(self._pick(drive, "file"), self._text())

    def _rename(self, drive: StandInDrive) -> None:
        picked = drive.things[self._pick(drive, "file", "folder")]
        drive.rename(picked.item_id, f"{self._name()}{'.md' if picked.kind == 'file' else ''}")

    def _move(self, drive: StandInDrive) -> None:
        drive.move(self._pick(drive, "file", "folder"), self._pick(drive, "root", "folder"))

    def _delete(self, drive: StandInDrive) -> None:
        drive.delete(self._pick(drive, "file", "folder"))

    def _restore(self, drive: StandInDrive) -> None:
        drive.restore(self._random.choice([one for one, tomb in drive.gone.items() if tomb.thing.parent in drive.things]))

    def _share(self, drive: StandInDrive) -> None:
        drive.share(self._pick(drive, "file", "folder"), self._random.choice([None, *READERS]))
