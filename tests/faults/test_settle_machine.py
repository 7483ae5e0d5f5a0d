"""Settling against a folder in memory, with a clock of its own: no half-written file is taken, and none that was noticed is lost.

The folder changes as programs change it; a watcher notices each change late, or takes two for one. What is due is looked at again
before it is taken, as the watcher does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingest_worker.intake.settle import Settler, Signature
from tests.faults.profile import machine_settings

SETTLE, GRACE = 1.0, 2.0
PATHS = ("a.md", "b.md")
PATH = st.sampled_from(PATHS)


@dataclass(kw_only=True)
class File:
    """A file, or where none is: `signature` None. `written_at` goes with it when it is renamed."""

    signature: Signature | None = None
    written_at: float = float("-inf")


class Settling(RuleBasedStateMachine):
    """`noticed` holds what the watcher still has to look at, `taken` what came of each path last."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.stamps = itertools.count(1)
        self.folder = {path: File() for path in PATHS}
        self.settler = Settler(settle_seconds=SETTLE, grace_seconds=GRACE)
        self.hints: dict[str, str | None] = {}
        self.changed: set[str] = set()
        self.taken: dict[str, Signature | None] = {}

    # The folder

    @rule(path=PATH, at_once=st.booleans())
    def somebody_writes(self, path: str, at_once: bool) -> None:
        # The same size each time: only the time tells one state from another.
        self._change(path, File(signature=Signature(size=10, modified_ns=next(self.stamps)), written_at=self.now))
        if at_once:
            self._look(path, self.hints.pop(path))

    @precondition(lambda self: any(file.signature for file in self.folder.values()))
    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        self._change(data.draw(st.sampled_from(self._there())), File())

    @precondition(lambda self: any(file.signature for file in self.folder.values()))
    @rule(data=st.data(), new=PATH)
    def somebody_renames(self, data: st.DataObject, new: str) -> None:
        old = data.draw(st.sampled_from(self._there()))
        if old == new:
            return
        file = self.folder[old]
        self._change(old, File())
        self._change(new, file, origin=old)

    # The watcher

    @precondition(lambda self: self.hints)
    @rule(data=st.data())
    def a_change_is_noticed(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.hints)))
        self._look(path, self.hints.pop(path))

    @rule(path=PATH)
    def somebody_looks_without_reason(self, path: str) -> None:
        self._look(path, None)

    @rule(limit=st.sampled_from([1, 500]))
    def what_is_due_is_dealt_with(self, limit: int) -> None:
        for one in self.settler.due(self.now, limit=limit):
            file = self.folder[one.path]
            if file.signature != one.signature:
                self._look(one.path, None)
                continue
            if one.signature is not None:
                # Two looks so far apart saw the same, so nobody wrote in between.
                assert file.written_at <= self.now - SETTLE
            assert one.moved_from is None or one.moved_from in PATHS
            self.taken[one.path] = one.signature
            self.settler.done([one.path])

    @rule(limit=st.sampled_from([1, 500]), later=st.sampled_from([0.0, 0.5]))
    def the_database_is_away(self, limit: int, later: float) -> None:
        self.settler.postpone([one.path for one in self.settler.due(self.now, limit=limit)], self.now + later)

    @rule(seconds=st.sampled_from([0.5, 0.5, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # What must hold

    @invariant()
    def what_waits_has_a_time_to_wake_up_for(self) -> None:
        assert (self.settler.next_deadline() is None) == (len(self.settler) == 0)

    def teardown(self) -> None:
        """Once all is noticed and time has passed, the last state of each path that ever changed is what was taken."""
        while self.hints:
            path, origin = self.hints.popitem()
            self._look(path, origin)
        for _ in range(3):
            self.now += GRACE
            self.what_is_due_is_dealt_with(500)
        assert len(self.settler) == 0
        assert self.taken == {path: self.folder[path].signature for path in self.taken}
        assert self.changed <= self.taken.keys()

    # Help

    def _there(self) -> list[str]:
        return [path for path, file in self.folder.items() if file.signature is not None]

    def _change(self, path: str, file: File, *, origin: str | None = None) -> None:
        self.folder[path] = file
        self.hints[path] = origin
        self.changed.add(path)

    def _look(self, path: str, origin: str | None) -> None:
        assert self.settler.saw(path, path, self.folder[path].signature, self.now, moved_from=origin)


Settling.TestCase.settings = machine_settings(examples=60, steps=30)
TestSettling = Settling.TestCase
